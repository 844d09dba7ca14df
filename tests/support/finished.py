"""Finished episodes written down by hand, for what reads trajectories: evaluation, reports."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ragen.records import EndReason, EpisodeKey, FinishReason, Reply, Segment, Split, Trajectory, Turn, Verdict


@dataclass(frozen=True, kw_only=True)
class Played:
    """One turn in short: what was read, what was written, what it paid."""

    observation: str = "Choose an arm."
    thought: str = "hm"
    actions: tuple[str, ...] = ("left",)
    verdict: Verdict = Verdict.VALID
    text: str = ""
    reward: float = 0.0
    format_penalty: float = 0.0
    num_tokens: int = 3


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One trajectory in short; `made()` is the record."""

    seed: int = 1
    success: bool = False
    turns: tuple[Played, ...] = field(default=(Played(),))
    end_reason: EndReason | None = None  # None: solved or failed, by `success`
    tag: str = "bandit"
    error: str = ""

    def made(self) -> Trajectory:
        """A trajectory with a prompt of two tokens, then three ids between replies."""
        ids, mask, turns = [1, 2], [False, False], []
        for played in self.turns:
            start = len(ids)
            ids += [7] * played.num_tokens
            mask += [True] * played.num_tokens
            turns.append(_turn(played, start))
            ids += [3, 4, 5]
            mask += [False] * 3
        return Trajectory(
            key=EpisodeKey(
                split=Split.VALIDATION, step=0, group=0, member=0, environment=self.tag, task_seed=self.seed, dynamics_seed=9
            ),
            segments=(
                Segment(
                    ids=np.array(ids, np.int32),
                    mask=np.array(mask, np.bool_),
                    logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
                ),
            ),
            turns=tuple(turns),
            final_observation="over",
            end_reason=self.end_reason or (EndReason.SOLVED if self.success else EndReason.FAILED),
            success=self.success,
            error=self.error,
        )


def _turn(played: Played, start: int) -> Turn:
    return Turn(
        start=start,
        stop=start + played.num_tokens,
        observation=played.observation,
        reply=Reply(text=played.text, thought=played.thought, actions=played.actions, verdict=played.verdict),
        executed=played.actions,
        reward=played.reward,
        format_penalty=played.format_penalty,
        finish_reason=FinishReason.STOP,
        policy_version=0,
    )
