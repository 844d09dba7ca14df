"""The program `ragen`: its commands, and how whatever goes wrong becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from cyclopts import App, CycloptsError

from ragen import __version__
from ragen.cli.bench import bench_app
from ragen.cli.check_algorithm import check_algorithm
from ragen.cli.envs import envs_app
from ragen.cli.evaluate import evaluate
from ragen.cli.models import models_app
from ragen.cli.play import play
from ragen.cli.tokens import tokens
from ragen.cli.train import train, train_help
from ragen.errors import RagenError

TRAIN_PACKAGES = (
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
)
# Package -> the extra that brings it; every other import that fails is a bug and keeps its traceback.
EXTRAS: Mapping[str, str] = MappingProxyType({**dict.fromkeys(TRAIN_PACKAGES, "train"), "readchar": "play"})

app = App(
    name="ragen",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # main() says what to do next
    help="Train and evaluate language-model agents by multi-turn reinforcement learning.",
)
app.command(train)
app.command(evaluate, name="eval")
app.command(play)
app.command(tokens)
app.command(envs_app)
app.command(models_app)
app.command(bench_app)
app.command(check_algorithm)


def main(tokens: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0, or the code of the error that is printed as one line on stderr."""
    arguments = sys.argv[1:] if tokens is None else list(tokens)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # module:Class of the folder one works in
    began = time.time()
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
        if package not in EXTRAS:
            raise
        _fail(f"this needs the package {package}: pip install 'ragen-rl[{EXTRAS[package]}]'", 1)
    except KeyboardInterrupt:
        _fail("interrupted" + _how_to_go_on(arguments, began), 130)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; Python must not flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def _how_to_go_on(arguments: Sequence[str], began: float) -> str:
    """After an interrupted training whose run folder holds a whole checkpoint: how to resume it; else empty."""
    run = sys.modules.get("ragen.run")
    if arguments[:1] != ["train"] or run is None:  # not yet imported: nothing has begun
        return ""
    from ragen.config.load import load
    from ragen.training.checkpoint import NAME
    from ragen.training.trainer import CHECKPOINTS

    recipe, *overrides = (token for token in arguments[1:] if not token.startswith("-"))
    try:
        config = load(recipe, overrides)
    except RagenError:
        return ""
    folders = Path(config.output_dir).glob(f"{config.name}*/{run.CONFIG_FILE}")
    # A name that is taken gets a number, so the folder is the one whose configuration this process has written.
    written = [path for path in folders if path.stat().st_mtime >= began - 1.0]
    folder = max(written, key=lambda path: path.stat().st_mtime).parent if written else None
    if folder is None or not any(NAME.fullmatch(path.name) for path in folder.glob(f"{CHECKPOINTS}/*")):
        return ""
    named = "" if folder.name == config.name else f"name={folder.name} "
    return f"; {named}--resume goes on from the last checkpoint"


def _fail(message: str, code: int) -> NoReturn:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
