"""The grid of algorithms: its axes, few rows that hold every pair of values, and a trainer without the rest of a run."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.console import Console

from ragen.algorithms.config import AGGREGATIONS, AlgorithmConfig, KlConfig, LossConfig, OverlongConfig
from ragen.assembly import assemble
from ragen.config.schema import Config
from ragen.credit.config import READS, AdvantageConfig
from ragen.credit.filters import FilterConfig
from ragen.credit.rewards import RewardsConfig
from ragen.records import Trajectory
from ragen.rollout.context_config import ContextConfig
from ragen.training.display import Display
from ragen.training.trackers import Trackers
from ragen.training.trainer import Trainer

LOSSES = {
    "ppo": {"dual_clip": 3.0},
    "gspo": {"clip_low": 0.01, "clip_high": 0.01},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
    "sapo": {},
}
FILTERS = {
    "off": FilterConfig(),
    "top_frac": FilterConfig(rule="top_frac", value=0.5, loss_scale="linear"),
    "top_k": FilterConfig(rule="top_k", value=2, score="mean", prefer="smallest", loss_scale="sqrt"),
    "top_p": FilterConfig(rule="top_p", value=0.9, score="range", refill_frac=0.5),
    "top_p_softmax": FilterConfig(rule="top_p_softmax", value=0.5, score="entropy", engage_ratio=0.01),
    "min_p": FilterConfig(rule="min_p", value=0.3, score="variance", weighting="max"),
    "drop_zero_spread": FilterConfig(drop_zero_spread=True, weighting="mean", refill_frac=1.0),
}
CONTEXTS = {
    "full": ContextConfig(),
    "window": ContextConfig(mode="window", window=1),
    "single_turn": ContextConfig(mode="single_turn", window=2),
    "drop": ContextConfig(overflow="drop", max_context_tokens=350),  # one turn fits, with the next prompt, but not two
    "summarise": ContextConfig(overflow="summarise", summarise_every=1, summary_tokens=3),
}
KLS = {
    "none": KlConfig(),
    "loss": KlConfig(coef=0.1, estimator="k3"),
    "adaptive": KlConfig(coef=0.1, estimator="unbiased", target=0.01),
    "reward": KlConfig(coef=0.1, place="reward", estimator="k1", target=0.01),
}
AXES: dict[str, tuple[str, ...]] = {
    "estimator": tuple(READS),
    "filter": tuple(FILTERS),
    "context": tuple(CONTEXTS),
    "loss": tuple(LOSSES),
    "aggregation": AGGREGATIONS,
    "kl": tuple(KLS),
    "overlong": ("train", "penalty"),
    "correction": ("off", "on"),
    "length_weight": ("off", "on"),
    "sampling": ("whole", "cut"),
    "tuning": ("full", "lora"),  # with a critic: on the policy's trunk, or on an adapter of its own
}
# What cannot be combined, and a part of the reason that is given.
REFUSED = {
    (("aggregation", "seq_mean_token_mean"), ("length_weight", "on")): "divides by the length twice",
    (("correction", "on"), ("sampling", "cut")): "of a cut distribution cannot be compared",
}

Cell = tuple[str, str]  # axis, value
Row = dict[str, str]  # value by axis


def pairs_of(row: Mapping[str, str], axes: Sequence[str]) -> Iterator[tuple[Cell, Cell]]:
    """Every pair of values in a row, in the order of the axes."""
    present = [(axis, row[axis]) for axis in axes if axis in row]
    return combinations(present, 2)


def covering_rows(axes: Mapping[str, Sequence[str]], refused: Sequence[tuple[Cell, Cell]] = ()) -> list[Row]:
    """Rows with one value of each axis that hold every pair of values but the refused ones, and none of those.

    Greedy: a row begins with a pair that is still missing, then each axis takes the value that adds most, of those allowed.
    """
    names = list(axes)
    every = [{a: x, b: y} for a, b in combinations(names, 2) for x in axes[a] for y in axes[b]]
    missing = dict.fromkeys(pair for row in every for pair in pairs_of(row, names) if pair not in refused)
    rows: list[Row] = []
    while missing:
        row: Row = dict(next(iter(missing)))
        for axis in names:
            if axis not in row:
                row[axis] = max(axes[axis], key=_gain(row, axis, names, missing, refused))
        for pair in pairs_of(row, names):
            missing.pop(pair, None)
        rows.append({name: row[name] for name in names})
    return rows


def _gain(
    row: Row, axis: str, names: Sequence[str], missing: Mapping[tuple[Cell, Cell], None], refused: Sequence[tuple[Cell, Cell]]
) -> Callable[[str], int]:
    def gain(value: str) -> int:
        pairs = list(pairs_of({**row, axis: value}, names))
        return -1 if any(pair in refused for pair in pairs) else sum(pair in missing for pair in pairs)

    return gain


def config_of(row: Mapping[str, str], base: Config) -> Config:
    """The configuration that a row stands for, on the environments and the model of `base`."""
    correction = {"tis_cap": 2.0, "tis_mask_low": 0.5, "tis_mask_high": 2.0} if row["correction"] == "on" else {}
    length_weight = row["length_weight"] == "on"
    aggregation, loss = row["aggregation"], row["loss"]
    algorithm = AlgorithmConfig(
        advantage=AdvantageConfig(estimator=row["estimator"]),
        filter=FILTERS[row["filter"]],
        loss=LossConfig(name=loss, aggregation=aggregation, length_weight=length_weight, **LOSSES[loss], **correction),
        kl=KLS[row["kl"]],
        overlong=OverlongConfig(rule="penalty", buffer=3, price=0.1) if row["overlong"] == "penalty" else OverlongConfig(),
    )
    sampling = replace(base.rollout.sampling, top_p=0.9) if row["sampling"] == "cut" else base.rollout.sampling
    return replace(
        base,
        algorithm=algorithm,
        rewards=RewardsConfig(functions={"letters": "tests.support.grid:letters"}),
        rollout=replace(base.rollout, context=CONTEXTS[row["context"]], sampling=sampling),
        model=replace(base.model, tuning="full") if row["tuning"] == "full" else replace(base.model, tuning="lora", lora_rank=4),
    )


def letters(trajectory: Trajectory) -> list[float]:
    """A reward per turn that a random model earns unequally: between 0 and 1, from the letters of the reply."""
    return [sum(map(ord, turn.reply.text)) % 8 / 8 for turn in trajectory.turns]


@contextmanager
def trainer_of(config: Config, folder: Path) -> Iterator[Trainer]:
    """The trainer of a run that is never begun: no files but its rollouts, no evaluation, no checkpoint."""
    display = Display(Console(file=io.StringIO(), width=140))
    trackers = Trackers(config.tracking, warn=print)
    trainer: Any
    trainer, _ = assemble(config, folder, None, trackers, display)
    try:
        yield trainer
    finally:
        trainer.environments.close()
