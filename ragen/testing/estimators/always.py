"""What every estimator must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np

from ragen.environments.checker.report import Broken, require
from ragen.errors import RagenError
from ragen.testing.estimators.subject import Check, Subject, each_turn, paying, require_same, scaled, who
from ragen.testing.rollouts import Dice, Plan, Rollout, TurnPlan
from ragen.testing.run import NUM_SEEDS


def answers(subject: Subject) -> str:
    """One finite float32 number per trained token, in the order of the trajectories, and the same when asked again."""
    for rollout, found in subject.rollouts():
        expected = {plan.name: sum(turn.num_tokens for turn in plan.turns) for plan in rollout.plans}
        sizes = {name: len(numbers) for name, numbers in found.items()}
        require(sizes == expected, f"one advantage per trained token: expected {expected}, got {sizes}")
        require(list(found) == list(expected), "samples come in another order than trajectories")
        for name, numbers in found.items():
            require(numbers.dtype == np.float32, f"advantages must be float32, not {numbers.dtype}")
            require(bool(np.isfinite(numbers).all()), f"advantage of {who(name)} is not finite: {numbers.tolist()}")
        require_same(found, subject.advantages(rollout), "asked twice for the same rollout", exact=True)
    return f"{NUM_SEEDS} rollouts"


def few_tokens(subject: Subject) -> str:
    """Nothing raises, and nothing is infinite, where 0, 1 or 2 tokens are trained, or a group has a single member."""
    one = Plan(turns=(TurnPlan(reward=1.0),))
    none = Plan(member=1, turns=(TurnPlan(num_tokens=0, reward=-1.0),), values=())
    two = Plan(turns=(TurnPlan(num_tokens=2, reward=1.0),), values=(0.5, 0.0))
    for plans in ((none,), (one,), (two,), (one, none), (one, replace(one, member=2))):
        found = subject.advantages(Rollout(groups=(plans,)))
        numbers = np.concatenate([*found.values(), np.empty(0)])
        require(bool(np.isfinite(numbers).all()), f"not finite with {len(numbers)} trained tokens: {numbers.tolist()}")
    require(subject.advantages(Rollout(groups=())) == {}, "no groups must give no samples")
    return "batches of 0, 1 and 2 tokens"


def large_rewards(subject: Subject) -> str:
    """Finite numbers in, finite numbers out."""
    for rollout, _ in subject.rollouts():
        for scale in (1e-30, 1e15, 1e30):
            for name, numbers in subject.advantages(rollout.map(partial(scaled, scale=scale))).items():
                require(bool(np.isfinite(numbers).all()), f"advantage of {who(name)} is not finite for rewards around {scale:g}")
    return "rewards from 1e-30 to 1e30"


def almost_nothing(subject: Subject) -> str:
    """A reward of 0 is a reward like any other: nearly what one of 1e-9 is."""
    for rollout, _ in subject.rollouts():
        nothing, little = (rollout.map(partial(_first_turn_pays, reward=reward)) for reward in (0.0, 1e-9))
        require_same(subject.advantages(nothing), subject.advantages(little), "1e-9 instead of 0 for the first turn")
    return "0 and 1e-9"


def no_number(subject: Subject) -> str:
    """A reward that is no number stops the step by name; it never ends as an advantage."""
    for broken in (float("nan"), float("inf")):
        rollout = Dice(seed=0).rollout()
        first, *others = rollout.groups[1]
        bad = replace(rollout, groups=(rollout.groups[0], (first.with_turn(0, reward=broken), *others)))
        try:
            subject.advantages(bad)
        except RagenError as error:
            require("group 1 member 0" in str(error), f"a reward of {broken} is refused without naming its trajectory: {error}")
        else:
            raise Broken(f"a reward of {broken} goes unseen")
    return "nan and inf are refused by name"


def observation_tokens(subject: Subject) -> str:
    """What the agent reads between its replies is no step: 0, 8 or 64 such tokens change nothing."""
    for rollout, found in subject.rollouts():
        for extra in (0, 8, 64):
            longer = rollout.map(partial(_reading_more, extra=extra))
            require_same(found, subject.advantages(longer), f"{extra} more observation tokens per turn", exact=True)
    return "0, 8 and 64 more tokens"


def padding(subject: Subject) -> str:
    """Tokens behind the last reply change nothing."""
    for rollout, found in subject.rollouts():
        padded = rollout.map(lambda plan: replace(plan, num_unread=7 * plan.member))
        require_same(found, subject.advantages(padded), "tokens behind the last reply", exact=True)
    return "behind the last reply"


def read_tokens(subject: Subject) -> str:
    """What stands in a record where nothing was sampled is never looked at, not even times 0."""
    for rollout, found in subject.rollouts():
        odd = rollout.map(lambda plan: replace(plan, read_logprob=float("nan")))
        require_same(found, subject.advantages(odd), "log-probs of tokens that were not sampled", exact=True)
    return "log-probs that are no number"


def segments(subject: Subject) -> str:
    """A trajectory in one token sequence, or one sequence a turn: the same advantages."""
    for rollout, found in subject.rollouts():
        cut = rollout.map(lambda plan: replace(plan, has_segments=plan.member % 2 == 0))
        require_same(found, subject.advantages(cut), "a token sequence per turn", exact=True)
    return "one sequence, or one a turn"


def order_of_members(subject: Subject) -> str:
    """An advantage goes with its trajectory, wherever that stands in its group."""
    for rollout, found in subject.rollouts(size=3):
        for order in permutations(range(3)):
            moved = replace(rollout, groups=tuple(tuple(group[i] for i in order) for group in rollout.groups))
            require_same(found, subject.advantages(moved), f"members in the order {order}")
    return "all permutations of three"


def order_of_groups(subject: Subject) -> str:
    """And wherever its group stands in the batch."""
    for rollout, found in subject.rollouts():
        for order in permutations(range(3)):
            moved = replace(rollout, groups=tuple(rollout.groups[i] for i in order))
            require_same(found, subject.advantages(moved), f"groups in the order {order}")
    return "all permutations of three"


def left_out(subject: Subject) -> str:
    """What failed, or was abstained about, moves nothing and is not trained."""
    for rollout, found in subject.rollouts():
        dice = Dice(seed=1000)
        extra = [replace(dice.plan(g, 10 + g), turns=(TurnPlan(reward=50.0),), values=(0.0,)) for g in range(3)]
        for what, more in (
            ("failed", replace(rollout, failed=tuple(extra))),
            ("abstained", replace(rollout, abstained=tuple(extra))),
        ):
            require_same(found, subject.advantages(more), f"{what} members", exact=True)
    return "failed and abstained members"


def better_is_higher(subject: Subject) -> str:
    """Of two trajectories that differ in nothing but the reward of one turn, the better one has the higher advantage in it."""
    for seed in range(NUM_SEEDS):
        dice = Dice(seed=seed)
        low, high = (paying(dice.plan(0, member, num_turns=3), reward) for member, reward in ((2, -4.0), (3, 4.0)))
        worse = dice.plan(0, 0, num_turns=3)
        for k in range(3):
            better = replace(worse.with_turn(k, reward=worse.turns[k].reward + 1), member=1)
            found = subject.advantages(Rollout(groups=((worse, better, low, high), tuple(dice.plan(1, m) for m in range(2)))))
            tokens = slice(sum(t.num_tokens for t in worse.turns[:k]), sum(t.num_tokens for t in worse.turns[: k + 1]))
            a, b = found[worse.name][tokens], found[better.name][tokens]
            require(bool((b > a).all()), f"a reward that is 1 higher in turn {k} gives {b.tolist()}, not more than {a.tolist()}")
    return "turn by turn"


ALWAYS: Mapping[str, Check] = {
    "answers": answers,
    "few tokens": few_tokens,
    "large rewards": large_rewards,
    "almost nothing": almost_nothing,
    "no number": no_number,
    "observation tokens": observation_tokens,
    "padding": padding,
    "read tokens": read_tokens,
    "segments": segments,
    "order of members": order_of_members,
    "order of groups": order_of_groups,
    "left out": left_out,
    "better is higher": better_is_higher,
}


def _reading_more(plan: Plan, extra: int) -> Plan:
    return each_turn(plan, lambda turn: {"num_read": turn.num_read + extra})


def _first_turn_pays(plan: Plan, reward: float) -> Plan:
    return plan.with_turn(0, reward=reward)
