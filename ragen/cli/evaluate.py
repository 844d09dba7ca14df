"""`ragen eval`."""

from __future__ import annotations

from pathlib import Path

from ragen.cli.output import Json, Options, Repeated, console, print_json


def evaluate(
    target: str,
    /,
    *overrides: str,
    env: Repeated = None,
    episodes: int | None = None,
    temperature: float | None = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Play held-out episodes with a trained or an untrained model; the result is kept in the run's eval/ folder.

    Parameters
    ----------
    target
        a run folder (its newest checkpoint), one checkpoint, a model by short name, a model folder or a hub id
    overrides
        settings to change, as in `ragen train`, such as rollout.sampling.max_new_tokens=64
    env
        a tag of the run, or an environment by name; may be repeated; default: all of the run's
    episodes
        held-out episodes per environment (evaluation.num_episodes)
    temperature
        of sampling; 0 is greedy (evaluation.temperature)
    option
        KEY=VALUE, an option of the environments played (environments.TAG.options.KEY); may be repeated
    as_json
        print the result as JSON, progress on stderr
    """
    flags = {"evaluation.num_episodes": episodes, "evaluation.temperature": temperature}
    settings = [*overrides, *(f"{key}={value}" for key, value in flags.items() if value is not None)]
    from ragen.config.evaluation import load_for_evaluation
    from ragen.evaluation.results import to_json, write_result
    from ragen.evaluation.target import evaluate_target, find_target, run_folder_of
    from ragen.models.aliases import resolve
    from ragen.training.display import Display
    from ragen.training.report import before_after_table, example_panels

    run = run_folder_of(target)
    config = load_for_evaluation(target, run, names=env or (), options=option or (), overrides=settings)
    found = find_target(target, config.model, output_dir=Path(config.output_dir))
    display = Display(console(stderr=as_json))
    resolve(config.model.name, display.download)
    with display.rollout_progress(config.evaluation.num_episodes * len(config.environments), "evaluation") as show:
        result = evaluate_target(found, config.environments, config.evaluation, config.rollout, on_progress=show)
    path = write_result(found.results, result)
    if as_json:
        print_json(to_json(result))
        return
    display.show(before_after_table(None, result))
    display.show(example_panels(None, result))
    display.message(f"kept as {path}")
