"""`ragen suites`."""

from __future__ import annotations

from dataclasses import asdict

from ragen.cli.output import Json, print_json, print_table, print_text

_NEXT = """\
ragen suites NAME               what it plays, and how
ragen eval TARGET --suite NAME  measure a policy on it
NAME may also be the path of a YAML file of your own."""


def suites(name: str | None = None, /, *, as_json: Json = False) -> None:
    """List the suites of evaluations; with a name: its environments and settings.

    Parameters
    ----------
    name
        a shipped suite, or the path of a YAML file
    as_json
        print JSON
    """
    from ragen.config import suites as module

    if name:
        _show(name, as_json)
    elif as_json:
        print_json(module.suites())
    else:
        print_table(("suite", "what it is"), list(module.suites().items()))
        print_text("\n" + _NEXT)


def _show(name: str, as_json: bool) -> None:
    from ragen.config.suites import load_suite
    from ragen.evaluation.measurements import measurements_of

    suite = load_suite(name)
    if as_json:
        print_json(asdict(suite))
        return
    rows = []
    for tag, environment in suite.environments.items():
        options = ", ".join(f"{key}={value}" for key, value in environment.options.items() if "\n" not in str(value))
        limits = (environment.max_turns, environment.max_actions, environment.max_actions_per_turn)
        rows.append((tag, environment.name, *map(str, limits), options))
    print_table(("tag", "environment", "turns", "actions", "a turn", "options"), rows)
    print_text("")
    settings = []
    for setting, measurement in zip(suite.settings, measurements_of(suite), strict=True):
        chosen = setting.evaluation
        numbers = (chosen.num_episodes, chosen.samples_per_seed, chosen.temperature, measurement.num_episodes)
        settings.append((setting.name, setting.mode, *map(str, numbers)))
    print_table(("setting", "mode", "seeds", "samples a seed", "temperature", "episodes in all"), settings)
