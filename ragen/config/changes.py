"""What differs between two configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragen.config.check import leaves
from ragen.config.schema import Config


@dataclass(frozen=True, kw_only=True)
class Change:
    """One setting with another value; None where a configuration does not have it."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}={self.new} (it was {self.old})"


def changes(old: Config, new: Config) -> list[Change]:
    """Every setting that differs, in the order of the keys."""
    before, after = dict(leaves(old)), dict(leaves(new))
    keys = sorted(before.keys() | after.keys())
    return [Change(key=k, old=before.get(k), new=after.get(k)) for k in keys if before.get(k) != after.get(k)]
