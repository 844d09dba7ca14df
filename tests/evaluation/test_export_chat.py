"""One line an episode: every message there, each reward on the reply that earned it, success true to its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ragen.evaluation.export import find_source
from ragen.evaluation.export_chat import chat_line, json_line, write_chat
from ragen.records import ChatMessage, EndReason, Trajectory
from tests.evaluation.test_export import recorded
from tests.rollout.test_messages import played
from tests.support.finished import Episode, Played
from tests.support.tokenizers import CHATML

SYSTEM = ChatMessage(role="system", content="s")


def with_system(trajectory: Trajectory) -> Trajectory:
    (segment,) = trajectory.segments
    prompt = (SYSTEM, ChatMessage(role="user", content=trajectory.turns[0].observation))
    return replace(trajectory, segments=(replace(segment, prompt=prompt),))


def test_the_reward_of_a_turn_stands_on_its_own_reply() -> None:
    """The published export prints each reward one message early; here the first reply earned 0.5, the second -0.1, and 1."""
    turns = (
        Played(observation="o1", text="r1", reward=0.5),
        Played(observation="o2", text="r2", reward=0.0, format_penalty=-0.1),
        Played(observation="o3", text="r3", reward=1.0),
    )
    line = chat_line(with_system(Episode(turns=turns).made()))
    assert line["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "o1"},
        {"role": "assistant", "content": "r1", "reward": 0.5, "format_penalty": 0.0},
        {"role": "user", "content": "o2"},
        {"role": "assistant", "content": "r2", "reward": 0.0, "format_penalty": -0.1},
        {"role": "user", "content": "o3"},
        {"role": "assistant", "content": "r3", "reward": 1.0, "format_penalty": 0.0},
    ]
    assert line["metadata"]["return"] == 0.5 - 0.1 + 1.0
    assert (line["metadata"]["num_turns"], line["metadata"]["final_observation"]) == (3, "over")


def test_success_is_the_environment_s_word() -> None:
    """bug-log row 94: paid without success, and success without pay."""
    paid = chat_line(Episode(turns=(Played(reward=0.5),)).made())["metadata"]
    solved = chat_line(Episode(success=True, turns=(Played(reward=-0.1),)).made())["metadata"]
    assert (paid["success"], paid["return"], paid["end_reason"]) == (False, 0.5, "failed")
    assert (solved["success"], solved["return"], solved["end_reason"]) == (True, -0.1, "solved")


def test_an_episode_that_broke_is_marked_and_kept_with_its_error() -> None:
    broken = chat_line(Episode(end_reason=EndReason.TIMEOUT, error="late").made())["metadata"]
    assert (broken["failed"], broken["error"], broken["success"]) == (True, "late", False)


def test_a_summary_has_no_reward(tmp_path: Path) -> None:
    trajectory = played(CHATML, overflow="summarise", summarise_every=2, summary_tokens=30).trajectory
    messages = chat_line(trajectory)["messages"]
    assert [("reward" in message) for message in messages if message["role"] == "assistant"] == [True, True, False, True, True]
    assert sum(message.get("reward", 0.0) for message in messages) == trajectory.rewards


def test_a_file_holds_a_line_an_episode_and_seeds_to_the_last_digit(tmp_path: Path) -> None:
    seed = 2**63 - 1
    path = recorded(tmp_path, Episode(seed=seed, turns=(Played(text="né 🧍\u2028\x85x"),)).made(), Episode(seed=2).made())
    written = write_chat(find_source(path, keep="all"), tmp_path / "chat.jsonl")
    text = written.path.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]  # splits at \u2028 and \x85, too
    assert [line["metadata"]["task_seed"] for line in lines] == [seed, 2]
    assert lines[0]["messages"][1]["content"] == "né 🧍\u2028\x85x"
    assert "né 🧍" in text
    assert (written.num_episodes, written.num_rows) == (2, 2)


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_one_line_and_comes_back(text: str) -> None:
    line = json_line({"content": text})
    assert line.splitlines() == [line.removesuffix("\n")]
    assert json.loads(line) == {"content": text}
