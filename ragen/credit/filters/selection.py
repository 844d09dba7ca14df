"""A step's groups in, those to train on out, with what each of them weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from ragen.credit.filters.config import FilterConfig
from ragen.credit.filters.rules import min_p, ranked, top_k, top_p, top_p_softmax
from ragen.credit.filters.scores import SCORES, members_of, return_variance, spread_ratio
from ragen.records import Group, Sample

WEIGHT_FLOOR = 1e-6  # added to the divisor of weighting=max, as published


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the filter decided about G groups. `kept` are positions, ascending."""

    kept: tuple[int, ...]
    weights: tuple[float, ...]  # per kept group, without the loss scale; 1 unless weighed
    loss_scale: float = 1.0  # of all advantages
    num_wanted: int  # groups that the step is to be trained on
    scores: tuple[float | None, ...] = ()  # [G], None where no member was scored; empty if the filter is off
    num_zero_spread: int = 0  # groups dropped because their members all have the same return
    spread_ratio: float = 0.0
    is_engaged: bool = False  # whether the rule was applied

    @property
    def num_effective(self) -> float:
        """How many equally weighted groups would average out chance as well as these: (sum w)^2 / sum w^2."""
        squares = math.fsum(w * w for w in self.weights)
        return math.fsum(self.weights) ** 2 / squares if squares else 0.0


def select(groups: Sequence[Group], config: FilterConfig, *, num_planned: int) -> Selection:
    """Choose among all groups that a step has played, `num_planned` of them before any refill.

    Groups without a scored trajectory are no candidates. Zero-spread groups go first if they are to go; the rule then chooses
    among the rest, if the groups differ enough for it to engage; of equal scores, the group with the lower number. More groups
    than wanted are never kept: of those, the best.
    Raises TrainingError naming a trajectory whose return is not finite. An empty result is a result.
    """
    if config.is_off:
        everything = tuple(range(len(groups)))
        return Selection(kept=everything, weights=(1.0,) * len(groups), num_wanted=num_planned)
    members = [members_of(group) for group in groups]
    numbers = [group.trajectories[0].key.group if group.trajectories else -1 for group in groups]
    candidates = sorted((i for i, each in enumerate(members) if each.returns), key=numbers.__getitem__)  # breaks ties
    scores = {i: SCORES[config.score](members[i]) for i in candidates}
    ratio = spread_ratio([return_variance(members[i]) for i in candidates])
    is_engaged = config.rule != "all" and ratio >= config.engage_ratio
    num_wanted = config.num_wanted(num_planned) if is_engaged else num_planned
    eligible = [i for i in candidates if members[i].has_spread or not config.drop_zero_spread]
    kept = eligible
    if is_engaged:
        kept = [eligible[at] for at in _apply_rule([scores[i] for i in eligible], config, num_wanted)]
    if len(kept) > num_wanted:
        best = ranked([scores[i] for i in kept], largest=config.prefer == "largest")
        kept = [kept[at] for at in best[:num_wanted]]
    kept = sorted(kept)
    return Selection(
        kept=tuple(kept),
        weights=tuple(group_weights([scores[i] for i in kept], config.weighting)),
        loss_scale=loss_scale(len(kept), num_planned, config.loss_scale),
        num_wanted=num_wanted,
        scores=tuple(scores.get(i) for i in range(len(groups))),
        num_zero_spread=len(candidates) - len(eligible),
        spread_ratio=ratio,
        is_engaged=is_engaged,
    )


def _apply_rule(scores: Sequence[float], config: FilterConfig, num_wanted: int) -> list[int]:
    largest = config.prefer == "largest"
    assert config.value is not None, config.rule
    match config.rule:
        case "top_frac" | "top_k":
            return top_k(scores, num_wanted, largest=largest)
        case "top_p":
            return top_p(scores, config.value, largest=largest, slack=config.slack)
        case "top_p_softmax":
            return top_p_softmax(scores, config.value, largest=largest)
        case "min_p":
            return min_p(scores, config.value, largest=largest)
    raise ValueError(f"rule={config.rule!r}: unknown")


def group_weights(scores: Sequence[float], weighting: str) -> list[float]:
    """What each kept group weighs, from scores that are not negative.

    max: s / (max s + 1e-6), so that no group weighs more than without weighting. Source: RAGEN-2's code, "soft reweighting", by
    std. mean: s / mean s, so that groups weigh 1 on average; ours. Scores that are all 0 weigh 0: there is nothing in them.
    """
    if weighting == "none":
        return [1.0] * len(scores)
    if not any(scores):
        return [0.0] * len(scores)
    divisor = max(scores) + WEIGHT_FLOOR if weighting == "max" else fmean(scores)
    return [score / divisor for score in scores]


def loss_scale(num_kept: int, num_planned: int, kind: str) -> float:
    """The factor of all advantages: 1, the kept fraction rho = kept / planned groups (linear), or its square root.

    Source: RAGEN-2's code. Differs from it: groups that refill has played do not make rho smaller; a full batch has rho = 1.
    """
    share = num_kept / num_planned if num_planned else 1.0
    match kind:
        case "none":
            return 1.0
        case "linear":
            return share
        case "sqrt":
            return math.sqrt(share)
    raise ValueError(f"loss_scale={kind!r}: must be none, linear or sqrt")


def weigh(samples: Sequence[Sample], groups: Sequence[Group], selection: Selection) -> list[Sample]:
    """The samples of the kept groups with their advantages times weight and loss scale; the same samples where that is 1.

    After every normalisation, so that none of them divides it away. Only advantages: the targets of a critic stay what they are.
    """
    factors = {
        groups[position].trajectories[0].key.group: weight * selection.loss_scale
        for position, weight in zip(selection.kept, selection.weights, strict=True)
        if weight * selection.loss_scale != 1.0
    }
    return [
        replace(sample, advantages=sample.advantages * np.float32(factors[sample.trajectory.key.group]))
        if sample.trajectory.key.group in factors
        else sample
        for sample in samples
    ]
