"""`ragen envs`: what there is, what one of them is like, and whether it keeps the contract."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cyclopts import App

from ragen.cli.output import Json, Options, console, print_json, print_table, print_text

if TYPE_CHECKING:
    from rich.text import Text

    from ragen.environments.checker import Finding
    from ragen.environments.registry import Description

envs_app = App(name="envs", help_format="plaintext", help="Environments: what there is, and whether one keeps the contract.")
_NEXT = """\
ragen envs NAME           its options, and the beginning of an episode
ragen envs check NAME     whether it keeps the contract
ragen play NAME           play it yourself
ragen train RECIPE env=NAME
NAME may also be module:Class of your own."""
_STYLES = {"passed": "green", "warned": "yellow", "skipped": "dim", "failed": "bold red"}


@envs_app.default
def envs(name: str | None = None, /, *, as_json: Json = False) -> None:
    """List the environments; with a name: its options and the beginning of an episode.

    Parameters
    ----------
    name
        a registered environment, a tag, or module:Class of your own
    as_json
        print JSON
    """
    if name:
        _show(name, as_json)
    else:
        _list(as_json)


@envs_app.command
def check(name: str, /, *, option: Options = None, seeds: int | None = None, as_json: Json = False) -> None:
    """Check whether an environment keeps the contract; exit code 1 if a check fails, 2 if there is no such environment.

    Parameters
    ----------
    name
        a registered environment, a tag, or module:Class of your own
    option
        KEY=VALUE, an option of the environment; may be repeated
    seeds
        initial states to play (20)
    as_json
        print the report as JSON
    """
    from ragen.check_apart import check_apart
    from ragen.environments.checker.run import NUM_SEEDS

    out = console()
    report = check_apart(
        name,
        option or (),
        num_seeds=NUM_SEEDS if seeds is None else seeds,
        on_finding=(lambda _: None) if as_json else (lambda finding: out.print(_line(finding), soft_wrap=True)),
    )
    if as_json:
        print_json({"ok": report.ok, **asdict(report), "name": name, "environment": report.name})
    else:
        counts = [
            f"{len(found)} {outcome}" for outcome in _STYLES if (found := [f for f in report.findings if f.outcome == outcome])
        ]
        out.print(f"\n{name}: {', '.join(counts)}", highlight=False, markup=False)
    if not report.ok:
        sys.exit(1)


def _line(finding: Finding) -> Text:
    from rich.text import Text

    return Text.assemble(
        f"{finding.check:<19}", (f"{finding.outcome:<8}", _STYLES[finding.outcome]), f"{finding.seconds:6.2f} s  ", finding.detail
    )


def _list(as_json: bool) -> None:
    from ragen.config.environments import tags
    from ragen.environments import registry

    if as_json:
        with redirect_stdout(sys.stderr):  # what an environment itself prints
            described = [_data(registry.describe(name)) for name in registry.names()]
        print_json(described)
        return
    print_table(("environment", "what it is"), [(name, registry.summary(name)) for name in registry.names()])
    print_text("")
    print_table(("tag", "an environment with its settings"), list(tags().items()))
    print_text("\n" + _NEXT)


def _show(name: str, as_json: bool) -> None:
    from ragen.config.environments import named, tags
    from ragen.environments import registry

    _, settings = named(name)
    options = settings.get("options") or {}
    with redirect_stdout(sys.stderr):  # what the environment itself prints
        described = registry.describe(settings["name"], options)
    if as_json:
        print_json(_data(described) | ({"tag": name, "settings": settings} if name in tags() else {}))
        return
    print_text(f"{described.name}: {described.description}\n")
    _print_options(described, options)
    if name in tags():
        limits = {key: value for key, value in settings.items() if key not in ("name", "options")}
        print_text(f"\ntag {name}: {tags()[name]}\n{', '.join(f'{key}={value}' for key, value in limits.items())}")
    print_text("\nset as environments.TAG.options.NAME=VALUE\n\nThe beginning of an episode:")
    print_text(described.example)


def _data(described: Description) -> dict[str, Any]:
    """For JSON; a default that is no plain value, such as an array, as it is printed."""
    options = [
        {"name": each.name, "type": each.type, "default": _plain(each.default), "doc": each.doc} for each in described.options
    ]
    return {"name": described.name, "description": described.description, "options": options, "example": described.example}


def _plain(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _print_options(described: Description, chosen: dict[str, Any]) -> None:
    """The options with their defaults, and beside them what the tag sets."""
    header = ("option", "type", "default", *(("here",) if chosen else ()), "what it does")
    rows = []
    for option in described.options:
        here = (str(chosen.get(option.name, "")),) if chosen else ()
        rows.append((option.name, option.type, str(option.default), *here, option.doc))
    print_table(header, rows)
