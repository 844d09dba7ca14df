"""The Tower of Hanoi's rules on positions worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ragen.environments.hanoi.rules import all_moves, draw_state, move_name, play, show, top_disk, tower, why_not

A, B, C = range(3)


def test_the_top_disk_moves_onto_an_empty_peg_or_a_larger_disk() -> None:
    """Three disks on A: 1 to C, 2 to B, 1 onto 2."""
    state = tower(3, A)
    assert (state := play(state, (A, C)) or ()) == (C, A, A)
    assert (state := play(state, (A, B)) or ()) == (C, B, A)
    assert play(state, (C, B)) == (B, B, A)


@pytest.mark.parametrize(
    ("state", "move", "reason"),
    [
        ((A, A, A), (B, C), "peg B is empty"),
        ((C, A, A), (A, C), "disk 2 cannot lie on disk 1, which is smaller"),
        ((B, C, A), (A, B), "disk 3 cannot lie on disk 1, which is smaller"),
    ],
)
def test_a_move_that_is_not_allowed_is_refused_with_its_reason(
    state: tuple[int, ...], move: tuple[int, int], reason: str
) -> None:
    assert play(state, move) is None
    assert why_not(state, move) == reason


def test_the_top_disk_is_the_smallest() -> None:
    assert [top_disk((B, A, B), peg) for peg in (A, B, C)] == [1, 0, None]


def test_names_cover_every_ordered_pair() -> None:
    assert [move_name(move) for move in all_moves(3)] == ["A to B", "A to C", "B to A", "B to C", "C to A", "C to B"]
    assert len(all_moves(5)) == 20


def test_a_position_is_shown_from_the_bottom_up() -> None:
    assert show((B, A, A), 3) == "A: 3 2\nB: 1\nC: empty"


def test_every_position_is_drawn() -> None:
    random = np.random.default_rng(0)
    assert len({draw_state(2, 3, random) for _ in range(300)}) == 9
