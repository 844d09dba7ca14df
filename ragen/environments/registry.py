"""Environments by name: what there is, what its options are, and how to make one."""

from __future__ import annotations

import dataclasses
import importlib
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ragen.environments.text_env import TextEnv, TextEnvConfig
from ragen.errors import ConfigError, boundary, near_match


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of an environment, as a person reads it."""

    name: str
    type: str
    default: Any
    doc: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `ragen envs NAME` shows. `example` is the beginning of a real episode: instruction, observation, one step."""

    name: str
    description: str
    options: tuple[Option, ...]
    example: str


@dataclass(frozen=True, kw_only=True)
class _Entry:
    target: type[TextEnv] | str  # a class, or "module:Class", imported when it is first asked for
    description: str


_entries: dict[str, _Entry] = {}


def register(name: str, target: type[TextEnv] | str, description: str) -> None:
    """Make `target` known as `name`. Registering the same again changes nothing; taking another's name raises ValueError."""
    entry = _Entry(target=target, description=description)
    if _entries.setdefault(name, entry) != entry:
        raise ValueError(f"environment name {name!r} is already taken by {_entries[name].target}")


def names() -> tuple[str, ...]:
    """The registered names, sorted."""
    return tuple(sorted(_entries))


def load(name: str) -> type[TextEnv]:
    """The class behind a registered name or "module:Class", imported if need be. Raises ConfigError, one line."""
    entry = _entries.get(name)
    target: type[TextEnv] | str = entry.target if entry else name
    if not isinstance(target, str):
        return target
    module_name, colon, class_name = target.partition(":")
    if not colon:
        known = ", ".join(names())
        raise ConfigError(
            f"environment {name!r} is unknown{near_match(name, names())} (known: {known}; or your own as 'module:Class')"
        )
    with boundary(ConfigError, f"environment {name!r} cannot be imported"):
        module = importlib.import_module(module_name)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, TextEnv)):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, TextEnv)]
        raise ConfigError(
            f"environment {name!r}: {module_name} has no TextEnv named {class_name!r}{near_match(class_name, classes)}"
        )
    return found


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
    config = config_class(**values)
    try:
        config.check()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None
    return config


def make(name: str, options: Mapping[str, Any] | None = None) -> TextEnv:
    """A new environment. `name` is a registered one or "module:Class" of a TextEnv of your own. Raises ConfigError, one line."""
    return load(name)(configure(name, options or {}))


def describe(name: str) -> Description:
    """Everything a person wants to know about one environment before training on it. Raises ConfigError if it is unknown."""
    environment = load(name)
    hints = get_type_hints(environment.Config)
    options = tuple(
        Option(name=f.name, type=_type_name(hints[f.name]), default=f.default, doc=f.metadata.get("doc", ""))
        for f in dataclasses.fields(environment.Config)
    )
    entry = _entries.get(name)
    description = entry.description if entry else (environment.__doc__ or "").strip().partition("\n")[0]
    return Description(name=name, description=description, options=options, example=_example(make(name)))


def _typed(value: Any, hint: Any, where: str) -> Any:
    """`value` if it is of the type `hint` (an int also serves as a float, a bool never as a number); ConfigError otherwise."""
    allowed = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if type(value) in allowed and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    if type(value) is int and float in allowed:
        return float(value)
    if value is None and types.NoneType in allowed:
        return None
    raise ConfigError(f"{where}={value!r}: must be {_type_name(hint)}, not {type(value).__name__}")


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _example(env: TextEnv) -> str:
    try:
        observation, _ = env.reset(seed=0)
        action = env.oracle_action() or (env.action_names or ("hello",))[0]
        after, reward, *_ = env.step(action)
        return "\n".join((env.instruction, observation, f"> {action}", after, f"(reward {reward:g})"))
    finally:
        env.close()
