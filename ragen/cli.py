"""The command line: arguments in, tables or JSON out. Heavy packages are imported by the command that needs them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

from ragen import __version__
from ragen.errors import RagenError

if TYPE_CHECKING:
    from rich.console import Console

# Packages of the extra [train]; every other import that fails is a bug and keeps its traceback.
TRAIN_PACKAGES = frozenset(
    {
        "filelock",
        "gguf",
        "huggingface_hub",
        "matplotlib",
        "peft",
        "safetensors",
        "tensorboardX",
        "tokenizers",
        "torch",
        "transformers",
    }
)

Flag = Annotated[bool, Parameter(negative="")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="")]

app = App(
    name="ragen",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # main() says what to do next
    help="Train and evaluate language-model agents by multi-turn reinforcement learning.",
)
models_app = App(
    name="models", help_format="plaintext", help="Models by name: where their weights come from, what is in the cache."
)
app.command(models_app)


def main(tokens: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0, or the code of the error that is printed as one line on stderr."""
    arguments = sys.argv[1:] if tokens is None else list(tokens)
    try:
        if arguments[:1] == ["train"] and {"--help", "-h"} & set(arguments):
            app["train"].help_epilogue = train_help()
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, where a broken pipe is still caught
    except CycloptsError as error:
        _fail(str(error), 2)
    except RagenError as error:
        _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in TRAIN_PACKAGES:
            raise
        _fail(f"this needs the package {package}: pip install 'ragen-rl[train]'", 1)
    except KeyboardInterrupt:
        _fail("interrupted" + ("; --resume goes on from the last checkpoint" if arguments[:1] == ["train"] else ""), 130)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; Python must not flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


@app.command
def train(recipe: str, /, *overrides: str, resume: Flag = False, as_json: Json = False) -> None:
    """Train a recipe: roll out, update, measure; the results lie in runs/NAME.

    Parameters
    ----------
    recipe
        a recipe, a YAML file, or the folder of an earlier run (trains its configuration again)
    overrides
        settings to change, such as trainer.steps=50 seed=3 algorithm=brpo
    resume
        go on from the last complete checkpoint of the run folder
    as_json
        print the summary as JSON, progress on stderr
    """
    from ragen.config.load import load

    config = load(recipe, overrides)
    from ragen.run import train as run

    summary = run(config, resume=resume, console=_console(stderr=as_json))
    if as_json:
        _print_json(summary.to_json())


@app.command(name="eval")
def evaluate(
    target: str,
    /,
    *overrides: str,
    env: Repeated = None,
    episodes: int | None = None,
    temperature: float | None = None,
    option: Repeated = None,
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
    display = Display(_console(stderr=as_json))
    resolve(config.model.name, display.download)
    with display.rollout_progress(config.evaluation.num_episodes * len(config.environments), "evaluation") as show:
        result = evaluate_target(found, config.environments, config.evaluation, config.rollout, on_progress=show)
    path = write_result(found.results, result)
    if as_json:
        _print_json(to_json(result))
        return
    display.show(before_after_table(None, result))
    display.show(example_panels(None, result))
    display.message(f"kept as {path}")


@app.command
def envs(name: str | None = None, /, *, as_json: Json = False) -> None:
    """List the environments; with a name: its options and the beginning of an episode.

    Parameters
    ----------
    name
        a registered environment, or module:Class of your own
    as_json
        print JSON
    """
    from ragen.environments import registry

    shown = [registry.describe(each) for each in ([name] if name else registry.names())]
    if as_json:
        _print_json(asdict(shown[0]) if name else [asdict(each) for each in shown])
    elif not name:
        _print_table(("environment", "what it is"), [(each.name, each.description) for each in shown])
        _console().print("\nragen envs NAME shows the options and an example.", highlight=False)
    else:
        (described,) = shown
        out = _console()
        out.print(f"{described.name}: {described.description}\n", highlight=False, markup=False)
        rows = [(option.name, option.type, str(option.default), option.doc) for option in described.options]
        _print_table(("option", "type", "default", "what it does"), rows)
        out.print(
            f"\nset as environments.TAG.options.NAME=VALUE\n\nThe beginning of an episode:\n{described.example}",
            highlight=False,
            markup=False,
        )


@models_app.command(name="list")
def models_list(*, as_json: Json = False) -> None:
    """List the models that have a short name; any local folder or hub id works as well.

    Parameters
    ----------
    as_json
        print JSON
    """
    from ragen.models.aliases import list_models

    entries = list_models()
    if as_json:
        _print_json([{**asdict(entry), "path": entry.path and str(entry.path)} for entry in entries])
        return
    rows = [
        (
            entry.alias,
            f"{entry.size / 1e6:,.0f} MB",
            "yes" if entry.cached else "no",
            f"{entry.description}\nfrom: {entry.source}",
        )
        for entry in entries
    ]
    _print_table(("model", "on disk", "here", "what it is"), rows)


@models_app.command(name="pull")
def models_pull(name: str, /, *, as_json: Json = False) -> None:
    """Fetch a model into the cache, or verify the one that is there; print its folder.

    Parameters
    ----------
    name
        a short name (ragen models list), a hub id, or a folder to check
    as_json
        print JSON, progress on stderr
    """
    from ragen.models.aliases import pull
    from ragen.training.display import Display

    display = Display(_console(stderr=True))
    path = pull(name, display.download)
    display.end_download()
    if as_json:
        _print_json({"model": name, "path": str(path)})
    else:
        print(path)


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
        "Environments, each under a tag of your own:",
        entry("+env@environments.TAG=NAME", f"adds one, with the settings that suit it: {', '.join(load.groups()['env'])}"),
        entry("environments.TAG.options.KEY=VALUE", "sets an option of it; `ragen envs NAME` lists them"),
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


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, not markup: "[a,b]" is no style
    _console().print(table)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def _fail(message: str, code: int) -> NoReturn:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
