"""Sudoku as an environment: what is read, what is paid, when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.checker import check_environment
from ragen.environments.registry import configure
from ragen.environments.sudoku.env import SudokuConfig, SudokuEnv
from ragen.environments.sudoku.rules import Board, Puzzle
from ragen.errors import ConfigError

NAME = "ragen.environments.sudoku.env:SudokuEnv"
PUZZLE = Puzzle(
    size=4,
    givens=(0, 0, 3, 4, 3, 4, 1, 2, 0, 1, 4, 3, 4, 3, 2, 1),
    solution=(1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1),
)


def playing(**options: Any) -> SudokuEnv:
    """An environment in the middle of an episode with a puzzle made by hand."""
    env = SudokuEnv(SudokuConfig(**options))
    env.reset(seed=0)
    env.puzzle, env.board = PUZZLE, Board(cells=PUZZLE.givens)
    return env


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_blanks": 12, "observation_format": "simple", "show_candidates": True, "show_conflicts": False},
        {"size": 9, "difficulty": "medium"},
        {"correct_placement_score": 0.1, "completion_bonus": 0.3, "invalid_action_score": 0.0},
    ],
)
def test_the_contract_is_kept(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


def test_an_episode_from_start_to_end() -> None:
    env = playing(observation_format="simple")
    assert env.step("place 1 at row 1 col 1") == (
        "Placed 1 at row 1 col 1.\n1 . 3 4\n3 4 1 2\n. 1 4 3\n4 3 2 1",
        1.0,
        False,
        False,
        {"success": False, "effective": True, "right_frac": 1 / 3},
    )
    observation, reward, terminated, truncated, info = env.step("hello")
    assert observation == ("This is not a move. Write a move like: place 3 at row 1 col 2\n1 . 3 4\n3 4 1 2\n. 1 4 3\n4 3 2 1")
    assert (reward, terminated, truncated) == (-0.1, False, False)
    assert info == {"success": False, "effective": False, "right_frac": 1 / 3}
    assert env.step("1,2,1")[1] == -0.1
    assert env.step("2 at (1,2)")[1] == 1.0
    observation, reward, terminated, truncated, info = env.step("2 at 3,1")
    assert observation == "Placed 2 at row 3 col 1. The Sudoku is solved.\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"
    assert (reward, terminated, truncated) == (11.0, True, False)
    assert info == {"success": True, "effective": True, "right_frac": 1.0}


def test_a_wrong_digit_takes_back_progress_but_no_points() -> None:
    env = playing()
    env.step("1 at 1,1")
    _, reward, _, _, info = env.step("2 at 1,1")
    assert (reward, info["right_frac"]) == (0.0, 0.0)


def test_candidates_are_shown_until_the_board_is_full() -> None:
    env = playing(show_candidates=True, observation_format="simple")
    env.step("1,1,1")
    assert env.step("1,2,2")[0].endswith("4 3 2 1\nCandidates of the empty cells:\nrow 3 col 1: 2")
    assert "Candidates" not in env.step("3,1,2")[0]


def test_show_conflicts_says_where_a_refused_digit_stands() -> None:
    assert "1 is already in col 2." in playing(show_conflicts=True).step("1 at 1,2")[0]
    assert "it breaks a rule." in playing(show_conflicts=False).step("1 at 1,2")[0]


@given(st.text())
def test_no_text_raises(text: str) -> None:
    observation, reward, *_ = playing().step(text)
    observation.encode()
    assert reward in (-0.1, 0.0, 1.0)


@pytest.mark.parametrize("text", ["", "9**9**9", "1" * 1_000_000, "(" * 1_000_000, "\0", "\ud800", "😀" * 300])
def test_absurd_texts_are_answered_briefly(text: str) -> None:
    observation, reward, _, _, info = playing().step(text)
    observation.encode()
    assert len(observation) < 250
    assert (reward, info["effective"]) == (-0.1, False)


@pytest.mark.parametrize(
    ("options", "num_blanks"),
    [
        ({}, 6),
        ({"difficulty": "medium"}, 8),
        ({"difficulty": "hard"}, 9),
        ({"size": 9}, 32),
        ({"size": 9, "difficulty": "medium"}, 40),
        ({"size": 9, "difficulty": "hard"}, 48),
        ({"size": 9, "difficulty": "hard", "num_blanks": 3}, 3),
    ],
)
def test_the_oracle_earns_all_there_is_in_one_action_a_blank(options: dict[str, Any], num_blanks: int) -> None:
    env = SudokuEnv(SudokuConfig(**options))
    for seed in range(3):
        env.reset(seed=seed)
        answers = [env.step(env.oracle_action() or "") for _ in range(num_blanks)]
        assert sum(reward for _, reward, *_ in answers) == env.max_return() == num_blanks + 10
        assert [terminated for _, _, terminated, _, _ in answers] == [False] * (num_blanks - 1) + [True]
        assert env.oracle_action() is None


def test_the_same_seed_gives_the_same_prompt_in_another_process() -> None:
    script = (
        "from ragen.environments.sudoku.env import SudokuEnv; env = SudokuEnv(); observation, _ = env.reset(seed=11); "
        "print(env.instruction, observation)"
    )
    env = SudokuEnv()
    observation, _ = env.reset(seed=11)
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True
        )
        assert done.stdout == f"{env.instruction} {observation}\n", done.stderr


def test_different_seeds_give_different_puzzles() -> None:
    env = SudokuEnv()
    assert len({env.reset(seed=seed)[0] for seed in range(100)}) > 95


def test_the_instruction_tells_a_small_model_all_it_needs() -> None:
    """bug-log row 37: names of actions and what they do stand in the prompt; those written there are the ones that work."""
    env = playing()
    for needed in (
        "4x4",
        "2x2 box",
        "from 1 to 4",
        "[3] is a given digit",
        ". is an empty cell",
        "Rows count from the top",
        '"place 3 at row 1 col 2"',
        '"clear row 1 col 2"',
        "Reward: 1 ",
        "10 more",
        "-0.1 for",
    ):
        assert needed in env.instruction
    assert len(env.instruction.split()) < 180
    for taught in ("place 2 at row 1 col 2", "clear row 1 col 2"):
        assert env.step(taught)[4]["effective"]


def test_the_instruction_follows_the_options() -> None:
    env = SudokuEnv(SudokuConfig(size=9, observation_format="simple", correct_placement_score=0.5, completion_bonus=2.0))
    env.reset(seed=0)
    assert "3x3 box" in env.instruction
    assert "[3]" not in env.instruction  # simple boards have no brackets
    assert "Reward: 0.5 when a cell first gets its right digit, 2 more" in env.instruction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 16}, "size=16: must be 4 or 9"),
        ({"difficulty": "meduim"}, "difficulty='meduim': must be one of easy, medium, hard; did you mean 'medium'?"),
        (
            {"observation_format": "detail"},
            "observation_format='detail': must be one of simple, detailed; did you mean 'detailed'?",
        ),
        ({"num_blanks": 0}, "num_blanks=0: must be within 1..12 for size 4"),
        ({"num_blanks": 13}, "num_blanks=13: must be within 1..12 for size 4"),
        ({"num_blanks": 55, "size": 9}, "num_blanks=55: must be within 1..54 for size 9"),
        ({"correct_placement_score": -1.0}, "correct_placement_score=-1.0: must be at least 0"),
        ({"completion_bonus": -1.0}, "completion_bonus=-1.0: must be at least 0"),
        ({"invalid_action_score": 0.1}, "invalid_action_score=0.1: must be at most 0"),
    ],
)
def test_options_out_of_range_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(NAME, options, where="sudoku")
    assert str(refused.value) == f"sudoku.{message}"
