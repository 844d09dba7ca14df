"""Chat JSONL: one line an episode, in the message format that OpenAI's API made common, with what each reply earned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragen.evaluation.export import Source, Written
from ragen.files import file_written_aside
from ragen.records import Trajectory, Turn
from ragen.rollout.messages import Said, episode_chat

# Ends of lines to some readers, though not to JSON.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


def write_chat(source: Source, out: Path) -> Written:
    """Write `chat_line` of every episode to the file `out`. Raises StorageError when the disk refuses."""
    num_episodes = 0
    with file_written_aside(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for rows in source.rows():
            file.writelines(json_line(chat_line(row.trajectory)) for row in rows)
            num_episodes += len(rows)
    return Written(path=out, num_episodes=num_episodes, num_rows=num_episodes)


def chat_line(trajectory: Trajectory) -> dict[str, Any]:
    """`messages` of the whole episode, and in `metadata` where it stands and how it ended.

    A reply's message has `reward`, what the environment paid for its actions, and `format_penalty`; a summary's has neither.
    """
    messages = [{"role": message.role, "content": message.content, **_earned(each)} for message, each in episode_chat(trajectory)]
    return {"messages": messages, "metadata": metadata(trajectory)}


def metadata(trajectory: Trajectory) -> dict[str, Any]:
    """Plain values that say which episode it is and how it went. `success` is the environment's word, whatever was paid."""
    key = trajectory.key
    return {
        "environment": key.environment,
        "split": key.split.value,
        "step": key.step,
        "group": key.group,
        "member": key.member,
        "attempt": key.attempt,
        "task_seed": key.task_seed,
        "dynamics_seed": key.dynamics_seed,
        "success": trajectory.success,
        "end_reason": trajectory.end_reason.value,
        "truncated": trajectory.truncated,
        "failed": trajectory.end_reason.is_infrastructure,
        "error": trajectory.error,
        "return": trajectory.return_,
        "num_turns": len(trajectory.turns),
        "num_actions": trajectory.num_actions,
        "num_sampled": trajectory.num_sampled,
        "final_observation": trajectory.final_observation,
    }


def json_line(value: Any) -> str:
    """One line of JSON, one line also to readers that end lines where Unicode does."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_LINE_ENDS) + "\n"


def _earned(each: Said | None) -> dict[str, float]:
    if each is None or not isinstance(each.what, Turn):
        return {}
    return {"reward": each.what.reward, "format_penalty": each.what.format_penalty}
