"""What an estimator may promise beyond what every one must keep, what ours do promise, and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ragen.credit.config import WITH_CRITIC, AdvantageConfig
from ragen.environments.checker.report import require
from ragen.errors import ConfigError, near_match
from ragen.testing.estimators.subject import Check, Subject, each_turn, paying, require_same, scaled, who
from ragen.testing.rollouts import Plan, Rollout

PROMISES = {
    "centred": "equal returns give exactly 0, and a constant added to all of them changes nothing",
    "linear": "rewards (and values) times c give advantages times c",
    "scale_free": "rewards (and values) times c change nothing",
    "lone_zero": "a group of a single member learns nothing",
    "group_local": "no other group matters",
    "whole": "the return alone matters, not which turn earned it or how many tokens it took",
    "turn_split": "cutting a turn in two changes nothing",
    "causal": "a reward does not count for what was done after it",
    "critic": "it reads values, and what lies behind the end only where a trajectory was truncated",
}

_WHOLE = ("grpo", "brpo", "arpo", "rloo", "reinforce_pp_baseline")
_PER_TURN = ("return_batch_norm", "turn_rloo", "gigpo")


def promises_of(config: AdvantageConfig) -> frozenset[str]:
    """What one of our own estimators promises with these settings."""
    name = config.estimator
    is_whitened = config.whiten and "whiten" in config.reads
    divides = is_whitened or ("method" in config.reads and config.method != "mean")
    kept = {
        "centred": name != "arpo"
        and name not in WITH_CRITIC
        and (is_whitened or name != "reinforce_pp")
        and (name, config.discount_per) != ("reinforce_pp", "token"),
        "linear": not divides,
        "scale_free": divides,
        "lone_zero": config.compares_members and not is_whitened,
        "group_local": not is_whitened and name not in ("brpo", "return_batch_norm"),
        "whole": name in _WHOLE and not is_whitened,
        "turn_split": name in _WHOLE or (name in ("gae", "reinforce_pp") and config.discount_per in ("", "token")),
        "causal": not is_whitened and (name in WITH_CRITIC or name in ("reinforce_pp", "turn_rloo")),
        "critic": name in WITH_CRITIC,
    }
    if config.rewards_at == "end":
        kept["causal"] = False
    return frozenset(promise for promise, holds in kept.items() if holds)


def check_promises(promises: frozenset[str]) -> None:
    """Raise ConfigError for a promise that there is not."""
    for promise in promises - PROMISES.keys():
        raise ConfigError(f"promise {promise!r}: must be one of {', '.join(PROMISES)}{near_match(promise, PROMISES)}")


def centred(subject: Subject) -> str:
    """In trajectories of one turn: equal rewards give exactly 0, also sums of float32; a constant for all changes nothing."""
    sums = [float(np.float32(0.1) + np.float32(0.2)), 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, -0.1, 1e-3, 1e6 / 3]
    for rollout, found in subject.rollouts(num_turns=1):
        for value in sums:
            equal = subject.advantages(rollout.map(partial(paying, reward=value)))
            wrong = next(((name, a) for name, a in equal.items() if a.any()), None)
            require(wrong is None, f"rewards that are all {value!r} give {wrong and wrong[1].tolist()} instead of exactly 0")
        for shift in (-2.0, 10.0):
            moved = rollout.map(partial(_shifted, by=shift))
            require_same(found, subject.advantages(moved), f"{shift:+g} for every reward")
    return "equal rewards, shifted rewards"


def linear(subject: Subject) -> str:
    for rollout, found in subject.rollouts():
        tripled = subject.advantages(rollout.map(partial(scaled, scale=3.0)))
        require_same({name: 3 * numbers for name, numbers in found.items()}, tripled, "rewards times 3")
    return "rewards times 3"


def scale_free(subject: Subject) -> str:
    for rollout, found in subject.rollouts():
        for scale in (0.5, 20.0):
            now = subject.advantages(rollout.map(partial(scaled, scale=scale)))
            require_same(found, now, f"rewards times {scale:g}")
    return "rewards times 0.5 and 20"


def lone_zero(subject: Subject) -> str:
    for rollout, _ in subject.rollouts(size=1, num_turns=2):
        for name, numbers in subject.advantages(rollout).items():
            require(not numbers.any(), f"a group of one member gives {numbers.tolist()} for {who(name)} instead of 0")
    return "groups of one member"


def group_local(subject: Subject) -> str:
    for rollout, found in subject.rollouts():
        first, *others = rollout.groups
        changed = [tuple(scaled(plan, -5.0) for plan in group) for group in others]
        for groups, what in (
            ((first,), "without the other groups"),
            ((first, *changed), "with other rewards in the other groups"),
        ):
            now = subject.advantages(replace(rollout, groups=groups))
            require_same({n: found[n] for n in found if n[0] == 0}, {n: now[n] for n in now if n[0] == 0}, what)
    return "other groups changed, or gone"


def whole(subject: Subject) -> str:
    for rollout, found in subject.rollouts():
        means = {name: numbers[:1] for name, numbers in found.items()}
        require(all(np.ptp(numbers) == 0 for numbers in found.values()), "tokens of one trajectory differ")
        moved = subject.advantages(rollout.map(_all_at_start))
        require_same(means, {name: numbers[:1] for name, numbers in moved.items()}, "all reward in the first turn")
        longer = rollout.map(_twice_as_long)
        require_same(means, {n: a[:1] for n, a in subject.advantages(longer).items()}, "replies twice as long")
    return "where and in how many tokens"


def turn_split(subject: Subject) -> str:
    """The reward stays with the second half."""
    for rollout, found in subject.rollouts():
        require_same(found, subject.advantages(rollout.map(_split_first)), "the first turn cut in two")
    return "the first turn cut in two"


def causal(subject: Subject) -> str:
    for rollout, found in subject.rollouts(num_turns=3):
        plan, *others = rollout.groups[0]
        for k in range(2):
            paid = replace(rollout, groups=((plan.with_turn(k, reward=9.0), *others), *rollout.groups[1:]))
            start = sum(turn.num_tokens for turn in plan.turns[: k + 1])
            before, after = ({plan.name: a[plan.name][start:]} for a in (found, subject.advantages(paid)))
            require_same(before, after, f"what came after turn {k}, whose reward changed")
    return "rewards of earlier turns"


def critic(subject: Subject) -> str:
    """The value behind the end counts where a trajectory was truncated and nowhere else; values count at all."""
    for rollout, _ in subject.rollouts():
        plan = rollout.groups[0][0]
        for is_truncated in (True, False):
            low, high = (
                _moved_first(subject, rollout, replace(plan, is_truncated=is_truncated, after=after)) for after in (0.0, 8.0)
            )
            changed = bool(high[-1] > low[-1]) if is_truncated else not np.array_equal(low, high)
            state = "truncated" if is_truncated else "terminated"
            require(changed is is_truncated, f"{state}: value 0 behind the end gives {low.tolist()}, value 8 {high.tolist()}")
        better = replace(plan, values=tuple(value + 1 for value in plan.values), is_truncated=False)
        base = replace(plan, is_truncated=False)
        a, b = (_moved_first(subject, rollout, each)[-1] for each in (base, better))
        require(bool(b < a), f"a higher value of the last state must lower its advantage: {a} and {b}")
    return "truncated and terminated"


PROMISED: Mapping[str, Check] = {
    "centred": centred,
    "linear": linear,
    "scale_free": scale_free,
    "lone_zero": lone_zero,
    "group_local": group_local,
    "whole": whole,
    "turn_split": turn_split,
    "causal": causal,
    "critic": critic,
}


def _moved_first(subject: Subject, rollout: Rollout, plan: Plan) -> NDArray[np.float32]:
    """What is said of the first trajectory once `plan` stands in its place."""
    groups = ((plan, *rollout.groups[0][1:]), *rollout.groups[1:])
    return subject.advantages(replace(rollout, groups=groups))[plan.name]


def _all_at_start(plan: Plan) -> Plan:
    total = sum(turn.reward for turn in plan.turns)
    return each_turn(plan, lambda turn: {"reward": 0.0}).with_turn(0, reward=total)


def _twice_as_long(plan: Plan) -> Plan:
    longer = each_turn(plan, lambda turn: {"num_tokens": 2 * turn.num_tokens})
    return replace(longer, values=tuple(value for value in plan.values for _ in range(2)))


def _split_first(plan: Plan) -> Plan:
    first, *others = plan.turns
    if first.num_tokens < 2:
        return plan
    halves = (replace(first, num_tokens=1, reward=0.0), replace(first, num_tokens=first.num_tokens - 1, num_read=0))
    return replace(plan, turns=(*halves, *others))


def _shifted(plan: Plan, by: float) -> Plan:
    return each_turn(plan, lambda turn: {"reward": turn.reward + by})
