"""The whole configuration as one typed tree, and what its keys are called.

Every section is a dataclass that lives beside what it configures; this file only gathers them. Defaults live in those classes,
values that differ per recipe in conf/*.yaml.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from ragen.algorithms.config import AlgorithmConfig
from ragen.credit.rewards import RewardsConfig
from ragen.engines.config import EngineConfig
from ragen.engines.server_config import ServerConfig
from ragen.errors import near_match
from ragen.evaluation.config import EvaluationConfig
from ragen.models.config import ModelConfig
from ragen.rollout.config import RolloutConfig
from ragen.rollout.state_manager import EnvironmentConfig
from ragen.training.config import OptimizerConfig, TrainerConfig
from ragen.training.trackers import TrackingConfig

TAG = "<tag>"  # stands for the free name under which an environment is configured


@dataclass(kw_only=True)
class Config:
    """One run. Checked as a whole by `ragen.config.check`."""

    name: str = "run"  # of the run folder
    seed: int = 0  # every random stream of the run is a function of it
    output_dir: str = "runs"  # the run folder is <output_dir>/<name>
    model: ModelConfig = field(default_factory=ModelConfig)
    environments: dict[str, EnvironmentConfig] = field(default_factory=dict)  # by tag; metrics carry the tag
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    rewards: RewardsConfig = field(default_factory=RewardsConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


@dataclass(frozen=True, kw_only=True)
class Key:
    """One setting, as `ragen train --help` lists it."""

    name: str  # dotted
    kind: str  # what values it takes, in words
    default: Any
    what: str  # the comment beside its definition


def all_keys(section: type = Config, prefix: str = "") -> Iterator[Key]:
    """Every setting of the tree, in order of definition."""
    hints, comments = typing.get_type_hints(section), _comments(section)
    for f in fields(section):
        name, hint = prefix + f.name, hints[f.name]
        if is_dataclass(hint):
            yield from all_keys(typing.cast(type, hint), f"{name}.")
        elif (element := _section_by_tag(hint)) is not None:
            yield from all_keys(element, f"{name}.{TAG}.")
        else:
            default = f.default if f.default_factory is MISSING else f.default_factory()
            yield Key(name=name, kind=in_words(hint), default=default, what=comments.get(f.name, ""))


def type_of(name: str) -> Any:
    """The type annotation at a dotted name (a dataclass for a section), or None if there is no such key."""
    hint: Any = Config
    for part in name.split("."):
        if is_dataclass(hint):
            hint = typing.get_type_hints(hint).get(part)
        elif typing.get_origin(hint) is dict and part:
            hint = typing.get_args(hint)[1]  # below a dictionary every key is free
        elif hint is not Any:
            return None
    return hint


def unknown(name: str) -> str:
    """What to say of a key that is not there: with the nearest one, by the whole name or else by its last part."""
    return f"there is no key {name!r}{_nearest(name)}"


def _nearest(name: str) -> str:
    parts = name.split(".")
    tag = parts[1] if parts[0] == "environments" and len(parts) > 2 else TAG
    names = [key.name.replace(TAG, tag) for key in all_keys()]
    if clause := near_match(name, names):
        return clause
    by_last: dict[str, str] = {}  # of equal last parts the shallowest, then the first
    for known in names:
        last = known.rpartition(".")[2]
        if last not in by_last or known.count(".") < by_last[last].count("."):
            by_last[last] = known
    for last, known in by_last.items():
        if near_match(parts[-1], [last]):
            return f"; did you mean {known!r}?"
    return ""


def in_words(hint: Any) -> str:
    """What values a type annotation takes, as a person would say it."""
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if is_dataclass(hint):
        return "a section of keys"
    if hint in plain:
        return plain[hint]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join("null" if arg is type(None) else in_words(arg) for arg in typing.get_args(hint))
    if typing.get_origin(hint) is list:
        return f"a list, each {in_words(typing.get_args(hint)[0])}, written [a,b]"
    return "a mapping"


def default_in_words(key: Key) -> str:
    """The default as it would be typed on the command line."""
    match key.default:
        case None:
            return "null"
        case bool():
            return str(key.default).lower()
        case list():
            return "[" + ",".join(str(value) for value in key.default) + "]"
        case _:
            return str(key.default)


def _section_by_tag(hint: Any) -> type | None:
    """The dataclass below a dictionary of sections, if it is one."""
    if typing.get_origin(hint) is dict and is_dataclass(element := typing.get_args(hint)[1]):
        return typing.cast(type, element)
    return None


def _comments(section: type) -> dict[str, str]:
    """The comment at the end of each field's line: written where the setting is defined, so it stays true."""
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", inspect.getsource(section), flags=re.MULTILINE))
