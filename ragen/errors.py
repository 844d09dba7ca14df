"""The error types a person meets, and `boundary()`, where failures of outside code become one of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ragen.redaction import redact


class RagenError(Exception):
    """Base of every error that a person can act on. The command line prints it as one line and exits with `exit_code`."""

    exit_code = 1


class ConfigError(RagenError):
    """A setting is unknown, of the wrong type, out of range, or impossible beside another. Raised before any model loads."""

    exit_code = 2


class ModelError(RagenError):
    """Weights, tokenizer or chat template cannot be had or used."""


class EnvironmentFailure(RagenError):
    """An environment raised, or answered something that is not an observation. Ends one trajectory, never the step."""


class EngineFailure(RagenError):
    """The engine could not answer a request. Ends one trajectory, never the step."""


class PromptTooLong(EngineFailure):
    """The prompt does not fit into the window of a server's model. Ends one trajectory, as its outcome."""


class ServerError(RagenError):
    """A server refuses what it is asked (key, model, parameters) or was never reached. Asking again would not help."""


class BudgetSpent(RagenError):
    """An evaluation over a server stops before it would cost more than `server.max_cost`. What it has finished is kept."""

    exit_code = 5


class TrainingError(RagenError):
    """The run cannot go on: too many failures, nothing to train on, non-finite for too long."""


class NothingToDo(RagenError):
    """A resumed run has done all its steps. Not a failure, but no work was done either, so it has an exit code of its own."""

    exit_code = 3


class Stopped(RagenError):
    """A run was asked to stop by a signal and did so, saved and closed. Its exit code is 128 + the number of the signal."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StorageError(RagenError):
    """A file of the run folder cannot be written or read."""


@contextmanager
def boundary(error: type[RagenError], where: str) -> Iterator[None]:
    """Turn any exception of the code inside, which is not ours, into `error`, naming `where` and keeping the cause.

    `sys.exit` in outside code counts as one: it must not end the run as if that were a success. Keys and passwords in what it
    says are blotted out.
    """
    try:
        yield
    except RagenError:
        raise
    except (Exception, SystemExit) as cause:
        detail = " ".join(str(cause).split()) or "no message"
        raise error(f"{where}: {type(cause).__name__}: {redact(detail)[:500]}") from cause


def near_match(name: str, known: Iterable[str]) -> str:
    """A clause such as "; did you mean 'sokoban'?", or an empty string when nothing is close."""
    originals = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(name.lower(), originals, n=1, cutoff=0.6)
    return f"; did you mean {originals[matches[0]]!r}?" if matches else ""
