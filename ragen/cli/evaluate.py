"""`ragen eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.output import Flag, Json, Options, Repeated, console, print_json, print_table, print_text

if TYPE_CHECKING:
    from ragen.config.schema import Config
    from ragen.evaluation.target import Target


def evaluate(
    target: str,
    /,
    *overrides: str,
    env: Repeated = None,
    suite: str | None = None,
    episodes: int | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    option: Options = None,
    base_url: str | None = None,
    resume: Flag = False,
    dry_run: Flag = False,
    as_json: Json = False,
) -> None:
    """Play held-out episodes with any policy; the result is kept in the run's eval/ folder, or under the policy's name.

    Parameters
    ----------
    target
        a run folder (its newest checkpoint), one checkpoint, a model by short name, folder or hub id; openai:MODEL or
        anthropic:MODEL, on a server; random, oracle, scripted:FILE, scripted:module:function, or human
    overrides
        settings to change, as in `ragen train`, such as rollout.sampling.max_new_tokens=64
    env
        a tag of the run, or an environment by name; may be repeated; default: all of the run's
    suite
        a suite by name or file, in the place of the run's environments and sampling; `ragen suites` lists them
    episodes
        held-out task seeds per environment (evaluation.num_episodes)
    samples
        episodes from each of these seeds (evaluation.samples_per_seed)
    temperature
        of sampling; 0 is greedy (evaluation.temperature)
    option
        KEY=VALUE, an option of the environments played (environments.TAG.options.KEY); may be repeated
    base_url
        of a server that speaks OpenAI's protocol, such as http://localhost:8000/v1 (server.base_url)
    resume
        go on with an evaluation that was stopped: what it had finished is not played again
    dry_run
        say how many requests and tokens a server will take, and what that costs; asks nobody anything
    as_json
        print the result as JSON, progress on stderr
    """
    flags = {
        "evaluation.num_episodes": episodes,
        "evaluation.samples_per_seed": samples,
        "evaluation.temperature": temperature,
        "server.base_url": None if base_url is None else f'"{base_url}"',
    }
    settings = [*overrides, *(f"{key}={value}" for key, value in flags.items() if value is not None)]
    from ragen.config.evaluation import load_for_evaluation, load_for_suite
    from ragen.errors import ConfigError
    from ragen.evaluation.target import check_effect, find_target, run_folder_of

    run = run_folder_of(target)
    planned: list[tuple[str | None, Config]]
    if suite is None:
        planned = [(None, load_for_evaluation(target, run, names=env or (), options=option or (), overrides=settings))]
    elif env or option:
        raise ConfigError("--suite: says which environments are played; leave out --env and --option")
    else:
        planned = [*load_for_suite(target, run, suite, overrides=settings)]
    for kind, config in planned:
        found = find_target(target, config.model, output_dir=Path(config.output_dir), engine=config.engine)
        if temperature is not None and not found.kind.samples:
            raise ConfigError(f"--temperature={temperature}: has no effect, {found.label} does not sample")
        check_effect(found, config.rollout, config.server, overrides)
        if dry_run:
            _forecast(found, config, as_json)
        else:
            _measure(found, config, resume, as_json, kind)


def _measure(target: Target, config: Config, resume: bool, as_json: bool, kind: str | None) -> None:
    from ragen.engines.budget import Usage
    from ragen.evaluation.kinds import Kind
    from ragen.evaluation.results import to_json
    from ragen.evaluation.suites import GREEDY
    from ragen.evaluation.target import evaluate_and_keep
    from ragen.training.display import Display
    from ragen.training.report import before_after_table, example_panels

    display = Display(console(stderr=as_json))
    if target.kind is Kind.MODEL:
        from ragen.models.aliases import resolve

        resolve(config.model.name, display.download)
    evaluation = config.evaluation
    num_episodes = evaluation.num_episodes * evaluation.samples_per_seed * len(config.environments)
    with display.rollout_progress(num_episodes, "evaluation") as show:
        result, path = evaluate_and_keep(
            target,
            config.environments,
            evaluation,
            config.rollout,
            server=config.server,
            kind=kind or (GREEDY if target.kind.samples and evaluation.temperature == 0 else "eval"),
            resume=resume,
            or_begin=kind is not None,
            on_progress=show,
        )
    if as_json:
        print_json(to_json(result))
        return
    display.show(before_after_table(None, result))
    display.show(example_panels(None, result))
    if target.kind.is_server:
        display.message(Usage(**result.usage).line())
    display.message(f"kept as {path}")


def _forecast(target: Target, config: Config, as_json: bool) -> None:
    from dataclasses import asdict

    from ragen.errors import ConfigError
    from ragen.evaluation.estimate import NUM_PLAYED, forecast, total
    from ragen.evaluation.policies import rollout_for

    if not target.kind.is_server:
        raise ConfigError(f"--dry-run: {target.label} costs nothing; it is for openai:MODEL and anthropic:MODEL")
    rollout = rollout_for(target.kind, config.rollout, config.server)
    found = forecast(config.environments, config.evaluation, rollout, config.server)
    short, long = total([each.short for each in found.values()]), total([each.long for each in found.values()])
    if as_json:
        print_json(
            {"environments": {tag: asdict(each) for tag, each in found.items()}, "short": asdict(short), "long": asdict(long)}
        )
        return
    rows = [
        (tag, str(each.num_episodes), how, used.line())
        for tag, each in found.items()
        for how, used in (("short", each.short), ("long", each.long))
    ]
    print_table(("environment", "episodes", "if episodes are", "about"), rows)
    print_text(f"\nin all: {short.line()}\n     to {long.line()}")
    prices = (
        "" if config.server.has_prices else "\nFor the cost, set server.price_per_million_prompt_tokens and ..._sampled_tokens."
    )
    print_text(
        f"\nNobody was asked. Short: {NUM_PLAYED} episodes of each environment by its oracle, or by chance, answers alone. Long:"
        f" by chance, with every reply as long as it may be. Tokens are estimated from the text.{prices}"
    )
