"""The configuration that `ragen eval` measures under: the run's own, or the defaults for a model, with the environments named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragen.config import load
from ragen.config.environments import named
from ragen.config.schema import Config
from ragen.config.suites import SETTING, load_suite
from ragen.environments import registry
from ragen.errors import ConfigError
from ragen.evaluation.kinds import Kind, kind_of
from ragen.evaluation.measurements import measurements_of


def load_for_evaluation(
    target: str, run: Path | None, *, names: Sequence[str] = (), options: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Config:
    """Load the config.yaml of the folder `run`; without one, the defaults, with `target` as the model's name if it is a model.

    `names` are tags of the run, shipped tags, registered environments or module:Class; none means every tag of the run.
    `options` are KEY=VALUE for each of them. Raises ConfigError as config/load.py does, and if there is nothing to play.
    """
    values = _values(target, run)
    own = values.get("environments") or {}
    kept: dict[str, Any] = {}
    tokens = []
    for name in names or own:
        tag, settings = (name, own[name]) if name in own else named(name)
        kept[tag] = settings
        tokens += [f"environments.{tag}.options.{option}" for option in options]
    if not kept:
        raise ConfigError(
            f"--env is missing: {target} is no run folder and no checkpoint; to measure it, say what it plays "
            f"(known: {', '.join(registry.names())}, or module:Class)"
        )
    return load.load_values({**values, "environments": kept}, [*tokens, *overrides], source=str(run or target))


def load_for_suite(target: str, run: Path | None, suite: str, *, overrides: Sequence[str] = ()) -> list[tuple[str, Config]]:
    """For each setting of a suite, the kind of its result and the configuration that it is measured under.

    Environments and sampling are the suite's, whatever a run has of them; the rest is the run's. Raises ConfigError for a suite
    that is not there, and for an override of what the suite says.
    """
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key.startswith(_SUITE_SAYS):
            raise ConfigError(
                f"override {override!r}: has no effect with --suite, which says what is played and how it is sampled"
            )
    values = _values(target, run)
    kind = Kind.MODEL if run else kind_of(target)[0]
    loaded = []
    for each in measurements_of(load_suite(suite), samples=kind.samples):
        evaluation = {**(values.get("evaluation") or {}), **{key: getattr(each.evaluation, key) for key in SETTING}}
        environments = {tag: asdict(environment) for tag, environment in each.environments.items()}
        content = {**values, "environments": environments, "evaluation": evaluation}
        loaded.append((each.kind, load.load_values(content, overrides, source=str(run or target))))
    return loaded


_SUITE_SAYS = ("env", "evaluation.temperature", "evaluation.top_")


def _values(target: str, run: Path | None) -> dict[str, Any]:
    """What is configured before anything is said about the evaluation."""
    if run is not None:
        return load.read_file(run / "config.yaml")
    return {"model": {"name": target}} if kind_of(target)[0] is Kind.MODEL else {}
