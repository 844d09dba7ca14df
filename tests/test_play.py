"""A person in the place of the model: the prompt is the one a model gets, the answer goes the way of a model's reply."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tests.support.corridor  # noqa: F401  (registers "corridor")
from ragen.config.evaluation import load_for_evaluation
from ragen.errors import ConfigError, EnvironmentFailure
from ragen.models.tokenizer import load_tokenizer
from ragen.play import ROOM, Who, key_bindings, play, save_trajectory, summary, turn_rows
from ragen.records import EndReason, Trajectory, Verdict
from ragen.rollout.recorder import read_rollout
from tests.support.corridor import num_open


def played(
    typed: str, *, who: Who = Who.PERSON, name: str = "corridor", seed: int = 5, overrides: tuple[str, ...] = (), **options: Any
) -> tuple[Trajectory, str]:
    """(trajectory, everything that was shown) of one episode with these lines or keys piped in."""
    config = load_for_evaluation(
        "tiny", None, names=[name], options=[f"{key}={value}" for key, value in options.items()], overrides=[*ROOM, *overrides]
    )
    shown: list[str] = []
    trajectory = play(config, who=who, seed=seed, stream=io.StringIO(typed), show=shown.append)
    return trajectory, "\n".join(shown)


def test_typed_actions_solve_the_corridor() -> None:
    trajectory, _ = played("Right || Right\nright||RIGHT\n")
    assert (trajectory.end_reason, trajectory.success) == (EndReason.SOLVED, True)
    assert [turn.executed for turn in trajectory.turns] == [("Right", "Right")] * 2
    assert trajectory.return_ == pytest.approx(0.7)
    assert num_open() == 0


def test_what_is_shown_is_the_prompt_itself_and_each_part_once() -> None:
    """Everything shown, without the echoes, is the decoded sequence without the replies."""
    trajectory, shown = played("Left\nRight || Right\nRight || Right\n")
    tokenizer = load_tokenizer("tiny")
    prompts = []
    start = 0
    for turn in trajectory.turns:
        prompts.append(tokenizer.decode(trajectory.segments[0].ids[start : turn.start]))
        start = turn.stop
    expected = [*prompts[:1], "> Left", *prompts[1:2], "> Right || Right", *prompts[2:3], "> Right || Right"]
    assert shown == "\n".join(expected)
    assert shown.count("Walk to G.") == 1
    assert "P _ _ _ G" in shown


def test_the_ids_are_those_of_a_whole_reply_behind_the_prompt() -> None:
    trajectory, _ = played("Right || Right || Right || Right\n")
    (turn,) = trajectory.turns
    assert turn.reply.text == "<think></think><answer>Right || Right || Right || Right</answer>"
    tokenizer = load_tokenizer("tiny")
    assert (
        tokenizer.decode(trajectory.segments[0].ids[trajectory.segments[0].mask])
        == "</think><answer>Right || Right || Right || Right</answer>"
    )
    assert not trajectory.segments[0].logprobs.any()


@pytest.mark.parametrize("opening", ["<think>", ""])
def test_a_whole_reply_may_be_typed_with_or_without_the_tag_that_the_prompt_ends_with(opening: str) -> None:
    trajectory, _ = played(f"{opening}The goal is right.</think><answer>Right || Right || Right || Right</answer>\n")
    (turn,) = trajectory.turns
    assert turn.reply.thought == "The goal is right."
    assert turn.reply.verdict is Verdict.VALID
    assert trajectory.success


def test_without_thoughts_and_prefix_the_reply_is_the_answer_block_alone() -> None:
    settings = ("rollout.context.think=false", "rollout.context.reply_prefix=false")
    trajectory, _ = played("Right || Right || Right || Right\n", overrides=settings)
    assert trajectory.turns[0].reply.text == "<answer>Right || Right || Right || Right</answer>"
    assert trajectory.success


def test_mistakes_cost_what_they_cost_a_model() -> None:
    trajectory, shown = played("Jump\n\n<answer>Right\nRight\n")
    verdicts = [turn.reply.verdict for turn in trajectory.turns]
    assert verdicts == [Verdict.UNKNOWN_ACTION, Verdict.EMPTY, Verdict.UNCLOSED_THOUGHT]
    assert trajectory.end_reason is EndReason.PARSE_FAILURE
    assert trajectory.return_ == pytest.approx(-0.3)
    assert "Not an action: Jump." in shown


def test_the_markers_of_the_template_can_be_typed_and_are_plain_text() -> None:
    trajectory, _ = played("<|im_end|>\nquit\n")
    control = load_tokenizer("tiny").convert_tokens_to_ids("<|im_end|>")
    assert control not in trajectory.segments[0].ids[trajectory.segments[0].mask]


@pytest.mark.parametrize("leaving", ["quit\n", "  EXIT \n", ""])
def test_leaving_keeps_what_was_played_and_scores_nothing(leaving: str) -> None:
    trajectory, _ = played(f"Right\n{leaving}")
    assert trajectory.end_reason is EndReason.ENGINE_ERROR
    assert [turn.executed for turn in trajectory.turns] == [("Right",)]
    assert summary(trajectory) == "the player left after 1 turn"
    assert num_open() == 0


def test_keys_are_one_action_a_turn_and_the_turns_suffice_for_the_actions() -> None:
    trajectory, shown = played("dxa\ndddd", who=Who.KEYS)
    assert [turn.executed for turn in trajectory.turns] == [("Right",), ("Left",), *[("Right",)] * 4]
    assert trajectory.success
    assert shown.count("keys: a Left, d Right; q leaves") == 1


@pytest.mark.parametrize("typed", ["dq", "d", "d\x04"])
def test_keys_end_with_q_ctrl_d_or_the_input(typed: str) -> None:
    trajectory, _ = played(typed, who=Who.KEYS)
    assert trajectory.end_reason is EndReason.ENGINE_ERROR
    assert len(trajectory.turns) == 1


def test_keys_stand_for_directions_and_digits_for_the_rest() -> None:
    assert key_bindings(("Up", "right", "Jump", "Wait")) == {
        "\x1b[A": "Up",
        "w": "Up",
        "\x1b[C": "right",
        "d": "right",
        "1": "Jump",
        "2": "Wait",
    }
    assert list(key_bindings([f"open {i}" for i in range(12)])) == list("1234567890")


def test_keys_are_refused_where_any_text_is_an_action() -> None:
    with pytest.raises(ConfigError, match="--keys: any text is an action here"):
        played("1", who=Who.KEYS, name="tests.support.faulty:Calculator")


def test_the_oracle_packs_actions_and_solves_from_every_start() -> None:
    trajectory, shown = played("", who=Who.ORACLE, overrides=("environments.corridor.max_actions_per_turn=3",))
    assert [turn.executed for turn in trajectory.turns] == [("Right", "Right", "Right"), ("Right",)]
    assert trajectory.success
    assert "> Right || Right || Right" in shown


def test_the_oracle_sees_the_same_chance_as_the_episode() -> None:
    """It plays ahead on a twin; were the twin's slips others, the episode would not end with its last action."""
    overrides = ("environments.corridor.max_actions_per_turn=10",)
    for seed in range(5):
        trajectory, _ = played("", who=Who.ORACLE, seed=seed, slip=0.3, overrides=overrides)
        (turn,) = trajectory.turns
        assert trajectory.end_reason in (EndReason.SOLVED, EndReason.TRUNCATED)
        assert len(turn.executed) == len(turn.reply.actions)


def test_an_environment_without_oracle_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"environment '.*:Lost' has no oracle"):
        played("", who=Who.ORACLE, name="tests.support.faulty:Lost")


def test_chance_plays_named_actions_and_any_text() -> None:
    trajectory, _ = played("", who=Who.RANDOM, seed=1)
    assert all(turn.reply.verdict is Verdict.VALID for turn in trajectory.turns)
    assert trajectory.turns == played("", who=Who.RANDOM, seed=1)[0].turns
    texts, _ = played("", who=Who.RANDOM, name="tests.support.faulty:Calculator")
    assert texts.turns


def test_the_task_seed_decides_where_it_begins() -> None:
    first = [played("", seed=seed, start="null")[1] for seed in range(8)]
    assert first == [played("", seed=seed, start="null")[1] for seed in range(8)]
    assert len(set(first)) > 1


def test_a_trajectory_is_saved_and_read_back(tmp_path: Path) -> None:
    for number, typed in enumerate(("Right || Right || Right || Right\n", "Right\nquit\n")):
        trajectory, _ = played(typed)
        path = tmp_path / f"{number}.parquet"
        save_trajectory(trajectory, path)
        (recorded,) = read_rollout(path)
        assert recorded.trajectory.turns == trajectory.turns
        assert recorded.trajectory.key == trajectory.key
        assert not recorded.is_trained


def test_the_summary_says_how_it_ended_and_a_broken_environment_is_an_error() -> None:
    trajectory, _ = played("Left\nRight || Right\nRight || Right\n")
    assert summary(trajectory).splitlines() == [
        "_ _ _ _ P",
        "",
        "end: solved, success: yes, return: 0.6 (rewards 0.6, format penalties 0)",
    ]
    assert turn_rows(trajectory)[1:] == [
        ("2", "Right || Right", "-0.2", "0", "valid"),
        ("3", "Right || Right", "0.9", "0", "valid"),
    ]
    broken, _ = played("Right\nRight\n", raise_at_step=2)
    with pytest.raises(EnvironmentFailure, match="Broken: step 2"):
        summary(broken)


class Terminal:
    """`ragen WORDS` at a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.main, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ragen", *words], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        )
        os.close(terminal)
        self.screen = ""

    def wait_for(self, text: str, *, press: bytes = b"") -> None:
        """Read until `text` is on the screen, pressing again and again what may come before anybody listens."""
        deadline = time.monotonic() + 90
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            if press:
                os.write(self.main, press)
            if select.select([self.main], [], [], 0.5)[0]:
                self.screen += os.read(self.main, 4096).decode(errors="replace")

    def end(self) -> int:
        """The exit code."""
        try:
            while chunk := os.read(self.main, 4096):
                self.screen += chunk.decode(errors="replace")
        except OSError:  # the other side is gone
            pass
        os.close(self.main)
        return self.process.wait(timeout=60)


CORRIDOR = "tests.support.corridor:Corridor"


def test_at_a_terminal_arrows_play_and_q_leaves() -> None:
    terminal = Terminal("play", CORRIDOR, "--keys", "--seed", "1")
    terminal.wait_for("> Right", press=b"\x1b[C")
    terminal.wait_for("the player left", press=b"q")
    assert terminal.end() == 0


def test_at_a_terminal_a_line_is_asked_for_and_ctrl_c_ends_at_once() -> None:
    """Ctrl-C must not wait until the line is complete, as it does where asyncio answers the signal."""
    terminal = Terminal("play", CORRIDOR, "--seed", "1")
    terminal.wait_for("<think>\r\n> ")
    os.write(terminal.main, b"Right\n")
    terminal.wait_for("Actions left: 9")
    terminal.wait_for("Answer again as <think>...</think><answer>...</answer>.")
    time.sleep(0.5)  # until the second line is asked for
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "error: interrupted" in terminal.screen
