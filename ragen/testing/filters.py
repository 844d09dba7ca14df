"""What every filter of groups must keep, as checks on small random rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from ragen.environments.checker.report import Report, require
from ragen.records import Group
from ragen.testing.rollouts import Dice, Plan, Rollout, TurnPlan
from ragen.testing.run import NUM_SEEDS, OnFinding, run_checks

Filter = Callable[[Sequence[Group]], Sequence[int]]  # groups -> positions of those that are kept

NUM_GROUPS = 4


def check_filter(keep: Filter, *, by_spread: bool = False, name: str = "filter", on_finding: OnFinding | None = None) -> Report:
    """Check a filter: `keep(groups)` answers the positions of the groups to train on.

    `by_spread` holds it to what a filter by the spread of returns promises: wider is kept before narrower, and a constant added
    to all returns of a group changes nothing.
    """
    checks = [*ALWAYS.items(), *(SPREAD.items() if by_spread else ())]
    return run_checks(keep, checks, name=name, on_finding=on_finding)


def answers(keep: Filter) -> str:
    """Positions of groups, each once, in their order; the same when asked again."""
    for rollout in _rollouts():
        groups = rollout.records()
        kept = list(keep(groups))
        legal = all(isinstance(i, int) and 0 <= i < len(groups) for i in kept) and kept == sorted(set(kept))
        require(legal, f"must be positions below {len(groups)}, each once and ascending, not {kept}")
        require(list(keep(groups)) == kept, "asked twice for the same groups: another answer")
    return f"{NUM_SEEDS} rollouts"


def nothing(keep: Filter) -> str:
    """No groups, or groups in which everything failed: an answer, and no error."""
    require(list(keep([])) == [], "no groups must give no groups")
    kept = list(keep([Group(trajectories=()), Group(trajectories=())]))
    require(kept in ([], [0, 1]), f"groups without a scored member are all alike, but {kept} is kept")
    return "no groups, no members"


def order_of_groups(keep: Filter) -> str:
    """A group is kept for what it is, not for where it stands."""
    for rollout in _rollouts():
        kept = _names(rollout, keep)
        for order in permutations(range(NUM_GROUPS)):
            moved = replace(rollout, groups=tuple(rollout.groups[i] for i in order))
            require(_names(moved, keep) == kept, f"groups in the order {order}: keeps {_names(moved, keep)} instead of {kept}")
    return "all permutations of four"


def order_of_members(keep: Filter) -> str:
    for rollout in _rollouts():
        moved = replace(rollout, groups=tuple(group[::-1] for group in rollout.groups))
        require(_names(moved, keep) == _names(rollout, keep), "members in the opposite order: other groups are kept")
    return "reversed"


def left_out(keep: Filter) -> str:
    """What failed, or was abstained about, moves no statistic."""
    for rollout in _rollouts():
        extra = tuple(Plan(group=g, member=20 + g, turns=(TurnPlan(reward=50.0 * g),)) for g in range(NUM_GROUPS))
        for what, more in (("failed", replace(rollout, failed=extra)), ("abstained", replace(rollout, abstained=extra))):
            require(_names(more, keep) == _names(rollout, keep), f"{what} members change which groups are kept")
    return "failed and abstained members"


def read_tokens(keep: Filter) -> str:
    """What stands in a record where nothing was sampled is never looked at, not even times 0."""
    for rollout in _rollouts():
        odd = rollout.map(lambda plan: replace(plan, read_logprob=float("nan")))
        require(
            _names(odd, keep) == _names(rollout, keep), "log-probs of tokens that were not sampled change which groups are kept"
        )
    return "log-probs that are no number"


def alike(keep: Filter) -> str:
    """Groups of which nobody did better than another: an answer, whatever it is."""
    for value in (0.0, 0.3, -1e30):
        groups = [tuple(Plan(group=g, member=m, turns=(TurnPlan(reward=value),)) for m in range(3)) for g in range(2)]
        kept = list(keep(Rollout(groups=tuple(groups)).records()))
        require(set(kept) <= {0, 1}, f"all returns {value:g}: keeps {kept}")
    return "equal returns everywhere"


ALWAYS: Mapping[str, Callable[[Filter], str]] = {
    "answers": answers,
    "nothing": nothing,
    "order of groups": order_of_groups,
    "order of members": order_of_members,
    "left out": left_out,
    "read tokens": read_tokens,
    "alike": alike,
}


def wider_first(keep: Filter) -> str:
    """Raw returns: groups 0 to 3 have the same returns times 1, 2, 4, 8, so that none is kept before a wider one."""
    for rollout in _rollouts():
        first = rollout.groups[0]
        groups = [tuple(replace(_times(plan, 2.0**g), group=g) for plan in first) for g in range(NUM_GROUPS)]
        kept = _names(Rollout(groups=tuple(groups)), keep)
        require(kept == set(range(NUM_GROUPS - len(kept), NUM_GROUPS)), f"of four groups, each wider than the last, keeps {kept}")
        require(0 < len(kept) < NUM_GROUPS, f"of four groups of very different spread, keeps {kept}")
    return "returns times 1, 2, 4, 8"


def shift(keep: Filter) -> str:
    """A group does not become wider by all of its members doing better."""
    for rollout in _rollouts():
        moved = replace(
            rollout, groups=tuple(tuple(_plus(plan, 100.0 * g) for plan in group) for g, group in enumerate(rollout.groups))
        )
        require(_names(moved, keep) == _names(rollout, keep), "a constant per group changes which groups are kept")
    return "a constant per group"


SPREAD: Mapping[str, Callable[[Filter], str]] = {"wider first": wider_first, "shift": shift}


def _rollouts() -> Iterator[Rollout]:
    """Groups of clearly different spread: those of two that were equal would be kept by where they stand."""
    for seed in range(NUM_SEEDS):
        rollout = Dice(seed=seed).rollout(num_groups=NUM_GROUPS, num_turns=1)
        groups = [tuple(_times(plan, 1.0 + plan.group / 7 + seed / 50) for plan in group) for group in rollout.groups]
        yield Rollout(groups=tuple(groups))


def _names(rollout: Rollout, keep: Filter) -> set[int]:
    """The numbers of the groups that are kept."""
    return {rollout.groups[position][0].group for position in keep(rollout.records())}


def _times(plan: Plan, factor: float) -> Plan:
    return replace(plan, turns=tuple(replace(turn, reward=turn.reward * factor) for turn in plan.turns))


def _plus(plan: Plan, constant: float) -> Plan:
    return plan.with_turn(0, reward=plan.turns[0].reward + constant)
