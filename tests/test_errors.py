from __future__ import annotations

import sys

import pytest

from ragen.errors import EnvironmentFailure, ModelError, boundary, near_match


def test_a_foreign_exception_becomes_one_line_with_its_place_and_cause() -> None:
    with (
        pytest.raises(EnvironmentFailure, match=r"^reset of maze: ValueError: no way out$") as caught,
        boundary(EnvironmentFailure, "reset of maze"),
    ):
        raise ValueError("no\n way   out")
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_ours_passes_unchanged() -> None:
    ours = ModelError("no weights")
    with pytest.raises(ModelError) as caught, boundary(EnvironmentFailure, "reset"):
        raise ours
    assert caught.value is ours


def test_outside_code_that_leaves_the_program_is_a_failure_not_a_success() -> None:
    """An environment that called sys.exit(0) once ended a training run with exit code 0."""
    with pytest.raises(EnvironmentFailure, match="SystemExit: 0"), boundary(EnvironmentFailure, "step"):
        sys.exit(0)


def test_an_interrupt_is_nobodys_failure() -> None:
    with pytest.raises(KeyboardInterrupt), boundary(EnvironmentFailure, "step"):
        raise KeyboardInterrupt


def test_the_near_match_keeps_the_spelling_of_the_known_name() -> None:
    assert near_match("sokobann", ["Sokoban", "bandit"]) == "; did you mean 'Sokoban'?"
    assert near_match("xyz", ["Sokoban", "bandit"]) == ""
