"""What an estimator may see of a trajectory: plain numbers per turn and per trained token, and nothing else.

Axes: S, the trained tokens of one trajectory in the order of time, over all its segments; K, its turns. What the agent read is
not on S, so it can be neither a step nor a place for a reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ragen.errors import TrainingError
from ragen.records import EpisodeKey, Group, MaskT, Sample, Trajectory

FloatS = NDArray[np.float64]
FloatK = NDArray[np.float64]

MAX_RETURN = 1e38  # float32, in which advantages are kept, ends a little above
TOKEN, ACTION, TURN = "token", "action", "turn"  # what one tick of the clock is, by which rewards are discounted


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a critic says of one trajectory."""

    tokens: FloatS  # [S], the value of the state in which each trained token was sampled
    after: float  # value of the state after the last trained token; read only if the trajectory was truncated


@dataclass(frozen=True, kw_only=True)
class TrajectoryView:
    """One scored trajectory. Its turns tile the S axis: turn k has the `lengths[k]` tokens that come next.

    A turn has at least one token, since one without is merged into its neighbour; only a trajectory without any trained token has
    a single turn of length 0, so that its return still counts in its group.
    """

    group: int  # place of its group in the batch
    tag: str  # of the environment
    lengths: tuple[int, ...]  # [K] tokens
    rewards: tuple[float, ...]  # [K] what the turn adds to the return, format penalty included
    num_actions: tuple[int, ...]  # [K] actions that the environment executed
    states: tuple[str, ...]  # [K] what the agent read last before it replied
    token_rewards: FloatS  # [S] rewards beside those of the turns, such as a KL penalty
    return_: float  # sum of all rewards, not discounted
    values: FloatS | None = None  # [S], from the critic
    bootstrap: float = 0.0  # value of the state after the last token: 0 where the task is over

    def __post_init__(self) -> None:
        assert len(self.lengths) == len(self.rewards) == len(self.num_actions) == len(self.states) > 0
        assert self.token_rewards.shape == (self.num_tokens,), (self.token_rewards.shape, self.num_tokens)
        assert self.values is None or self.values.shape == (self.num_tokens,), (self.values, self.num_tokens)

    @property
    def num_tokens(self) -> int:
        """S."""
        return sum(self.lengths)

    @property
    def stops(self) -> list[int]:
        """[K] where each turn ends on the S axis."""
        return list(accumulate(self.lengths))

    def rewards_per_token(self) -> FloatS:
        """[S] rewards per token: that of a turn stands on its last token."""
        rewards = self.token_rewards.copy()
        if self.num_tokens:
            rewards[np.array(self.stops) - 1] += self.rewards
        return rewards

    def rewards_per_turn(self) -> FloatK:
        """[K] rewards per turn, those of its tokens included."""
        rewards = np.array(self.rewards, dtype=np.float64)
        if self.num_tokens:
            rewards += self.sum_per_turn(self.token_rewards)
        return rewards

    def ticks(self, unit: str) -> FloatS:
        """[S] how many ticks pass behind each token; by action or turn, none but behind the last token of a turn."""
        ticks = np.zeros(self.num_tokens)
        if unit == TOKEN:
            ticks += 1
        elif self.num_tokens:
            ticks[np.array(self.stops) - 1] = self.num_actions if unit == ACTION else 1
        return ticks

    def sum_per_turn(self, numbers_S: FloatS) -> FloatK:
        """[K]"""
        return np.add.reduceat(numbers_S, [0, *self.stops[:-1]])

    def per_token(self, numbers_K: Sequence[float] | FloatK) -> FloatS:
        """[S] the number of its turn on every token."""
        if not self.num_tokens:
            return np.zeros(0)
        return np.repeat(np.asarray(numbers_K, dtype=np.float64), self.lengths)

    def with_reward_at_end(self) -> TrajectoryView:
        """The same trajectory if its turns had paid nothing before the last one, and that one everything."""
        return replace(self, rewards=(0.0,) * (len(self.rewards) - 1) + (float(sum(self.rewards)),))


def make_views(
    groups: Sequence[Group],
    *,
    values: Mapping[EpisodeKey, Values] | None = None,
    token_rewards: Mapping[EpisodeKey, FloatS] | None = None,
) -> list[TrajectoryView]:
    """One view per scored trajectory, group by group; what failed or was abstained about is in none.

    `values` and `token_rewards` hold an entry per scored trajectory. Raises TrainingError naming the trajectory whose return is
    not a number that can be trained on.
    """
    return [
        _view(trajectory, index, values, token_rewards) for index, group in enumerate(groups) for trajectory in group.trajectories
    ]


def _view(
    trajectory: Trajectory,
    group: int,
    values: Mapping[EpisodeKey, Values] | None,
    token_rewards: Mapping[EpisodeKey, FloatS] | None,
) -> TrajectoryView:
    turns = _merge_empty(_turns(trajectory))
    num_tokens = sum(turn.length for turn in turns)
    said = None if values is None else values[trajectory.key]
    extra = np.zeros(num_tokens) if token_rewards is None else np.asarray(token_rewards[trajectory.key], dtype=np.float64)
    view = TrajectoryView(
        group=group,
        tag=trajectory.key.environment,
        lengths=tuple(turn.length for turn in turns),
        rewards=tuple(turn.reward for turn in turns),
        num_actions=tuple(turn.num_actions for turn in turns),
        states=tuple(turn.state for turn in turns),
        token_rewards=extra,
        return_=trajectory.return_ + float(extra.sum()),
        values=None if said is None else np.asarray(said.tokens, dtype=np.float64),
        bootstrap=said.after if said is not None and trajectory.truncated else 0.0,
    )
    if not abs(view.return_) <= MAX_RETURN:
        raise TrainingError(f"return {view.return_} of {where(trajectory)}: must be a number within +-{MAX_RETURN:g}")
    return view


@dataclass(frozen=True, kw_only=True)
class _Turn:
    length: int
    reward: float
    num_actions: int
    state: str


def _turns(trajectory: Trajectory) -> list[_Turn]:
    """The turns of a trajectory; where a token is trained there is at least one.

    A trained summary belongs to the turn behind it, whose prompt it makes; one that no turn follows, to the turn before it.
    """
    if not trajectory.turns:
        return []
    masks = trained_masks(trajectory)
    offsets = [0, *accumulate(int(mask.sum()) for mask in masks)]  # where each segment begins on the S axis
    stops = [offsets[turn.segment] + int(masks[turn.segment][: turn.stop].sum()) for turn in trajectory.turns]
    stops[-1] = offsets[-1]
    starts = [0, *stops[:-1]]
    return [
        _Turn(length=stop - start, reward=turn.total_reward, num_actions=len(turn.executed), state=turn.state or turn.observation)
        for turn, start, stop in zip(trajectory.turns, starts, stops, strict=True)
    ]


def _merge_empty(turns: list[_Turn]) -> list[_Turn]:
    """A turn in which nothing was sampled adds its reward and actions to the turn before it, or to the one behind it."""
    merged: list[_Turn] = []
    for turn in turns:
        if merged and 0 in (turn.length, merged[-1].length):
            before = merged.pop()
            turn = _Turn(
                length=before.length + turn.length,
                reward=before.reward + turn.reward,
                num_actions=before.num_actions + turn.num_actions,
                state=before.state if before.length else turn.state,
            )
        merged.append(turn)
    return merged or [_Turn(length=0, reward=0.0, num_actions=0, state="")]


def trained_masks(trajectory: Trajectory) -> list[MaskT]:
    """Per segment, [T]: where a token is trained, as its sample will say."""
    empty = [np.zeros(segment.ids.shape, dtype=np.float32) for segment in trajectory.segments]
    return [Sample(trajectory=trajectory, segment=index, advantages=zeros).mask for index, zeros in enumerate(empty)]


def blank_sample(trajectory: Trajectory, segment: int) -> Sample:
    """A segment as a sample before anything is known of advantages."""
    advantages = np.zeros(len(trajectory.segments[segment].ids), dtype=np.float32)
    return Sample(trajectory=trajectory, segment=segment, advantages=advantages)


def where(trajectory: Trajectory) -> str:
    """What a person finds the trajectory by."""
    key = trajectory.key
    return f"{key.environment} group {key.group} member {key.member} (task seed {key.task_seed})"
