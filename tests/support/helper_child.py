"""A helper process for the tests of ragen.environments.answers.child: run as a module, it does what it is asked."""

from __future__ import annotations

import os
import random
import time

from ragen.environments.answers.child import Handlers, serve
from ragen.errors import ConfigError


def add(a: int, b: int) -> int:
    print("a library that prints")
    return a + b


def fail(kind: str) -> None:
    if kind == "recursion":
        fail(kind)
    raise {"config": ConfigError("size=0: must be at least 1"), "value": ValueError("not\na number")}[kind]


def hold(how: str) -> int:
    """Never ends: asleep, or in one operation that lets no other Python code run."""
    if how == "asleep":
        time.sleep(3600)
    return 9**9**9


def identity() -> list[object]:
    return [os.getpid(), hash("text"), random.__name__]


def _load() -> Handlers:
    return {"add": add, "fail": fail, "hold": hold, "identity": identity, "leave": lambda: os._exit(3), "echo": lambda text: text}


if __name__ == "__main__":
    serve(_load)
