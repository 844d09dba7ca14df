"""What kind of policy `ragen eval TARGET` names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ragen.errors import ConfigError, near_match


class Kind(StrEnum):
    """What kind of policy a target is."""

    MODEL = "model"  # a run, a checkpoint, or a model by name: the torch engine
    OPENAI = "openai"  # openai:MODEL, over any server that speaks OpenAI's protocol
    ANTHROPIC = "anthropic"  # anthropic:MODEL
    RANDOM = "random"
    ORACLE = "oracle"
    SCRIPTED = "scripted"  # scripted:FILE or scripted:module:function
    HUMAN = "human"

    @property
    def is_server(self) -> bool:
        return self in (Kind.OPENAI, Kind.ANTHROPIC)

    @property
    def samples(self) -> bool:
        """Whether its replies are drawn, so that a temperature has a meaning."""
        return self is Kind.MODEL or self.is_server


def kind_of(target: str) -> tuple[Kind, str]:
    """What a target is, and its name without the kind. Raises ConfigError for a kind that there is not."""
    if target in (Kind.RANDOM, Kind.ORACLE, Kind.HUMAN):
        return Kind(target), target
    prefix, colon, name = target.partition(":")
    if not colon or Path(target).exists():
        return Kind.MODEL, target
    known = tuple(map(str, (Kind.OPENAI, Kind.ANTHROPIC, Kind.SCRIPTED)))
    if prefix not in known:
        raise ConfigError(f"{target}: {prefix!r} must be one of {', '.join(known)}{near_match(prefix, known)}")
    if not name:
        what = "FILE, or scripted:module:function" if prefix == Kind.SCRIPTED else "MODEL"
        raise ConfigError(f"{target} names nothing; write {prefix}:{what}")
    return Kind(prefix), name
