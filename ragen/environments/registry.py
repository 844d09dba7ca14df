"""Environments by name: what there is, what its options are, and how to make one."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

import gymnasium

from ragen.environments.import_path import module_of_file
from ragen.environments.option_types import type_name, typed
from ragen.environments.printable import printable
from ragen.environments.text_env import TextEnv, TextEnvConfig
from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary, near_match

MAX_EXAMPLE_CHARS = 8000  # of each text in the example of a description
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
    if dotted := module_of_file(module_name):
        raise ConfigError(f"environment {name!r} is a file's path: write {dotted}:{class_name or 'Class'}")
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
    raise ConfigError(f"environment {name!r}: {_no_class(module, class_name)}")


def _no_class(module: types.ModuleType, name: str) -> str:
    """What to say where a module holds no environment class of that name; of many classes the first ten are listed."""
    own = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, gymnasium.Env)]
    classes = [key for key in own if getattr(module, key).__module__ == module.__name__]
    if name in vars(module):
        found = vars(module)[name]
        kind = "class" if isinstance(found, type) else type(found).__name__
        fault = f"{module.__name__}.{name} is a {kind}, not an environment class"
    else:
        fault = f"{module.__name__} has no environment class {name!r}{near_match(name, classes)}"
    more = f" and {len(classes) - 10} more" if len(classes) > 10 else ""
    return f"{fault} (its environments: {', '.join(classes[:10]) or 'none; subclass gymnasium.Env or ragen.TextEnv'}{more})"


@cache
def _offered() -> dict[str, EntryPoint]:
    """What installed packages offer; a registered name goes before one of theirs."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def configure(name: str, options: Mapping[str, Any], *, where: str = "") -> TextEnvConfig:
    """The environment's Config, checked. Raises ConfigError, beginning with `where` (default: the name)."""
    section, where = where.removesuffix(".options"), where or name
    config_class, hints = _config_class(name)
    fields = {field.name for field in dataclasses.fields(config_class)}
    for key in options:
        if key not in fields:
            listing = ", ".join(sorted(fields)) or "none"
            raise ConfigError(
                f"{where}.{key}: environment {name!r} has no such option{near_match(str(key), fields)} (options: {listing})"
            )
    values = {key: typed(value, hints[key], f"{where}.{key}") for key, value in options.items()}
    missing = [
        field.name
        for field in dataclasses.fields(config_class)
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values
    ]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing: environment {name!r} cannot be made without it")
    try:
        with boundary(ConfigError, f"environment {name!r}: its Config cannot be made"):
            config = config_class(**values)
            config.check()
    except ConfigError as error:
        if _begins_with_one_of(fields, str(error)):
            raise ConfigError(f"{where}.{error}") from None
        raise ConfigError(f"{section}: {error}" if section else str(error)) from None
    return config


def _begins_with_one_of(fields: Iterable[str], message: str) -> bool:
    """True for "field=value: ..." and the like; an error of the environment as a whole begins otherwise."""
    return any(message.startswith((f"{field}=", f"{field}.", f"{field}[", f"{field}:")) for field in fields)


def _config_class(name: str) -> tuple[type[TextEnvConfig], dict[str, Any]]:
    """The environment's Config and the types of its fields. Raises ConfigError, one line, if it is none."""
    config_class: Any = load(name).Config
    if not (
        isinstance(config_class, type) and issubclass(config_class, TextEnvConfig) and dataclasses.is_dataclass(config_class)
    ):
        raise ConfigError(f"environment {name!r}: its Config must be a dataclass that subclasses TextEnvConfig")
    with boundary(ConfigError, f"environment {name!r}: the types of its Config cannot be read"):
        return config_class, get_type_hints(config_class)


def make(name: str, options: Mapping[str, Any] | None = None, *, render_mode: str | None = None) -> TextEnv:
    """A new environment. `name` is a registered one or "module:Class" of your own. Raises ConfigError, one line."""
    config = configure(name, options or {})
    with boundary(ConfigError, f"environment {name!r} cannot be made"):
        return load(name)(config) if render_mode is None else load(name)(config, render_mode=render_mode)


def describe(name: str, options: Mapping[str, Any] | None = None) -> Description:
    """Everything a person wants to know about one environment before training on it; the example has `options`.

    Raises ConfigError if the environment is unknown.
    """
    config_class, hints = _config_class(name)
    listed = tuple(
        Option(name=f.name, type=type_name(hints[f.name]), default=_default(f), doc=f.metadata.get("doc", ""))
        for f in dataclasses.fields(config_class)
    )
    try:
        example = _example(make(name, options))
    except RagenError as error:
        example = f"(no example: {printable(str(error))})"
    return Description(name=name, description=printable(summary(name)), options=listed, example=example)


def _default(field: dataclasses.Field[Any]) -> Any:
    """None where there is none."""
    if field.default is not MISSING:
        return field.default
    return None if field.default_factory is MISSING else field.default_factory()


def _example(env: TextEnv) -> str:
    """The instruction, a first observation and one step; RagenError if the environment cannot be played."""
    with boundary(EnvironmentFailure, "it cannot be played"):
        try:
            observation, _ = env.reset(seed=0)
            action = env.oracle_action() or (env.action_names or ("hello",))[0]
            after, reward, *_ = env.step(action)
            played = (_cut(env.instruction), _cut(observation), f"> {action}", _cut(after), f"(reward {reward:g})")
            return printable("\n".join(played))
        finally:
            env.close()


def _cut(text: str) -> str:
    """A text of the example, no longer than what a model would read of it."""
    dropped = len(text) - MAX_EXAMPLE_CHARS
    return text if dropped <= 0 else f"{text[:MAX_EXAMPLE_CHARS]}\n[... {dropped} more characters]"
