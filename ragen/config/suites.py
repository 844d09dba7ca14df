"""Suites as a person names them: a file of conf/suite, or a YAML file of one's own (docs/suites.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from ragen.config.environments import named
from ragen.config.explain import one_line
from ragen.config.schema import Config
from ragen.errors import ConfigError, boundary, near_match
from ragen.evaluation.suites import GREEDY, Setting, Suite
from ragen.rollout.state_manager import EnvironmentConfig

_FOLDER = files("ragen").joinpath("conf", "suite")
_LIMITS = tuple(field.name for field in fields(EnvironmentConfig) if field.name not in ("name", "num_groups", "options"))
SETTING = ("num_episodes", "samples_per_seed", "temperature", "top_p", "top_k")  # of EvaluationConfig
_ENTRY = ("env", *_LIMITS, "options")


def suites() -> dict[str, str]:
    """The shipped suites, each with what its file says of it first."""
    found = sorted((Path(file.name).stem, file.read_text(encoding="utf-8")) for file in _FOLDER.iterdir())
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in found}


def load_suite(target: str) -> Suite:
    """A shipped suite by name, or one of your own by the path of its file.

    Raises ConfigError, in one line, for a suite that is not there or that cannot be played.
    """
    if target in suites():
        return _suite(target, _FOLDER.joinpath(f"{target}.yaml").read_text(encoding="utf-8"), f"suite {target!r}")
    path = Path(target)
    if path.suffix not in (".yaml", ".yml"):
        known = ", ".join(suites())
        raise ConfigError(
            f"there is no suite {target!r}{near_match(target, suites())} (suites: {known}; or the path of a YAML file)"
        )
    if not path.is_file():
        raise ConfigError(f"{target}: no such file (suites: {', '.join(suites())})")
    with boundary(ConfigError, target):
        text = path.read_text(encoding="utf-8")
    return _suite(path.stem, text, target)


def _suite(name: str, text: str, source: str) -> Suite:
    from omegaconf import OmegaConf

    with boundary(ConfigError, source):
        content: Any = OmegaConf.to_container(OmegaConf.create(text))
    sections = _mapping(content, source, allowed=("environments", "settings"))
    environments = _mapping(sections.get("environments") or {}, f"{source}: environments")
    settings = _mapping(sections.get("settings") or {}, f"{source}: settings")
    suite = Suite(
        name=name,
        environments={str(tag): _environment(str(tag), entry, source) for tag, entry in environments.items()},
        settings=tuple(_setting(str(each), values, source) for each, values in settings.items()),
    )
    suite.check(source)
    return suite


def _environment(tag: str, entry: Any, source: str) -> EnvironmentConfig:
    """`sokoban_simple`, or {env: sokoban_simple, max_turns: 3, options: {...}}: what is given replaces what the tag says."""
    where = f"{source}: environments.{tag}"
    own = _mapping({"env": entry} if isinstance(entry, str) else entry, where, allowed=_ENTRY)
    if not isinstance(own.get("env"), str):
        raise ConfigError(f"{where}.env: must name an environment; `ragen envs` lists them")
    try:
        _, settings = named(own.pop("env"))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    options = {**settings.get("options", {}), **_mapping(own.pop("options", {}), f"{where}.options")}
    return _typed({"environments": {tag: {**settings, **own, "options": options}}}, source).environments[tag]


def _setting(name: str, values: Any, source: str) -> Setting:
    own = _mapping(values, f"{source}: settings.{name}", allowed=("mode", *SETTING))
    mode = str(own.pop("mode", ""))
    temperature = {"temperature": 0.0} if mode == GREEDY else {}
    evaluation = _typed({"evaluation": {**temperature, **own}}, f"{source}: settings.{name}").evaluation
    return Setting(name=name, mode=mode, evaluation=evaluation)


def _mapping(value: Any, where: str, *, allowed: Collection[str] | None = None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}={value}: must hold keys and values")
    for key in value:
        if allowed is not None and key not in allowed:
            raise ConfigError(f"{where}: {key}: must be one of {', '.join(allowed)}{near_match(str(key), allowed)}")
    return dict(value)


def _typed(values: Mapping[str, Any], source: str) -> Config:
    """The values in a whole configuration: each of the type that its key has there. What is missing has its default."""
    from omegaconf import OmegaConf

    with one_line(source):
        return cast(Config, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), values)))
