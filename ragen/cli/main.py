"""The program `ragen`: its commands, and how whatever goes wrong becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from cyclopts import App, CycloptsError

from ragen import __version__
from ragen.cli.bench import bench_app
from ragen.cli.check_algorithm import check_algorithm
from ragen.cli.compare import compare
from ragen.cli.envs import envs_app
from ragen.cli.evaluate import evaluate
from ragen.cli.export import export
from ragen.cli.faults import faults_app
from ragen.cli.models import models_app
from ragen.cli.play import play
from ragen.cli.replay import replay
from ragen.cli.suites import suites
from ragen.cli.tokens import tokens
from ragen.cli.train import train, train_help
from ragen.errors import RagenError
from ragen.redaction import redact

TRAIN_PACKAGES = (
    "filelock",
    "gguf",
    "huggingface_hub",
    "matplotlib",
    "peft",
    "safetensors",
    "scipy",
    "tensorboardX",
    "tokenizers",
    "torch",
    "transformers",
)
# Package -> the extra that brings it; every other import that fails is a bug and keeps its traceback.
EXTRAS: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys(TRAIN_PACKAGES, "train"), "readchar": "play", "openai": "api", "anthropic": "api"}
)

app = App(
    name="ragen",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # main() says what to do next
    help="Train and evaluate language-model agents by multi-turn reinforcement learning.",
)
app.command(train)
app.command(evaluate, name="eval")
app.command(compare)
app.command(suites)
app.command(export)
app.command(play)
app.command(replay)
app.command(tokens)
app.command(envs_app)
app.command(models_app)
app.command(bench_app)
app.command(faults_app)
app.command(check_algorithm)


def main(tokens: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0, or the code of the error that is printed as one line on stderr."""
    arguments = sys.argv[1:] if tokens is None else list(tokens)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # module:Class of the folder one works in
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
    except KeyboardInterrupt as error:
        how_to_go_on = getattr(error, "__notes__", [])
        _fail("; ".join(["interrupted", *how_to_go_on]), getattr(error, "exit_code", 130))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; Python must not flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def _fail(message: str, code: int) -> NoReturn:
    print("error: " + redact(" ".join(message.split())), file=sys.stderr)
    sys.exit(code)
