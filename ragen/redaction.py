"""Keeping keys and passwords out of whatever is written down: what counts as one, and how it is blotted out.

What is known to be secret: the values of environment variables whose names say so (WANDB_API_KEY, HF_TOKEN, ...), and the
password inside an address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

BLOT = "***"
MIN_LENGTH = 8  # shorter values are words that stand in any text, such as "false"
_VARIABLE = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SETTING = re.compile(r"(^|_)(api_?key|access_key|auth_token|access_token|secret|password|passwd)$|^token$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)(?=@)")


def is_secret_setting(name: str) -> bool:
    """Whether a setting of this name holds a secret: `api_key`, but neither `success_key` nor `max_new_tokens`."""
    return _SETTING.search(name) is not None


def redact(text: str) -> str:
    """The text with every known secret blotted out."""
    for value in _secrets():
        text = text.replace(value, BLOT)
    return _IN_ADDRESS.sub(rf"\1:{BLOT}", text)


def _secrets() -> Iterator[str]:
    """Longest first: one may be the beginning of another."""
    found = {value for name, value in os.environ.items() if _VARIABLE.search(name) and len(value) >= MIN_LENGTH}
    yield from sorted(found, key=len, reverse=True)
