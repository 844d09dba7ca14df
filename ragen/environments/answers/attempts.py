"""Attempts at one question and what they pay, as pure functions.

An answer of score s (0 to 1) at attempt k, counted from 0, is worth s * 2^-k. An attempt is paid by how much it raises the
highest worth so far, so the return of an episode is the worth of its best attempt: repeating an answer, or approaching the full
score in small steps, earns nothing more.

Source: the retry rule of RAGEN's question-answer environments, 2^-k for the k-th attempt.
Differs from the published: scores between 0 and 1 exist, and are paid once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SOLVED_SCORE = 1.0 - 1e-6  # scorers compute with floats


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """How many attempts there are, how many are used, and the best so far: its score and, discounted, its worth (0 to 1)."""

    allowed: int
    used: int = 0
    score: float = 0.0
    worth: float = 0.0

    @property
    def left(self) -> int:
        return self.allowed - self.used

    @property
    def solved(self) -> bool:
        return self.score >= SOLVED_SCORE

    @property
    def over(self) -> bool:
        return self.solved or self.left == 0


def attempt(attempts: Attempts, score: float) -> tuple[Attempts, float]:
    """Use up one attempt with an answer of this score (0 to 1): the attempts afterwards, and the reward (0 to 1)."""
    assert not attempts.over, f"no attempt is left: {attempts}"
    worth = min(score, 1.0) * 0.5**attempts.used
    reward = max(0.0, worth - attempts.worth)
    after = replace(attempts, used=attempts.used + 1, score=max(attempts.score, score), worth=max(attempts.worth, worth))
    return after, reward
