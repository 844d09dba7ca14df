"""`ragen train`."""

from __future__ import annotations

import shutil
import textwrap

from ragen.cli.output import Flag, Json, console, print_json


def train(recipe: str, /, *overrides: str, resume: Flag = False, resume_from: str | None = None, as_json: Json = False) -> None:
    """Train a recipe: roll out, update, measure; the results lie in runs/NAME.

    Parameters
    ----------
    recipe
        a recipe, a YAML file, or the folder of an earlier run (trains its configuration again)
    overrides
        settings to change, such as trainer.steps=50 seed=3 algorithm=brpo
    resume
        go on from the last complete checkpoint of the run folder
    resume_from
        go on from this one of its checkpoints: a step or a folder; what came after it is kept in superseded/
    as_json
        print the summary as JSON, progress on stderr
    """
    from ragen.config.load import load

    config = load(recipe, overrides)
    from ragen.run import train as run
    from ragen.run_folder import where_it_lies

    if resume or resume_from:
        config = where_it_lies(config, recipe, overrides)
    summary = run(config, resume=resume_from or resume, console=console(stderr=as_json))
    if as_json:
        print_json(summary.to_json())


def train_help() -> str:
    """What `ragen train --help` says below the arguments: recipes, how to override, every key with its default."""
    from ragen.config import load, schema

    width = shutil.get_terminal_size().columns

    def entry(head: str, text: str) -> str:
        return f"  {head}\n" + textwrap.fill(text, width=width, initial_indent=" " * 6, subsequent_indent=" " * 6)

    lines = ["Recipes:", *(entry(name, _first_comment(load.recipe_text(name))) for name in load.recipes())]
    lines += ["", "Groups, chosen as GROUP=OPTION:"]
    lines += [f"  {group}={'|'.join(options)}" for group, options in load.groups().items() if group != "env"]
    lines += [
        "",
        "Environments:",
        entry("env=NAME", "plays another one than the recipe's, or several as env=[NAME,NAME]; `ragen envs` lists them"),
        entry("+env@environments.TAG=NAME", "adds one, under a tag of your own"),
        entry("environments.TAG.options.KEY=VALUE", "sets an option of one; `ragen envs NAME` lists them"),
        entry("~environments.TAG", "removes one"),
        "",
        "Keys with their defaults (a recipe may have its own values), set as KEY=VALUE:",
    ]
    for key in schema.all_keys():
        lines.append(entry(f"{key.name}={schema.default_in_words(key)}", f"{key.kind}{key.what and '; ' + key.what}"))
    return "\n".join(lines)


def _first_comment(text: str) -> str:
    first = text.partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else ""
