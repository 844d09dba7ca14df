"""Metrics as data: a key, how values of one step are reduced, and how a step's metrics are gathered.

Every key is defined once in docs/metrics.md; a test compares that page with KEYS.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reducer(StrEnum):
    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    LAST = "last"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One logged series. `what` is a phrase a newcomer understands; `healthy` says what good looks like."""

    key: str
    reducer: Reducer
    what: str
    healthy: str = ""


def reduce(values: Iterable[float], reducer: Reducer) -> float | None:
    """Reduce the finite values; None if there is none, so that an absent value never spoils a mean."""
    finite = [float(v) for v in values if math.isfinite(v)]
    if not finite:
        return None
    match reducer:
        case Reducer.MEAN:
            return sum(finite) / len(finite)
        case Reducer.SUM:
            return sum(finite)
        case Reducer.MAX:
            return max(finite)
        case Reducer.LAST:
            return finite[-1]


def finite_only(values: Mapping[str, float | None]) -> dict[str, float]:
    """Drop absent and non-finite values: every logged number is finite or absent (invariant I4)."""
    return {k: float(v) for k, v in values.items() if v is not None and math.isfinite(v)}


KEYS: tuple[Metric, ...] = (
    # rollout
    Metric(
        key="rollout/success",
        reducer=Reducer.MEAN,
        what="share of trajectories that the environment calls a success",
        healthy="rises; it may stand still for the first few steps while the format is learned",
    ),
    Metric(
        key="rollout/return",
        reducer=Reducer.MEAN,
        what="mean return of a trajectory: environment rewards plus format penalties",
        healthy="rises, with noise from the environment's own chance",
    ),
    Metric(
        key="rollout/reward",
        reducer=Reducer.MEAN,
        what="mean sum of the environment's rewards of a trajectory, without format penalties",
        healthy="rises; the paper's bandit ends near 0.25, the mean of the risky arm",
    ),
    Metric(
        key="rollout/format_penalty",
        reducer=Reducer.MEAN,
        what="mean sum of the format penalties of a trajectory",
        healthy="goes to 0 within the first steps",
    ),
    Metric(
        key="rollout/format_validity",
        reducer=Reducer.MEAN,
        what="share of replies that could be read and held only actions the environment knows",
        healthy="above 0.9 after some ten steps",
    ),
    Metric(
        key="rollout/num_turns",
        reducer=Reducer.MEAN,
        what="mean number of turns (model replies) of a trajectory",
        healthy="falls as the task is solved faster; constant 1 in one-turn tasks",
    ),
    Metric(
        key="rollout/num_actions",
        reducer=Reducer.MEAN,
        what="mean number of actions that reached the environment in a trajectory",
        healthy="at least one per turn once the format is learned",
    ),
    Metric(
        key="rollout/response_tokens",
        reducer=Reducer.MEAN,
        what="mean number of sampled tokens of a trajectory, over all its turns",
        healthy="settles; thoughts that stop being of use get shorter",
    ),
    Metric(
        key="rollout/group_return_std",
        reducer=Reducer.MEAN,
        what="standard deviation of the returns inside a group, mean over groups",
        healthy="well above 0: this spread is what is learned from",
    ),
    Metric(
        key="rollout/group_reward_std",
        reducer=Reducer.MEAN,
        what="standard deviation of the environment's rewards inside a group, mean over groups",
        healthy="takes over from the penalties' spread once the format is learned",
    ),
    Metric(
        key="rollout/group_penalty_std",
        reducer=Reducer.MEAN,
        what="standard deviation of the format penalties inside a group, mean over groups",
        healthy="falls to 0 as the format is learned",
    ),
    Metric(
        key="rollout/zero_spread_frac",
        reducer=Reducer.MEAN,
        what="share of groups whose members all have the same return, which teach a group-normalised algorithm nothing",
        healthy="below 0.5; near 1 only when the task is solved",
    ),
    Metric(
        key="rollout/end/<reason>",
        reducer=Reducer.MEAN,
        what=(
            "share of all trajectories that ended for this reason (solved, failed, truncated, turn_limit, action_limit,"
            " context_limit, parse_failure, environment_error, engine_error, timeout)"
        ),
        healthy="`solved` grows, the limits shrink",
    ),
    Metric(
        key="rollout/failed_frac",
        reducer=Reducer.MEAN,
        what=(
            "share of trajectories lost to broken infrastructure (environment_error, engine_error, timeout), which are "
            "never scored; one that was played anew after that counts as another trajectory"
        ),
        healthy="0",
    ),
    Metric(
        key="rollout/replaced_frac",
        reducer=Reducer.MEAN,
        what="share of the trajectories played to an end that stand in for one lost to broken infrastructure",
        healthy="0",
    ),
    Metric(
        key="rollout/truncated_reply_frac",
        reducer=Reducer.MEAN,
        what="share of replies cut at `max_new_tokens`",
        healthy="near 0 once the format is learned",
    ),
    Metric(
        key="rollout/tokens_per_s",
        reducer=Reducer.LAST,
        what="sampled tokens of the step divided by the seconds of its rollout",
        healthy="steady; it falls with long stragglers and rises with more trajectories at once",
    ),
    Metric(
        key="rollout/<tag>/success",
        reducer=Reducer.MEAN,
        what="`rollout/success` of one environment tag",
        healthy="rises for every tag",
    ),
    Metric(
        key="rollout/<tag>/return",
        reducer=Reducer.MEAN,
        what="`rollout/return` of one environment tag",
        healthy="rises for every tag",
    ),
    Metric(
        key="rollout/<tag>/effective_frac",
        reducer=Reducer.MEAN,
        what="share of the executed actions of one environment tag that changed something",
        healthy="rises: fewer steps into walls",
    ),
    Metric(
        key="rollout/<tag>/info/<name>",
        reducer=Reducer.MEAN,
        what=(
            "mean, at the end of a trajectory, of a number that the environment puts into its info; its page says what it means"
        ),
        healthy="depends on the number",
    ),
    Metric(
        key="rollout/part/<name>",
        reducer=Reducer.MEAN,
        what=(
            "mean sum of one weighted part of the return in a trajectory: `environment`, `format`, or a reward function of "
            "your own"
        ),
        healthy="rises for what you want more of",
    ),
    Metric(
        key="rollout/part_std/<name>",
        reducer=Reducer.MEAN,
        what="standard deviation of that part inside a group, over the members it judged, mean over groups",
        healthy="above 0: a part that is the same for all members teaches nothing",
    ),
    Metric(
        key="rollout/part_abstained_frac/<name>",
        reducer=Reducer.MEAN,
        what="share of trajectories about which that part abstained",
        healthy="what you expect of the function",
    ),
    Metric(
        key="rollout/abstained_frac",
        reducer=Reducer.MEAN,
        what="share of trajectories about which every part with a weight abstained, which are neither scored nor trained on",
        healthy="0, or a small share",
    ),
    # update
    Metric(
        key="update/loss",
        reducer=Reducer.MEAN,
        what="the loss that was minimised: policy loss, minus entropy bonus, plus KL term",
        healthy="no target value: with a clipped surrogate it hovers around 0 and says little",
    ),
    Metric(
        key="update/policy_loss",
        reducer=Reducer.MEAN,
        what="the clipped surrogate part of the loss",
        healthy="hovers around 0, since advantages are centred",
    ),
    Metric(
        key="update/entropy",
        reducer=Reducer.MEAN,
        what="mean entropy of the policy's next-token distribution at sampled positions",
        healthy="falls slowly from its start value and stays clear of 0 while success still rises",
    ),
    Metric(
        key="update/kl_start",
        reducer=Reducer.MEAN,
        what=(
            "how far the policy is from the one at the start of training: KL(policy || start) per sampled token, exact over the "
            "vocabulary, on `trainer.kl_groups` prompts, before the first update of the step"
        ),
        healthy="grows smoothly from 0",
    ),
    Metric(
        key="update/ratio_mean",
        reducer=Reducer.MEAN,
        what="mean probability ratio of a sampled token: policy now against policy that sampled it",
        healthy="within 0.99 to 1.01; 1 up to rounding with a single minibatch and epoch",
    ),
    Metric(
        key="update/ratio_max",
        reducer=Reducer.MAX,
        what="largest probability ratio of a sampled token",
        healthy="below about 10",
    ),
    Metric(
        key="update/clip_low_frac",
        reducer=Reducer.MEAN,
        what="share of sampled tokens whose ratio is below 1 - clip_low with a negative advantage, so that their gradient is cut",
        healthy="below 0.1",
    ),
    Metric(
        key="update/clip_high_frac",
        reducer=Reducer.MEAN,
        what=(
            "share of sampled tokens whose ratio is above 1 + clip_high with a positive advantage, so that their gradient is cut"
        ),
        healthy="below 0.1",
    ),
    Metric(
        key="update/engine_gap_mean",
        reducer=Reducer.MEAN,
        what=(
            "mean difference, as an absolute value, between the learner's and the engine's log-prob of a sampled token, "
            "before the step's first update"
        ),
        healthy="below 1e-4 in float32, below 0.02 in bfloat16",
    ),
    Metric(
        key="update/engine_gap_max",
        reducer=Reducer.MAX,
        what="largest such difference",
        healthy="below 1e-3 in float32, below 0.5 in bfloat16",
    ),
    Metric(
        key="update/grad_norm",
        reducer=Reducer.MEAN,
        what="norm of the gradient over all trained parameters, before clipping, mean over the optimiser steps",
        healthy="steady within a factor of a few",
    ),
    Metric(
        key="update/learning_rate",
        reducer=Reducer.LAST,
        what="learning rate of the step's last optimiser step",
        healthy="rises over `optimizer.warmup_steps`, then constant",
    ),
    Metric(
        key="update/tokens",
        reducer=Reducer.SUM,
        what="sampled tokens that entered the loss: the global denominator of the token mean",
        healthy="number of trajectories times `rollout/response_tokens`",
    ),
    Metric(
        key="update/skipped",
        reducer=Reducer.SUM,
        what="optimiser steps that were skipped, changing nothing, because a loss or gradient was not finite",
        healthy="0",
    ),
    Metric(
        key="update/advantage_std",
        reducer=Reducer.MEAN,
        what="standard deviation of the advantages over the trajectories",
        healthy="near 1 with std normalisation; near 0 means that nothing is learned",
    ),
    Metric(
        key="update/tokens_per_s",
        reducer=Reducer.LAST,
        what="sampled tokens of the step divided by the seconds of its update",
        healthy="steady",
    ),
    # evaluation
    Metric(
        key="eval/<tag>/success",
        reducer=Reducer.LAST,
        what="share of held-out episodes of the tag that the environment calls a success",
        healthy="follows `rollout/success`, mostly above it since the temperature is lower",
    ),
    Metric(
        key="eval/<tag>/return",
        reducer=Reducer.LAST,
        what="mean return of the tag's held-out episodes, format penalties included",
        healthy="follows `rollout/return`",
    ),
    Metric(
        key="eval/<tag>/format_validity",
        reducer=Reducer.LAST,
        what="share of replies in the tag's held-out episodes that could be read and held only known actions",
        healthy="above 0.95 after training",
    ),
    Metric(
        key="eval/<tag>/part/<name>",
        reducer=Reducer.LAST,
        what="mean of a reward function of your own over the tag's held-out episodes that it judged, weighted",
        healthy="rises where it is trained on",
    ),
    # time and memory
    Metric(
        key="time/rollout_s",
        reducer=Reducer.LAST,
        what="seconds of the step spent collecting trajectories",
        healthy="the larger part of a step on most machines",
    ),
    Metric(
        key="time/update_s",
        reducer=Reducer.LAST,
        what="seconds of the step spent on the update",
        healthy="grows with sampled tokens and prompt length",
    ),
    Metric(
        key="time/eval_s",
        reducer=Reducer.LAST,
        what="seconds of the step spent on held-out evaluation; absent where there was none",
        healthy="a small share of the run",
    ),
    Metric(
        key="time/checkpoint_s",
        reducer=Reducer.LAST,
        what="seconds of the step spent saving a checkpoint; absent where none was saved",
        healthy="a small share of the run",
    ),
    Metric(
        key="time/step_s",
        reducer=Reducer.LAST,
        what="seconds of the whole step",
        healthy="the sum of the above and little else",
    ),
    Metric(
        key="memory/peak_gib",
        reducer=Reducer.MAX,
        what="largest resident memory of the process so far",
        healthy="rises during the first steps, then flat",
    ),
)
"""Every series that a run logs, in the order of docs/metrics.md. `<tag>`, `<reason>` and `<name>` stand for a name."""


def find(key: str) -> Metric | None:
    """The definition of a logged key, such as `rollout/<tag>/success` for 'rollout/bandit/success'; None if it has none."""
    for metric in KEYS:
        if metric.key == key:
            return metric
    for metric in KEYS:
        if "<" in metric.key and re.fullmatch(re.sub(r"<\w+>", "[^/]+", metric.key), key):
            return metric
    return None
