"""The cube's rules: turns by hand, the group they form, what counts as solved."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.rubiks_cube import rules
from ragen.environments.rubiks_cube.rules import ALL_TURNS, FACES, QUARTER_TURNS, ROTATIONS, SOLVED, TURNS, Permutation

IDENTITY = tuple(range(24))
SEQUENCES = st.lists(st.sampled_from(ALL_TURNS), max_size=30)
OPPOSITE = {("U", "D"), ("L", "R"), ("F", "B")}

# The stickers that share a corner, read off the net by hand: each face numbers its stickers 0 1 / 2 3.
CORNERS = ["U0 L0 B1", "U1 B0 R1", "U2 F0 L1", "U3 R0 F1", "D0 L3 F2", "D1 F3 R2", "D2 B3 L2", "D3 R3 B2"]


def faces(cube: str) -> dict[str, str]:
    return {face: cube[4 * i : 4 * i + 4] for i, face in enumerate(FACES)}


def play(cube: str, names: list[str]) -> str:
    for name in names:
        cube = rules.turn(cube, name)
    return cube


def inverse(name: str) -> str:
    return {"": name + "'", "'": name[0], "2": name}[name[1:]]


def order(permutation: Permutation) -> int:
    """How often it must be repeated until nothing has changed."""
    power, times = permutation, 1
    while power != IDENTITY:
        power, times = rules.compose(power, permutation), times + 1
    return times


def corner_pieces(cube: str) -> list[str]:
    shown = faces(cube)
    return sorted("".join(sorted(shown[sticker[0]][int(sticker[1])] for sticker in corner.split())) for corner in CORNERS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Worked out by hand on the net: white up, green in front.
        ("U", {"U": "WWWW", "L": "GGOO", "F": "RRGG", "R": "BBRR", "B": "OOBB", "D": "YYYY"}),
        ("D", {"U": "WWWW", "L": "OOBB", "F": "GGOO", "R": "RRGG", "B": "BBRR", "D": "YYYY"}),
        ("L", {"U": "BWBW", "L": "OOOO", "F": "WGWG", "R": "RRRR", "B": "BYBY", "D": "GYGY"}),
        ("R", {"U": "WGWG", "L": "OOOO", "F": "GYGY", "R": "RRRR", "B": "WBWB", "D": "YBYB"}),
        ("F", {"U": "WWOO", "L": "OYOY", "F": "GGGG", "R": "WRWR", "B": "BBBB", "D": "RRYY"}),
        ("B", {"U": "RRWW", "L": "WOWO", "F": "GGGG", "R": "RYRY", "B": "BBBB", "D": "YYOO"}),
    ],
)
def test_a_clockwise_turn_of_the_solved_cube(name: str, expected: dict[str, str]) -> None:
    """Bug-log row 37: what each name does."""
    assert faces(rules.turn(SOLVED, name)) == expected


def test_a_turn_moves_the_stickers_on_the_face_itself_clockwise() -> None:
    cube = "1234" + SOLVED[4:]  # the four stickers of U told apart
    assert faces(rules.turn(cube, "U"))["U"] == "3142"
    assert faces(rules.turn(cube, "U'"))["U"] == "2413"
    assert faces(rules.turn(cube, "U2"))["U"] == "4321"


def test_strips_turn_round_where_the_net_turns_round() -> None:
    """B carries the upper row of U to the left column of L upside down: the turn that the published cube got wrong."""
    cube = "12" + SOLVED[2:]
    assert faces(rules.turn(cube, "B"))["L"] == "2O1O"
    assert faces(rules.turn(cube, "B'"))["R"] == "R1R2"


@pytest.mark.parametrize("face", FACES)
def test_every_turn_has_order_four_and_its_half_order_two(face: str) -> None:
    assert [order(TURNS[face]), order(TURNS[f"{face}'"]), order(TURNS[f"{face}2"])] == [4, 4, 2]
    assert rules.compose(TURNS[face], TURNS[f"{face}'"]) == IDENTITY


@pytest.mark.parametrize(("first", "second"), list(combinations("UDLRFB", 2)))
def test_opposite_faces_commute_and_the_commutator_of_neighbours_has_order_six(first: str, second: str) -> None:
    """The published B turn gave [L, B] and [R, B] order 35."""
    commutator = IDENTITY
    for name in (first, second, f"{first}'", f"{second}'"):
        commutator = rules.compose(commutator, TURNS[name])
    assert order(commutator) == (1 if (first, second) in OPPOSITE else 6)


@given(SEQUENCES)
def test_corners_never_come_apart(names: list[str]) -> None:
    """The published B turn tore three corner pieces apart."""
    assert corner_pieces(play(SOLVED, names)) == corner_pieces(SOLVED)


@given(SEQUENCES)
def test_a_sequence_backwards_undoes_itself(names: list[str]) -> None:
    assert play(play(SOLVED, names), [inverse(name) for name in reversed(names)]) == SOLVED


def test_there_are_twenty_four_ways_to_hold_a_cube() -> None:
    assert ROTATIONS[0] == IDENTITY
    assert len(set(ROTATIONS)) == 24
    assert all(rules.compose(a, b) in ROTATIONS for a in ROTATIONS for b in ROTATIONS)
    assert len({rules.hold(SOLVED, i) for i in range(24)}) == 24


@given(SEQUENCES, st.integers(0, 23))
def test_solved_is_one_colour_a_face_however_the_cube_is_held(names: list[str], rotation: int) -> None:
    cube = rules.hold(play(SOLVED, names), rotation)
    assert rules.is_solved(cube) is all(len(set(face)) == 1 for face in faces(cube).values())


def test_turning_both_of_two_opposite_faces_along_only_turns_the_cube_in_the_hand() -> None:
    assert rules.is_solved(play(SOLVED, ["R", "L'"]))
    assert play(SOLVED, ["R", "L'"]) != SOLVED
    assert not rules.is_solved(play(SOLVED, ["R", "L"]))


def test_the_names_of_the_turns() -> None:
    assert " ".join(QUARTER_TURNS) == "U U' D D' L L' R R' F F' B B'"
    assert " ".join(ALL_TURNS) == "U U' U2 D D' D2 L L' L2 R R' R2 F F' F2 B B' B2"


def test_a_cube_is_shown_face_by_face() -> None:
    assert rules.show(rules.turn(SOLVED, "L")) == (
        "U: B W / B W\nL: O O / O O\nF: W G / W G\nR: R R / R R\nB: B Y / B Y\nD: G Y / G Y"
    )
