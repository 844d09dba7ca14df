"""Environments by name: what there is, what its options are, and how to make one."""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Union, get_args, get_origin, get_type_hints

import gymnasium

from ragen.environments.text_env import TextEnv, TextEnvConfig
from ragen.errors import ConfigError, boundary, near_match

ENTRY_POINTS = "ragen.environments"  # the group under which an installed package offers environments of its own


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of an environment, as a person reads it."""

    name: str
    type: str
    default: Any
    doc: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `ragen envs NAME` shows. `example` is the beginning of a real episode: instruction, observation, one step.

    An environment that cannot be made without options of yours has no example.
    """

    name: str
    description: str
    options: tuple[Option, ...]
    example: str


EnvClass = type[gymnasium.Env[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    target: EnvClass | str  # a class, or "module:Class", imported when it is first asked for
    description: str


_entries: dict[str, _Entry] = {}


def register(name: str, target: EnvClass | str, description: str = "") -> None:
    """Make `target`, a TextEnv or any Gymnasium environment of text, known as `name`.

    Registering the same again changes nothing. Raises ValueError for a name that is taken, or that reads as "module:Class".
    """
    if not name or ":" in name:
        raise ValueError(f"environment name {name!r}: must be a name without ':', which marks 'module:Class'")
    entry = _Entry(target=target, description=description)
    if _entries.setdefault(name, entry) != entry:
        raise ValueError(f"environment name {name!r} is already taken by {_entries[name].target}")


def names() -> tuple[str, ...]:
    """The names there are, sorted: registered ones, and those that installed packages offer."""
    return tuple(sorted({*_entries, *_offered()}))


def summary(name: str) -> str:
    """One phrase about an environment; of a built-in one without importing it. Raises ConfigError if it is unknown."""
    if entry := _entries.get(name):
        if entry.description:
            return entry.description
    elif offer := _offered().get(name):
        return f"from the package {offer.dist.name if offer.dist else offer.module}"
    return (load(name).__doc__ or "").strip().partition("\n")[0]


def load(name: str) -> type[TextEnv]:
    """The class behind a registered name, an entry point or "module:Class", imported if need be. Raises ConfigError, one line.

    A Gymnasium environment that is no TextEnv comes back as one (adapters/gymnasium_env.py).
    """
    if entry := _entries.get(name):
        target: Any = entry.target
    elif offer := _offered().get(name):
        target = offer.value
    else:
        target = name
    found: EnvClass = _import(name, target) if isinstance(target, str) else target
    if issubclass(found, TextEnv):
        return found
    from ragen.environments.adapters.gymnasium_env import wrap  # here, since adapters build on this module

    return wrap(found, name)


def portable_name(name: str) -> str:
    """A name under which another process finds the same environment; what was registered here by hand is known here alone.

    Raises ConfigError for a class that cannot be imported, such as one defined in the script that was started.
    """
    target = _entries[name].target if name in _entries else name
    if not isinstance(target, str):
        module = sys.modules.get(target.__module__)
        if getattr(module, target.__qualname__, None) is not target:
            raise ConfigError(f"environment {name!r}: another process cannot import {target.__qualname__}; define it in a module")
        target = f"{target.__module__}:{target.__qualname__}"
    if target.startswith("__main__:"):
        raise ConfigError(
            f"environment {name!r}: another process cannot import the script itself; define it in a module of its own"
        )
    return target


def _import(name: str, target: str) -> EnvClass:
    module_name, colon, class_name = target.partition(":")
    if not colon:
        known = ", ".join(names())
        raise ConfigError(
            f"environment {name!r} is unknown{near_match(name, names())} (known: {known}; or your own as 'module:Class')"
        )
    with boundary(ConfigError, f"environment {name!r} cannot be imported"):
        module = importlib.import_module(module_name)
    found = getattr(module, class_name, None)
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return found
    own = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, gymnasium.Env)]
    classes = [key for key in own if getattr(module, key).__module__ == module.__name__]
    raise ConfigError(
        f"environment {name!r}: {module_name} has no environment class {class_name!r}{near_match(class_name, classes)} "
        f"(its environments: {', '.join(classes) or 'none; subclass gymnasium.Env or ragen.TextEnv'})"
    )


@cache
def _offered() -> dict[str, EntryPoint]:
    """What installed packages offer; a registered name goes before one of theirs."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def configure(name: str, options: Mapping[str, Any], *, where: str = "") -> TextEnvConfig:
    """The environment's Config, checked. Raises ConfigError, beginning with `where` (default: the name)."""
    where = where or name
    config_class = load(name).Config
    fields = {field.name for field in dataclasses.fields(config_class)}
    for key in options:
        if key not in fields:
            listing = ", ".join(sorted(fields)) or "none"
            raise ConfigError(
                f"{where}.{key}: environment {name!r} has no such option{near_match(str(key), fields)} (options: {listing})"
            )
    hints = get_type_hints(config_class)
    values = {key: _typed(value, hints[key], f"{where}.{key}") for key, value in options.items()}
    missing = [
        field.name
        for field in dataclasses.fields(config_class)
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values
    ]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing: environment {name!r} cannot be made without it")
    config = config_class(**values)
    try:
        config.check()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None
    return config


def make(name: str, options: Mapping[str, Any] | None = None, *, render_mode: str | None = None) -> TextEnv:
    """A new environment. `name` is a registered one or "module:Class" of your own. Raises ConfigError, one line."""
    config = configure(name, options or {})
    return load(name)(config) if render_mode is None else load(name)(config, render_mode=render_mode)


def describe(name: str, options: Mapping[str, Any] | None = None) -> Description:
    """Everything a person wants to know about one environment before training on it; the example has `options`.

    Raises ConfigError if the environment is unknown.
    """
    environment = load(name)
    hints = get_type_hints(environment.Config)
    listed = tuple(
        Option(name=f.name, type=_type_name(hints[f.name]), default=_default(f), doc=f.metadata.get("doc", ""))
        for f in dataclasses.fields(environment.Config)
    )
    try:
        env = make(name, options)
    except ConfigError as error:
        return Description(name=name, description=summary(name), options=listed, example=f"(no example: {error})")
    return Description(name=name, description=summary(name), options=listed, example=_example(env))


def _default(field: dataclasses.Field[Any]) -> Any:
    """None where there is none."""
    if field.default is not MISSING:
        return field.default
    return None if field.default_factory is MISSING else field.default_factory()


def _typed(value: Any, hint: Any, where: str) -> Any:
    """`value` if it is of the type `hint` (an int also serves as a float, a bool never as a number); ConfigError otherwise."""
    if hint is Any:
        return value
    allowed = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for each in allowed:
        if get_origin(each) is list and isinstance(value, (list, tuple)):
            (element,) = get_args(each)
            return [_typed(item, element, f"{where}[{i}]") for i, item in enumerate(value)]
        if get_origin(each) is dict and isinstance(value, Mapping):
            return {str(key): item for key, item in value.items()}
    if type(value) in allowed and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    if type(value) is int and float in allowed:
        return float(value)
    if value is None and types.NoneType in allowed:
        return None
    raise ConfigError(f"{where}={value!r}: must be {_type_name(hint)}, not {type(value).__name__}")


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint).replace("typing.", "")


def _example(env: TextEnv) -> str:
    try:
        observation, _ = env.reset(seed=0)
        action = env.oracle_action() or (env.action_names or ("hello",))[0]
        after, reward, *_ = env.step(action)
        return "\n".join((env.instruction, observation, f"> {action}", after, f"(reward {reward:g})"))
    finally:
        env.close()
