"""Silence for transformers: its progress bars and notes would tear the command line's own display."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """No tqdm bars and nothing below an error from transformers inside the block; afterwards as before.

    tqdm itself is switched off, since some of transformers' bars do not heed transformers' own switch.
    """
    bars: Any = tqdm
    verbosity, draw = transformers_logging.get_verbosity(), bars.__init__
    transformers_logging.set_verbosity(logging.ERROR)
    bars.__init__ = functools.partialmethod(draw, disable=True)
    try:
        yield
    finally:
        bars.__init__ = draw
        transformers_logging.set_verbosity(verbosity)
