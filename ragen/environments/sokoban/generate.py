"""Rooms by playing backwards: a random walk carves the floor, boxes stand on their targets and are pulled away from them.

Source: the generator of gym-sokoban as RAGEN adapts it: a walk, the placement, a reverse play scored by box changes x
displacement, and a last short walk of the player.
Differs from the published:
- all draws come from one generator, and a failed try is followed by the next draws of the same stream, so that a seed gives the
  same room everywhere (the published retries depend on Python's salted string hash);
- a reverse play visits at most MAX_STATES states (published: 300 000), so that no room takes longer than some milliseconds;
- each room comes with the moves that undo its reverse play: a proof that it can be solved;
- the length of the shortest solution can be bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ragen.environments.sokoban.rules import Room, State, build_room, cells
from ragen.environments.sokoban.solver import SearchLimitError, is_solved_within

MAX_TRIES = 10_000
MAX_STATES = 10_000  # of one reverse play

_TURN_PROB = 0.35  # that the walk draws its direction anew before a step
_WALK_STEPS = 1.7  # of the walk, per row and column
_SCATTER_STEPS = 3  # at most, of the player after the reverse play
_MAX_SEARCH_ENTRIES = 20_000  # of the search that measures one room's solution; a room that needs more is dropped

_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
# (row, column) offsets of the cells that become floor around a walker: two bars, two corners, a block of four.
_STAMPS = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)

_Draws = Iterator[float]  # uniform in [0, 1)


@dataclass(frozen=True, kw_only=True)
class RoomSpec:
    """What kind of room is wanted. Lengths count moves, pushes included; `max_solution_length` None is no bound."""

    height: int
    width: int
    num_boxes: int
    search_depth: int  # moves of the reverse play
    min_solution_length: int
    max_solution_length: int | None


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    """A room as an episode finds it, and `proof`: actions (indices of ACTIONS) that solve it, seldom in the fewest moves."""

    room: Room
    start: State
    proof: tuple[int, ...]


def generate(spec: RoomSpec, random: np.random.Generator, *, max_tries: int = MAX_TRIES) -> Puzzle | None:
    """A room as wanted, solvable, with no box on a target; None if none of `max_tries` tries gave one."""
    for _ in range(max_tries):
        puzzle = _try(spec, iter(random.random(_num_draws(spec)).tolist()))
        if puzzle is not None and _has_wanted_length(puzzle, spec):
            return puzzle
    return None


def _num_draws(spec: RoomSpec) -> int:
    """How many draws a try takes at most. One call for all of them is far cheaper than a call for each."""
    return 3 + 3 * _walk_length(spec) + 1 + spec.num_boxes + 1 + 2 * _SCATTER_STEPS


def _walk_length(spec: RoomSpec) -> int:
    return int(_WALK_STEPS * (spec.height + spec.width))


def _try(spec: RoomSpec, draws: _Draws) -> Puzzle | None:
    floor = _carve(spec, draws)
    free = list(cells(floor))
    if len(free) < 2 * spec.num_boxes + 1:  # for the player, the targets, and the boxes beside them
        return None
    player = _take(free, draws)
    targets = sum(1 << _take(free, draws) for _ in range(spec.num_boxes))
    room = build_room(height=spec.height, width=spec.width, floor=floor, targets=targets)
    end = _play_backwards(room, player, spec.search_depth)
    if end is None:
        return None
    trail = _scatter(room, end, draws)[::-1] + _way_back(room, end)
    proof = tuple(room.steps.index(after - before) for before, after in pairwise(trail))
    return Puzzle(room=room, start=State(trail[0], end.haul.boxes), proof=proof)


def _carve(spec: RoomSpec, draws: _Draws) -> int:
    """The floor that a random walk leaves behind. It never touches the border."""
    last_row, last_column = spec.height - 2, spec.width - 2
    stamps = _stamped(spec.height, spec.width)
    row, column = (1 + int(next(draws) * (size - 1)) for size in (spec.height, spec.width))
    down, right = _DIRECTIONS[int(next(draws) * 4)]
    floor = 0
    for _ in range(_walk_length(spec)):
        if next(draws) < _TURN_PROB:
            down, right = _DIRECTIONS[int(next(draws) * 4)]
        row = min(max(row + down, 1), last_row)
        column = min(max(column + right, 1), last_column)
        floor |= stamps[row * spec.width + column][int(next(draws) * len(_STAMPS))]
    return floor


@lru_cache(maxsize=64)
def _stamped(height: int, width: int) -> tuple[tuple[int, ...], ...]:
    """For each cell the sets that the stamps put down around it, without the border."""

    def put_down(stamp: tuple[tuple[int, int], ...], row: int, column: int) -> int:
        around = [(row + down, column + right) for down, right in stamp]
        return sum(1 << y * width + x for y, x in around if 0 < y < height - 1 and 0 < x < width - 1)

    return tuple(tuple(put_down(stamp, row, column) for stamp in _STAMPS) for row in range(height) for column in range(width))


def _take(items: list[int], draws: _Draws) -> int:
    return items.pop(int(next(draws) * len(items)))


class _Haul(NamedTuple):
    """Where the boxes are after some pulls, box by box in `places`. The score of a state with a box on a target is 0."""

    boxes: int
    places: tuple[int, ...]
    last: int  # the box pulled last, -1 before the first pull
    num_changes: int  # how often the pulled box was another than before
    score: int


class _Node(NamedTuple):
    """A state of the reverse play and how it was reached."""

    player: int
    haul: _Haul
    depth: int
    parent: _Node | None


def _play_backwards(room: Room, player: int, max_depth: int) -> _Node | None:
    """The state with the highest score, the first of equals; None if none has every box off the targets.

    Depth first over the player's moves, each of which drags along a box that stands right behind the player.
    """
    targets = tuple(cells(room.targets))
    best: _Node | None = None
    best_score = 0
    stack = [_Node(player, _Haul(room.targets, targets, -1, 0, 0), 0, None)]
    visited: dict[int, int] = {}  # boxes -> player cells
    num_states = 0
    while stack and num_states < MAX_STATES:
        node = stack.pop()
        player, haul, depth, _ = node
        boxes = haul.boxes
        here = visited.get(boxes, 0)
        if here >> player & 1:
            continue
        visited[boxes] = here | 1 << player
        num_states += 1
        if haul.score > best_score:
            best, best_score = node, haul.score
        if depth == max_depth:
            continue
        free = room.floor & ~boxes
        for step in room.steps:
            ahead, behind = player + step, player - step
            if free >> ahead & 1:
                after = _pull(room, targets, haul, behind, player) if boxes >> behind & 1 else haul
                if not visited.get(after.boxes, 0) >> ahead & 1:
                    stack.append(_Node(ahead, after, depth + 1, node))
    return best


def _pull(room: Room, targets: tuple[int, ...], haul: _Haul, old: int, new: int) -> _Haul:
    """The boxes after the one at `old` was pulled to `new`."""
    box = haul.places.index(old)
    places = (*haul.places[:box], new, *haul.places[box + 1 :])
    boxes = haul.boxes ^ (1 << old | 1 << new)
    num_changes = haul.num_changes + (box != haul.last)
    score = 0 if boxes & room.targets else num_changes * _displacement(targets, places, room.width)
    return _Haul(boxes, places, box, num_changes, score)


def _displacement(origins: tuple[int, ...], places: tuple[int, ...], width: int) -> int:
    """The sum of the Manhattan distances between where boxes come from and where they are."""
    return sum(abs(a // width - b // width) + abs(a % width - b % width) for a, b in zip(origins, places, strict=True))


def _scatter(room: Room, end: _Node, draws: _Draws) -> list[int]:
    """The player's cells on a last short walk, from where it stands; it pushes no box and steps on no cell twice."""
    trail = [end.player]
    displacement = _displacement(tuple(cells(room.targets)), end.haul.places, room.width)
    if next(draws) >= (0.8 if displacement == 1 else 0.5):
        return trail
    free = room.floor & ~end.haul.boxes & ~(1 << end.player)
    for _ in range(_SCATTER_STEPS):
        open_cells = [cell for step in room.steps if free >> (cell := trail[-1] + step) & 1]
        if not open_cells:
            break
        trail.append(open_cells[int(next(draws) * len(open_cells))])
        free &= ~(1 << trail[-1])
        if next(draws) >= 0.5:
            break
    return trail


def _way_back(room: Room, end: _Node) -> list[int]:
    """The player's cells, after the one where the reverse play ended, that undo it until every box is back on a target."""
    trail = []
    node = end
    while node.parent is not None and node.haul.boxes != room.targets:
        node = node.parent
        trail.append(node.player)
    return trail


def _has_wanted_length(puzzle: Puzzle, spec: RoomSpec) -> bool:
    """Is the shortest solution within the bounds? The proof often decides; no search goes further than a bound."""
    fewest, most = spec.min_solution_length, spec.max_solution_length
    if len(puzzle.proof) < fewest:
        return False
    try:
        if fewest > 1 and is_solved_within(puzzle.room, puzzle.start, fewest - 1, max_entries=_MAX_SEARCH_ENTRIES):
            return False
        if most is None or len(puzzle.proof) <= most:
            return True
        return is_solved_within(puzzle.room, puzzle.start, most, max_entries=_MAX_SEARCH_ENTRIES)
    except SearchLimitError:
        return False
