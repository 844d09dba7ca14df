"""Any class that is a gymnasium.Env as a TextEnv, unchanged: `env=module:Class` on the command line.

The arguments of its constructor become options beside those of ReadingConfig. Described in docs/environments/gymnasium.md.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, get_type_hints

from ragen.environments.adapters.outside import OutsideAdapter, OutsideEnv, ReadingConfig, check_readable
from ragen.environments.adapters.trial import try_out
from ragen.environments.option_types import ALLOWED, can_be_given, type_name
from ragen.environments.text_env import TextEnv
from ragen.errors import ConfigError, boundary

_PLAIN = (bool, int, float, str)
_READING = tuple(field.name for field in dataclasses.fields(ReadingConfig))
_wrapped: dict[tuple[type[OutsideEnv], str], type[TextEnv]] = {}
_probed: set[tuple[type[TextEnv], str]] = set()  # class and options that made an environment once: making it may be slow


@dataclass(kw_only=True)
class ConstructorConfig(ReadingConfig):
    """Base of the options that `wrap` makes from a constructor. A constructor's argument goes before an option of that name."""

    _wrapped: ClassVar[type[WrappedEnv]]
    _signature: ClassVar[inspect.Signature]  # the arguments that are options

    def check(self) -> None:
        """Raises ConfigError for options that the environment cannot be made with, or an action space that has no names."""
        reading = _reading(self)
        reading.check()
        key = (self._wrapped, repr(self))
        if key in _probed:
            return
        try_out(self._probe, f"environment {self._wrapped.name!r} cannot be made")
        _probed.add(key)

    def _probe(self) -> None:
        outside = _construct(self)
        try:
            check_readable(outside, _reading(self))
        finally:
            outside.close()

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _rebuild_config, (self._wrapped.outside_class, self._wrapped.name, values)


class WrappedEnv(OutsideAdapter):
    """Base of the classes that `wrap` makes. They and their instances can be pickled whenever the outside environment can."""

    outside_class: ClassVar[type[OutsideEnv]]
    name: ClassVar[str]
    config: ConstructorConfig

    def _make_outside(self) -> OutsideEnv:
        return _construct(self.config)

    def _read_config(self) -> ReadingConfig:
        return _reading(self.config)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_env, (self.outside_class, self.name), self.__dict__


def wrap(cls: type[OutsideEnv], name: str) -> type[TextEnv]:
    """`cls` as a TextEnv. The same class and name give the same type. `name` is how errors call it.

    Raises ConfigError if an argument of its constructor cannot be an option.
    """
    if (cls, name) not in _wrapped:
        _wrapped[cls, name] = _wrap(cls, name)
    return _wrapped[cls, name]


def _wrap(cls: type[OutsideEnv], name: str) -> type[TextEnv]:
    signature = _option_signature(cls, name)
    hints = _hints(cls)
    for parameter in signature.parameters.values():
        hint = _option_type(parameter, hints)
        if parameter.default is inspect.Parameter.empty and not can_be_given(hint):
            raise ConfigError(
                f"environment {name!r}: its constructor's argument {parameter.name!r} must be given, but its type "
                f"{type_name(hint)} is none that an option can have ({ALLOWED}); give it a default"
            )
    wrapped: Any = type(cls.__name__, (WrappedEnv,), {"__doc__": cls.__doc__, "outside_class": cls, "name": name})
    options = [(p.name, _option_type(p, hints), _option_field(p)) for p in signature.parameters.values()]
    config = dataclasses.make_dataclass(
        f"{cls.__name__}Options",
        options,
        bases=(ConstructorConfig,),
        namespace={"_wrapped": wrapped, "_signature": signature},
        kw_only=True,
    )
    wrapped.Config = config
    made: type[TextEnv] = wrapped
    return made


def _rebuild_env(cls: type[OutsideEnv], name: str) -> TextEnv:
    wrapped = wrap(cls, name)
    return wrapped.__new__(wrapped)


def _rebuild_config(cls: type[OutsideEnv], name: str, values: dict[str, Any]) -> Any:
    return wrap(cls, name).Config(**values)


def _construct(config: ConstructorConfig) -> OutsideEnv:
    cls, signature = config._wrapped.outside_class, config._signature
    arguments = OrderedDict((name, getattr(config, name)) for name in signature.parameters)
    bound = inspect.BoundArguments(signature, copy.deepcopy(arguments))
    render = {"render_mode": "ansi"} if _takes_ansi(cls) and _reading(config).observation != "values" else {}
    with boundary(ConfigError, f"environment {config._wrapped.name!r} cannot be made"):
        return cls(*bound.args, **bound.kwargs, **render)


def _reading(config: ConstructorConfig) -> ReadingConfig:
    """Those of our options whose names the constructor does not claim; the others stay at their defaults."""
    return ReadingConfig(**{name: getattr(config, name) for name in _READING if name not in config._signature.parameters})


def _takes_ansi(cls: type[OutsideEnv]) -> bool:
    modes = (cls.metadata or {}).get("render_modes") or ()
    return "ansi" in modes and "render_mode" in _parameters(cls)


def _parameters(cls: type[OutsideEnv]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(cls).parameters)
    except ValueError:  # written in C, without a signature
        return {}


def _option_signature(cls: type[OutsideEnv], name: str) -> inspect.Signature:
    """The constructor's signature without *args, **kwargs and the render mode, which is ours to choose."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    kept = [p for p in _parameters(cls).values() if p.kind not in starred and p.name != "render_mode"]
    for parameter in kept:
        if hasattr(ConstructorConfig, parameter.name) and parameter.name not in _READING:
            raise ConfigError(f"environment {name!r}: its constructor's argument {parameter.name!r} must have another name")
    return inspect.Signature(kept)


def _hints(cls: type[OutsideEnv]) -> dict[str, Any]:
    try:
        return get_type_hints(cls.__init__)
    except (NameError, AttributeError, TypeError):  # an annotation that exists for the type checker alone
        return {}


def _option_type(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    """The annotation, else the type of a plain default, else Any."""
    if parameter.name in hints:
        return hints[parameter.name]
    return type(parameter.default) if type(parameter.default) in _PLAIN else Any


def _option_field(parameter: inspect.Parameter) -> Any:
    doc = {"doc": "argument of its constructor"}
    default = parameter.default
    if default is inspect.Parameter.empty:
        return dataclasses.field(default=MISSING, metadata=doc)
    if getattr(type(default), "__hash__", None) is None:  # a list, dict, set or array: each instance gets its own
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=doc)
    return dataclasses.field(default=default, metadata=doc)
