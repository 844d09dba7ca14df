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
        what=(
            "share of replies that kept to the format and held only actions the environment knows; what grammar=lenient "
            "forgives counts as a fault here"
        ),
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
        what="mean number of sampled tokens of a trajectory, over all its turns, summaries included",
        healthy="settles; thoughts that stop being of use get shorter",
    ),
    Metric(
        key="rollout/num_segments",
        reducer=Reducer.MEAN,
        what="mean number of token sequences of a trajectory, each of which is a training sample",
        healthy="1 where turns are appended to each other; else at most `rollout/num_turns` plus `rollout/num_summaries`",
    ),
    Metric(
        key="rollout/num_summaries",
        reducer=Reducer.MEAN,
        what="mean number of summaries that the model writes in a trajectory",
        healthy="0 unless `rollout.context.overflow=summarise`; then as many as the lengths of episodes ask for",
    ),
    Metric(
        key="rollout/summary_tokens",
        reducer=Reducer.MEAN,
        what="mean number of tokens that a trajectory spends on summaries, trained or not",
        healthy="well below `rollout/response_tokens`, of which it is a part",
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
            " context_limit, parse_failure, refused, environment_error, engine_error, timeout)"
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
        key="rollout/lost_workers",
        reducer=Reducer.SUM,
        what="threads and processes of environments that hung or died in the step and were replaced; absent where all run inline",
        healthy="0",
    ),
    Metric(
        key="rollout/out_of_memory",
        reducer=Reducer.SUM,
        what="how often memory ran out while sampling and the replies were begun again, fewer of them together",
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
            "mean sum of one weighted part of the return in a trajectory: `environment`, `format`, a reward function of "
            "your own, or `overlong`, the price of long replies"
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
    # filter and curriculum
    Metric(
        key="filter/kept_groups",
        reducer=Reducer.LAST,
        what="groups that are trained on",
        healthy="what the filter was set to keep; `filter/missing_groups` is 0",
    ),
    Metric(
        key="filter/kept_frac",
        reducer=Reducer.MEAN,
        what="share of the groups played, refill included, that are trained on",
        healthy="steady; the rest is paid for in the rollout and thrown away",
    ),
    Metric(
        key="filter/missing_groups",
        reducer=Reducer.LAST,
        what="groups short of what the step was to be trained on, after any refill",
        healthy="0",
    ),
    Metric(
        key="filter/zero_spread_groups",
        reducer=Reducer.LAST,
        what="groups dropped because all their members have the same return",
        healthy="fewer as the task becomes neither hopeless nor trivial",
    ),
    Metric(
        key="filter/engaged",
        reducer=Reducer.LAST,
        what="1 if the rule was applied in this step, 0 if groups differed too little for it",
        healthy="1, unless `algorithm.filter.engage_ratio` asks for more than the step has",
    ),
    Metric(
        key="filter/spread_ratio",
        reducer=Reducer.LAST,
        what="standard deviation over mean of the groups' return variances: how much groups differ in what they teach",
        healthy="the higher, the more a filter by spread has to choose from",
    ),
    Metric(
        key="filter/score_kept",
        reducer=Reducer.MEAN,
        what="mean score of the groups that are trained on",
        healthy="clearly apart from `filter/score_dropped`",
    ),
    Metric(
        key="filter/score_dropped",
        reducer=Reducer.MEAN,
        what="mean score of the groups that are dropped",
        healthy="clearly apart from `filter/score_kept`",
    ),
    Metric(
        key="filter/effective_groups",
        reducer=Reducer.LAST,
        what="number of equal groups that would average out chance as well as the weighted ones: (sum w)^2 / sum w^2",
        healthy="near `filter/kept_groups`; the same without weighting",
    ),
    Metric(
        key="filter/weight_mean",
        reducer=Reducer.MEAN,
        what="mean weight of the groups that are trained on",
        healthy="1, or less with `algorithm.filter.weighting=max`",
    ),
    Metric(
        key="filter/loss_scale",
        reducer=Reducer.LAST,
        what="factor of all advantages for the share of groups that was kept",
        healthy="1, or near it",
    ),
    Metric(
        key="filter/dropped_trajectories",
        reducer=Reducer.SUM,
        what="scored trajectories that are not trained on",
        healthy="what the filter is worth to you",
    ),
    Metric(
        key="filter/dropped_tokens",
        reducer=Reducer.SUM,
        what="sampled tokens of those trajectories",
        healthy="as above",
    ),
    Metric(
        key="filter/dropped_s",
        reducer=Reducer.SUM,
        what="seconds of the rollout spent on them, in proportion to its sampled tokens",
        healthy="well below `time/rollout_s`",
    ),
    Metric(
        key="filter/extra_groups",
        reducer=Reducer.SUM,
        what="groups played beyond the step's own to fill what was dropped",
        healthy="0 or few",
    ),
    Metric(
        key="filter/extra_rounds",
        reducer=Reducer.LAST,
        what="times that the step has played more groups",
        healthy="0 or 1",
    ),
    Metric(
        key="filter/skipped_update",
        reducer=Reducer.LAST,
        what="1 if nothing was kept and the policy was left as it is, 0 otherwise",
        healthy="0",
    ),
    Metric(
        key="curriculum/<tag>/num_groups",
        reducer=Reducer.LAST,
        what="groups of the step that `rollout.curriculum` gave to the environment",
        healthy="more where `curriculum/<tag>/success` is near 0.5",
    ),
    Metric(
        key="curriculum/<tag>/success",
        reducer=Reducer.LAST,
        what="success rate of the environment as the curriculum sees it before the step, older steps counting less",
        healthy="0.5 where nothing is known; rises as the environment is learned",
    ),
    # update
    Metric(
        key="update/loss",
        reducer=Reducer.MEAN,
        what=(
            "the loss that was minimised, averaged as `algorithm.loss.aggregation` says: policy loss, minus entropy bonus, "
            "plus KL term"
        ),
        healthy="no target value: with a clipped surrogate it hovers around 0 and says little",
    ),
    Metric(
        key="update/policy_loss",
        reducer=Reducer.MEAN,
        what="the policy term of the loss, mean over tokens",
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
        what=(
            "share of sampled tokens whose ratio (with `gspo` that of the sample) is below 1 - clip_low with a negative "
            "advantage, so that their gradient is cut; with `cispo` whatever the advantage, and limited; absent with `sapo`"
        ),
        healthy="below 0.1",
    ),
    Metric(
        key="update/clip_high_frac",
        reducer=Reducer.MEAN,
        what=("the same above 1 + clip_high with a positive advantage"),
        healthy="below 0.1",
    ),
    Metric(
        key="update/kl_loss",
        reducer=Reducer.MEAN,
        what=(
            "the KL that loss or reward pays for, before its weight: `algorithm.kl.estimator` between policy and start policy, "
            "mean over sampled tokens"
        ),
        healthy="grows and levels off; near `algorithm.kl.target` where one is set",
    ),
    Metric(
        key="update/kl_coef",
        reducer=Reducer.LAST,
        what="weight of KL(policy || start policy) in the loss or the reward, as it was in this update",
        healthy="constant; with `algorithm.kl.target` it settles",
    ),
    Metric(
        key="update/version_lag_mean",
        reducer=Reducer.MEAN,
        what="by how many optimiser steps the policy that sampled a token is older than the one the update begins with, mean",
        healthy="0 where rollout and update take turns",
    ),
    Metric(
        key="update/version_lag_max",
        reducer=Reducer.MAX,
        what="the largest such number",
        healthy="0 where rollout and update take turns",
    ),
    Metric(
        key="update/tis_weight_mean",
        reducer=Reducer.MEAN,
        what="mean weight by which tokens are corrected for the gap between engine and learner; only with such a correction",
        healthy="near 1",
    ),
    Metric(
        key="update/tis_capped_frac",
        reducer=Reducer.MEAN,
        what="share of sampled tokens at which that weight is cut to `algorithm.loss.tis_cap`",
        healthy="below 0.01",
    ),
    Metric(
        key="update/tis_masked_frac",
        reducer=Reducer.MEAN,
        what=(
            "share of sampled tokens left out of the policy term, since the mean ratio of their sample is not between "
            "`algorithm.loss.tis_mask_low` and `algorithm.loss.tis_mask_high`"
        ),
        healthy="below 0.05",
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
        what="sampled tokens that entered the loss, once per epoch",
        healthy="number of trajectories times `rollout/response_tokens`",
    ),
    Metric(
        key="update/skipped",
        reducer=Reducer.SUM,
        what="optimiser steps that were skipped, changing nothing, because a loss or gradient was not finite",
        healthy="0",
    ),
    Metric(
        key="update/out_of_memory",
        reducer=Reducer.SUM,
        what="how often memory ran out in the update and it went on with packs of half the size",
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
    # critic
    Metric(
        key="critic/loss",
        reducer=Reducer.MEAN,
        what="the critic's loss per sampled token: half the squared error of its values, clipped and robust as configured",
        healthy="falls at first, then follows the spread of the returns",
    ),
    Metric(
        key="critic/explained_variance",
        reducer=Reducer.MEAN,
        what=(
            "share of the variance of the critic's targets that its values explain, before it was trained on them: "
            "1 - Var(target - value) / Var(target)"
        ),
        healthy="rises from 0 and stays above it",
    ),
    Metric(
        key="critic/value_mean",
        reducer=Reducer.MEAN,
        what="mean value of the states before a sampled token, as the advantages saw it",
        healthy="near `critic/target_mean`",
    ),
    Metric(
        key="critic/target_mean",
        reducer=Reducer.MEAN,
        what="mean of what the critic's values should have been: advantage plus value",
        healthy="rises with `rollout/return`",
    ),
    Metric(
        key="critic/clip_frac",
        reducer=Reducer.MEAN,
        what="share of sampled tokens whose value has moved further than `algorithm.critic.clip`, so that its gradient is cut",
        healthy="below 0.2",
    ),
    Metric(
        key="critic/grad_norm",
        reducer=Reducer.MEAN,
        what="norm of the gradient over all of the critic's parameters, before clipping, mean over the optimiser steps",
        healthy="large while the critic learns the scale of the returns, then steady",
    ),
    Metric(
        key="critic/skipped",
        reducer=Reducer.SUM,
        what="optimiser steps of the critic that were skipped, changing nothing, because a loss or gradient was not finite",
        healthy="0",
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
        key="eval/<tag>/turns",
        reducer=Reducer.LAST,
        what="mean replies in a held-out episode of the tag",
        healthy="falls as the task is learned, where it can end early",
    ),
    Metric(
        key="eval/<tag>/actions",
        reducer=Reducer.LAST,
        what="mean actions executed in a held-out episode of the tag",
        healthy="falls as the task is learned, where it can end early",
    ),
    Metric(
        key="eval/<tag>/sampled_tokens",
        reducer=Reducer.LAST,
        what="mean tokens sampled in a held-out episode of the tag",
        healthy="follows `rollout/response_tokens`",
    ),
    Metric(
        key="eval/<tag>/pass_at_<k>",
        reducer=Reducer.LAST,
        what="pass@k: the chance that any of k episodes from one held-out seed of the tag succeeds, mean over seeds",
        healthy="rises with training; far above `eval/<tag>/success` it shows what is within reach of more training",
    ),
    Metric(
        key="eval/<tag>/pass_all_<k>",
        reducer=Reducer.LAST,
        what="pass^k: the chance that all of k episodes from one held-out seed of the tag succeed, mean over seeds",
        healthy="rises towards `eval/<tag>/success`: the policy solves a seed always or never",
    ),
    Metric(
        key="eval/<tag>/part/<name>",
        reducer=Reducer.LAST,
        what="mean of a reward function of your own over the tag's held-out episodes that it judged, weighted",
        healthy="rises where it is trained on",
    ),
    Metric(
        key="eval/<suite>/<setting>/<tag>/<name>",
        reducer=Reducer.LAST,
        what="the metric of this name, such as `eval/<tag>/success`, for an environment of a suite under one of its settings",
        healthy="follows the run's own tags where the tasks are alike; on others it shows what carries over",
    ),
    Metric(
        key="eval/<suite>/<setting>/<tag>/part/<name>",
        reducer=Reducer.LAST,
        what="what `eval/<tag>/part/<name>` is, for an environment of a suite under one of its settings",
        healthy="as above",
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
        key="memory/update_gib",
        reducer=Reducer.MAX,
        what="most memory held at any time of the update: resident on a CPU, allocated on a GPU",
        healthy="what was held before it and at most the forecast that is printed when a run begins",
    ),
    Metric(
        key="memory/peak_gib",
        reducer=Reducer.MAX,
        what="largest resident memory of the process so far",
        healthy="rises during the first steps, then flat",
    ),
    # trackers
    Metric(
        key="tracking/failures",
        reducer=Reducer.SUM,
        what="calls of optional trackers that failed since the step before; absent where none did",
        healthy="absent",
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
