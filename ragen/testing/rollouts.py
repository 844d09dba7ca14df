"""Small random rollouts for the checks: written down as plans, changed as plans, and only then made into records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ragen.credit.view import Values
from ragen.records import (
    EndReason,
    EpisodeKey,
    FinishReason,
    Group,
    Reply,
    Segment,
    Split,
    Trajectory,
    Turn,
    Verdict,
)


@dataclass(frozen=True, kw_only=True)
class TurnPlan:
    """One reply and what came of it."""

    num_tokens: int = 1
    reward: float = 0.0
    num_read: int = 1  # tokens that the agent reads before it replies
    num_actions: int = 1
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One trajectory. `values` has one number per trained token; `after` is the critic's value behind the last one."""

    group: int = 0
    member: int = 0
    tag: str = "corridor"
    turns: tuple[TurnPlan, ...] = (TurnPlan(),)
    values: tuple[float, ...] = (0.0,)
    after: float = 0.0
    is_truncated: bool = False
    has_segments: bool = False  # each turn is a token sequence of its own
    num_unread: int = 0  # tokens behind the last reply
    logprob: float = -1.0  # of every sampled token
    read_logprob: float = 0.0  # what stands where nothing was sampled

    @property
    def name(self) -> tuple[int, int]:
        return self.group, self.member

    def with_turn(self, k: int, **changes: object) -> Plan:
        """The same plan with another turn k."""
        turns = list(self.turns)
        turns[k] = replace(turns[k], **changes)  # type: ignore[arg-type]
        return replace(self, turns=tuple(turns))


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Groups of plans; the second list is what failed, or was abstained about, in the group with that number."""

    groups: tuple[tuple[Plan, ...], ...]
    failed: tuple[Plan, ...] = ()
    abstained: tuple[Plan, ...] = ()

    @property
    def plans(self) -> list[Plan]:
        return [plan for group in self.groups for plan in group]

    def map(self, change: Callable[[Plan], Plan]) -> Rollout:
        """The same rollout with every scored trajectory changed."""
        return replace(self, groups=tuple(tuple(map(change, group)) for group in self.groups))

    def records(self) -> list[Group]:
        """As they come from a rollout."""
        return [
            Group(
                trajectories=tuple(map(make_trajectory, group)),
                failed=tuple(make_trajectory(plan, EndReason.TIMEOUT) for plan in self.failed if plan.group == group[0].group),
                abstained=tuple(make_trajectory(plan) for plan in self.abstained if plan.group == group[0].group),
            )
            for group in self.groups
        ]

    def values(self) -> dict[EpisodeKey, Values]:
        """What a critic says of each scored trajectory."""
        return {make_key(p): Values(tokens=np.array(p.values, dtype=np.float64), after=p.after) for p in self.plans}


@dataclass(kw_only=True)
class Dice:
    """Draws rollouts; the same seed, the same rollouts."""

    seed: int
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def number(self) -> float:
        """A reward or value: quarters, so that sums are exact and different numbers are well apart."""
        return float(self.random.integers(-8, 9)) / 4

    def plan(self, group: int, member: int, *, num_turns: int | None = None) -> Plan:
        """Unique states but for the first one, which the group shares."""
        count = int(self.random.integers(1, 5)) if num_turns is None else num_turns
        turns = tuple(
            TurnPlan(
                num_tokens=int(self.random.integers(1, 5)),
                reward=self.number(),
                num_read=int(self.random.integers(1, 4)),
                num_actions=int(self.random.integers(1, 3)),
                state=f"group {group} member {member} turn {k}" if k else f"group {group}",
            )
            for k in range(count)
        )
        values = tuple(self.number() for turn in turns for _ in range(turn.num_tokens))
        plan = Plan(group=group, member=member, tag="ab"[group % 2], turns=turns, values=values, after=self.number())
        return replace(plan, is_truncated=bool(self.random.integers(2)), logprob=-float(self.random.uniform(0.1, 3)))

    def rollout(self, num_groups: int = 3, size: int = 4, *, num_turns: int | None = None) -> Rollout:
        groups = (tuple(self.plan(g, m, num_turns=num_turns) for m in range(size)) for g in range(num_groups))
        return Rollout(groups=tuple(groups))


def make_key(plan: Plan) -> EpisodeKey:
    return EpisodeKey(
        split=Split.TRAIN,
        step=0,
        group=plan.group,
        member=plan.member,
        environment=plan.tag,
        task_seed=100 + plan.group,
        dynamics_seed=plan.member,
    )


def make_trajectory(plan: Plan, end_reason: EndReason | None = None) -> Trajectory:
    """The record of a plan; its token ids count upwards and mean nothing."""
    masks: list[list[bool]] = [[]]
    turns: list[Turn] = []
    for k, turn in enumerate(plan.turns):
        if plan.has_segments and k:
            masks.append([False] * len(masks[-1]))  # the prompt holds what was there before
        masks[-1] += [False] * turn.num_read
        start = len(masks[-1])
        masks[-1] += [True] * turn.num_tokens
        turns.append(_make_turn(turn, len(masks) - 1, start))
    masks[-1] += [False] * plan.num_unread
    return Trajectory(
        key=make_key(plan),
        segments=tuple(_make_segment(mask, plan) for mask in masks),
        turns=tuple(turns),
        final_observation="",
        end_reason=end_reason or (EndReason.TRUNCATED if plan.is_truncated else EndReason.FAILED),
        truncated=plan.is_truncated if end_reason is None else end_reason.is_truncation,
        success=False,
    )


def _make_turn(turn: TurnPlan, segment: int, start: int) -> Turn:
    return Turn(
        segment=segment,
        start=start,
        stop=start + turn.num_tokens,
        observation=turn.state,
        reply=Reply(text="", thought="", actions=(), verdict=Verdict.VALID),
        executed=("go",) * turn.num_actions,
        reward=turn.reward,
        format_penalty=0.0,
        finish_reason=FinishReason.STOP,
        policy_version=0,
    )


def _make_segment(mask: Sequence[bool], plan: Plan) -> Segment:
    sampled = np.array(mask, dtype=np.bool_)
    logprobs = np.where(sampled, plan.logprob, plan.read_logprob).astype(np.float32)
    return Segment(ids=np.arange(len(mask), dtype=np.int32), mask=sampled, logprobs=logprobs)
