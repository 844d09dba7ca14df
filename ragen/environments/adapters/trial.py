"""Somebody else's code tried out while a configuration is read: it may be slow, but it may not hang."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ragen.errors import ConfigError

LIMIT_S = 20.0  # some classes load data when they are made


def try_out(trial: Callable[[], None], what: str) -> None:
    """Call `trial` in a thread of its own, which is left behind if it has not ended after LIMIT_S.

    Raises what it raises, or ConfigError beginning with `what`. A thread and not a process, since a class may be one that no
    other process can import; code that crashes the interpreter still does.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            trial()
        except BaseException as error:  # all of them: each belongs to the caller, who waits for it
            raised.append(error)

    thread = threading.Thread(target=run, name="environment-trial", daemon=True)  # the program can end without it
    thread.start()
    thread.join(LIMIT_S)
    if thread.is_alive():
        raise ConfigError(f"{what}: its constructor did not end within {LIMIT_S:g} s")
    if raised:
        raise raised[0]
