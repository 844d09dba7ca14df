"""The configuration that `ragen eval` measures under: the run's own, or the defaults for a model, with the environments named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen.config import load
from ragen.config.schema import Config
from ragen.environments import registry
from ragen.errors import ConfigError, near_match


def load_for_evaluation(
    target: str, run: Path | None, *, names: Sequence[str] = (), options: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Config:
    """Load the config.yaml of the folder `run`; without one, the defaults with `target` as the model's name.

    `names` are tags of the run, groups of conf/env, registered environments or module:Class; none means every tag of the run.
    `options` are KEY=VALUE for each of them. Raises ConfigError as config/load.py does, and if there is nothing to play.
    """
    values = load.read_file(run / "config.yaml") if run else {"model": {"name": target}}
    own = values.get("environments") or {}
    kept: dict[str, Any] = {}
    tokens = []
    for name in names or own:
        tag = name.rpartition(":")[2]  # of module:Class, the class
        if name in own:
            kept[tag] = own[name]
        elif name in load.groups()["env"]:
            tokens.append(f"+env@environments.{tag}={name}")
        elif name in registry.names() or ":" in name:
            kept[tag] = {"name": name}
        else:
            known = sorted({*own, *registry.names()})
            raise ConfigError(f"--env {name}: no such environment (known: {', '.join(known)}){near_match(name, known)}")
        tokens += [f"environments.{tag}.options.{option}" for option in options]
    if not kept and not tokens:
        raise ConfigError(
            f"--env is missing: {target} is no run folder and no checkpoint; to measure a model, say what it plays "
            f"(known: {', '.join(registry.names())}, or module:Class)"
        )
    return load.load_values({**values, "environments": kept}, [*tokens, *overrides], source=str(run or target))
