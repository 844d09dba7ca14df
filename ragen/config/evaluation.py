"""The configuration that `ragen eval` measures under: the run's own, or the defaults for a model, with the environments named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.config import load
from ragen.config.environments import named
from ragen.config.schema import Config
from ragen.environments import registry
from ragen.errors import ConfigError


def load_for_evaluation(
    target: str, run: Path | None, *, names: Sequence[str] = (), options: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Config:
    """Load the config.yaml of the folder `run`; without one, the defaults with `target` as the model's name.

    `names` are tags of the run, shipped tags, registered environments or module:Class; none means every tag of the run.
    `options` are KEY=VALUE for each of them. Raises ConfigError as config/load.py does, and if there is nothing to play.
    """
    values = load.read_file(run / "config.yaml") if run else {"model": {"name": target}}
    own = values.get("environments") or {}
    kept: dict[str, Any] = {}
    tokens = []
    for name in names or own:
        tag, settings = (name, own[name]) if name in own else named(name)
        kept[tag] = settings
        tokens += [f"environments.{tag}.options.{option}" for option in options]
    if not kept:
        raise ConfigError(
            f"--env is missing: {target} is no run folder and no checkpoint; to measure a model, say what it plays "
            f"(known: {', '.join(registry.names())}, or module:Class)"
        )
    return load.load_values({**values, "environments": kept}, [*tokens, *overrides], source=str(run or target))
