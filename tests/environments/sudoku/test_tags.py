"""The shipped tags: their budgets hold enough turns and actions, which the published ones did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import ragen
from ragen.environments.sudoku.env import SudokuConfig, SudokuEnv

TAGS = sorted((Path(ragen.__file__).parent / "conf/env").glob("sudoku*.yaml"))


@pytest.mark.parametrize("path", TAGS, ids=lambda path: path.stem)
def test_the_budget_suffices_with_one_action_a_turn_and_two_mistakes(path: Path) -> None:
    tag = OmegaConf.load(path)
    env = SudokuEnv(SudokuConfig(**tag.get("options", {})))
    env.reset(seed=0)
    assert env.puzzle.num_blanks + 2 <= tag.max_turns
    assert env.puzzle.num_blanks + 4 <= tag.max_actions  # a mistake costs an action to make and one to mend


def test_the_tags_are_those_described() -> None:
    assert [path.stem for path in TAGS] == ["sudoku", "sudoku_easy", "sudoku_medium"]
