"""The messages of the OpenEnv WebSocket protocol: JSON objects {"type": ..., "data": {...}}, one reply to each request.

A client sends reset, step, state or close; a server answers observation, state or error. An observation's data hold "observation"
(an object), "reward", "done" and perhaps "metadata"; an error's data "message" and "code". Source: the package openenv 0.10
(BSD-3), whose clients and servers understand ours and the other way round.
"""

from __future__ import annotations

import ipaddress
import json
import math
from typing import Any

MAX_MESSAGE_BYTES = 2**23  # of one message in either direction: an action of a million characters fits, escaped

INVALID_JSON = "INVALID_JSON"
UNKNOWN_TYPE = "UNKNOWN_TYPE"
VALIDATION_ERROR = "VALIDATION_ERROR"
EXECUTION_ERROR = "EXECUTION_ERROR"
CAPACITY_REACHED = "CAPACITY_REACHED"
SESSION_ERROR = "SESSION_ERROR"

_JSON_NAMES = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}

INSTALL = "pip install 'ragen-rl[openenv]'"


def encode(kind: str, data: dict[str, Any] | None = None) -> str:
    """One message. Without data the key is left out: some servers take no other key beside the type of a state or a close."""
    return json.dumps({"type": kind} if data is None else {"type": kind, "data": data}, allow_nan=False)


def decode(message: str | bytes) -> tuple[str, dict[str, Any]]:
    """(type, data) of a message. Raises ValueError, one line, for anything else."""
    content = parse_object(message)
    kind, data = content.get("type"), content.get("data", {})
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise ValueError("a message needs a 'type' (text) and may have 'data' (an object)")
    return kind, data


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object from outside, read strictly: no NaN, no number beyond a double, no key twice. Raises ValueError, one line."""
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"a JSON object is expected, not {_JSON_NAMES[type(content)]}")
    return content


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > 100:  # beyond any use, and reading thousands of digits is slow
        raise ValueError("a number is too large")
    return int(digits)
