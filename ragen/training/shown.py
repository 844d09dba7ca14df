"""Episodes as text for trackers, so that one can read what a model says while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragen.records import Trajectory, Turn
from ragen.rollout.messages import episode_chat

COLUMNS = ("environment", "seed", "success", "return", "end", "episode")


def chosen(trajectories: Sequence[Trajectory], count: int) -> list[Trajectory]:
    """The first `count` of each environment, never picked by how they went: the same seeds at every evaluation."""
    seen: dict[str, int] = {}
    kept = []
    for trajectory in trajectories:
        number = seen[trajectory.key.environment] = seen.get(trajectory.key.environment, 0) + 1
        if number <= count:
            kept.append(trajectory)
    return kept


def as_text(trajectory: Trajectory) -> str:
    """What was read and written in turn, as Markdown in which nothing that was said is markup."""
    parts = [f"**{_title(trajectory)}**"]
    for message, each in episode_chat(trajectory):
        earned = f", reward {each.what.reward:+.2f}" if each is not None and isinstance(each.what, Turn) else ""
        quoted = "\n".join("    " + line for line in message.content.splitlines())
        parts.append(f"{message.role}{earned}\n\n{quoted}")
    return "\n\n".join(parts)


def as_row(trajectory: Trajectory) -> tuple[Any, ...]:
    """The same for a table with COLUMNS."""
    key = trajectory.key
    end = trajectory.end_reason.value
    return key.environment, str(key.task_seed), trajectory.success, trajectory.return_, end, as_text(trajectory)


def as_messages(trajectory: Trajectory) -> list[dict[str, str]]:
    """The same as a chat."""
    return [{"role": message.role, "content": message.content} for message, _ in episode_chat(trajectory)]


def _title(trajectory: Trajectory) -> str:
    key = trajectory.key
    return f"{key.environment}, seed {key.task_seed}: {trajectory.end_reason.value}, return {trajectory.return_:+.2f}"
