"""The types that an option of an environment may have, and a value read as one of them.

These are bool, int, float, str, None, Literal, list[T] and dict[str, T] of them, and unions. A bare list or dict holds anything.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from ragen.errors import ConfigError, near_match

ALLOWED = "bool, int, float, str, None, Literal, list or dict[str, ...]"  # in words, for errors
_SCALARS = (bool, int, float, str, types.NoneType)


def can_be_given(hint: Any) -> bool:
    """Whether some value, other than None, can be given to an option annotated so."""
    return hint is Any or any(each is not types.NoneType for each in _alternatives(hint))


def typed(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type `hint` (an int also serves as a float, a bool never as a number).

    Raises ConfigError, beginning with `where`, for a value that does not fit, and for any value if no option can have that type.
    """
    if hint is Any:
        return value
    if not can_be_given(hint) and not (value is None and hint is types.NoneType):
        raise ConfigError(f"{where}={value!r}: its type {type_name(hint)} is none that an option can have ({ALLOWED})")
    allowed = _alternatives(hint)
    for each in allowed:
        if get_origin(each) is Literal and any(type(value) is type(one) and value == one for one in get_args(each)):
            return value
        if _kind(each) is list and isinstance(value, (list, tuple)):
            return [typed(item, _inside(each), f"{where}[{i}]") for i, item in enumerate(value)]
        if _kind(each) is dict and isinstance(value, Mapping):
            return {str(key): typed(item, _inside(each), f"{where}.{key}") for key, item in value.items()}
    if type(value) in allowed and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    if type(value) is int and float in allowed:
        return float(value)
    raise _misfit(value, allowed, where)


def type_name(hint: Any) -> str:
    """As a person writes it: `int | None`, `Literal['a', 'b']`."""
    if hint is types.NoneType:
        return "None"
    if get_origin(hint) in (Union, types.UnionType):
        return " | ".join(map(type_name, get_args(hint)))
    if not get_args(hint) and isinstance(_kind(hint), type):  # also typing.List, which is a list of anything
        named: str = _kind(hint).__name__
        return named
    return str(hint).replace("typing.", "").replace("NoneType", "None")


def _misfit(value: Any, allowed: tuple[Any, ...], where: str) -> ConfigError:
    choices = [one for each in allowed if get_origin(each) is Literal for one in get_args(each)]
    others = [type_name(each) for each in allowed if get_origin(each) is not Literal]
    if not choices:
        return ConfigError(f"{where}={value!r}: must be {' | '.join(others)}, not {type(value).__name__}")
    near = near_match(value, filter(_is_text, choices)) if isinstance(value, str) else ""
    return ConfigError(f"{where}={value!r}: must be one of {', '.join([*map(repr, choices), *others])}{near}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself, without those that no option can have."""
    each_of = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(each for each in each_of if _is_allowed(each))


def _is_allowed(hint: Any) -> bool:
    if hint in _SCALARS or get_origin(hint) is Literal:
        return True
    if _kind(hint) is dict and get_args(hint) and get_args(hint)[0] is not str:
        return False
    return _kind(hint) in (list, dict) and can_be_given(_inside(hint))


def _kind(hint: Any) -> Any:
    """list for list, list[int] and typing.List; likewise dict."""
    return get_origin(hint) or hint


def _inside(hint: Any) -> Any:
    """The type of a list's items or of a dict's values; Any of a bare one."""
    return (get_args(hint) or (Any,))[-1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
