"""How far a 2x2x2 cube is from solved: a table over all positions, filled outwards from the solved one as far as was asked for.

Held so that the corner between D, B and L is where it belongs, a cube has 7! * 3**6 = 3 674 160 positions: seven pieces in seven
places, each twisted by 0, 1 or 2 thirds of a turn, the last twist following from the others. Turning a face or the one opposite
differs only in how the cube is held afterwards, so that the turns of U, F and R, which leave that corner alone, reach them all.

The breadth-first search goes by levels over whole numpy arrays, since the order of the pieces and their twists change
independently: a position is `number of the order * 729 + number of the twists`. Once in a process, the first levels take some
20 milliseconds and all of them less than a second; the whole table holds 18 MB.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations
from threading import Lock

import numpy as np

from ragen.environments.rubiks_cube.rules import ROTATIONS, SOLVED, STICKERS, hold, turn

_NUM_TWISTS = 3**6
_NUM_POSITIONS = 5040 * _NUM_TWISTS
_UNKNOWN = 255
_QUARTERS = ("U", "U'", "R", "R'", "F", "F'")
_HALVES = ("U2", "R2", "F2")
MAX_DISTANCE = {False: 14, True: 11}  # turns that the farthest position needs: quarter turns only, or half turns as well


def _corners() -> tuple[tuple[int, int, int], ...]:
    """The stickers of each place: the one on U or D first, then clockwise seen from outside. DBL, kept fixed, is last."""
    corners = []
    for place in sorted({place for place, _ in STICKERS}, reverse=True):
        stickers = [i for i, sticker in enumerate(STICKERS) if sticker[0] == place]
        first, second, third = sorted(stickers, key=lambda i: STICKERS[i][1][1] == 0)
        clockwise = np.linalg.det([STICKERS[i][1] for i in (first, second, third)]) < 0
        corners.append((first, second, third) if clockwise else (first, third, second))
    return tuple(corners)


_CORNERS = _corners()
_COLOURS_OF_PIECE = tuple("".join(SOLVED[i] for i in corner) for corner in _CORNERS)
_FIXED, _FIXED_COLOURS = _CORNERS[-1], _COLOURS_OF_PIECE[-1]
# The three colours that a place shows -> (piece, twist): the sticker that belongs on U or D lies `twist` steps clockwise.
_SHOWN = {
    colours[3 - twist :] + colours[: 3 - twist]: (piece, twist)
    for piece, colours in enumerate(_COLOURS_OF_PIECE)
    for twist in range(3)
}

_ORDERS = tuple(permutations(range(7)))
_NUMBER_OF_ORDER = {order: number for number, order in enumerate(_ORDERS)}
_THIRDS = (1, 3, 9, 27, 81, 243)


def _upright(cube: str) -> str:
    """The same cube, held so that its fixed corner is in place."""
    candidates = (hold(cube, rotation) for rotation in range(len(ROTATIONS)))
    return next(held for held in candidates if "".join(held[i] for i in _FIXED) == _FIXED_COLOURS)


def _read(upright: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(which piece is in each of the seven places, how it is twisted)."""
    found = [_SHOWN[upright[a] + upright[b] + upright[c]] for a, b, c in _CORNERS[:-1]]
    return tuple(piece for piece, _ in found), tuple(twist for _, twist in found)


def position(cube: str) -> int:
    """The number of a cube's position, below 3 674 160; the same however the cube is held."""
    pieces, twists = _read(_upright(cube))
    number_of_twists = sum(twist * third for twist, third in zip(twists[:6], _THIRDS, strict=True))
    return _NUMBER_OF_ORDER[pieces] * _NUM_TWISTS + number_of_twists


def cube_at(number: int) -> str:
    """The cube in position `number`, held so that its fixed corner is in place."""
    order, rest = divmod(number, _NUM_TWISTS)
    twists = [rest // third % 3 for third in _THIRDS]
    twists.append(-sum(twists) % 3)
    cube = list(SOLVED)
    for corner, piece, twist in zip(_CORNERS[:-1], _ORDERS[order], twists, strict=True):
        for step, colour in enumerate(_COLOURS_OF_PIECE[piece]):
            cube[corner[(step + twist) % 3]] = colour
    return "".join(cube)


class Distances:
    """Turns to the solved cube, from every position. May be shared by threads."""

    def __init__(self, *, half_turns: bool) -> None:
        """A half turn counts as one turn with `half_turns`, else as two quarter turns."""
        moves = [_move_tables(name) for name in (_QUARTERS + _HALVES if half_turns else _QUARTERS)]
        self._moves = [(orders * _NUM_TWISTS, twists) for orders, twists in moves]
        self._distance = np.full(_NUM_POSITIONS, _UNKNOWN, dtype=np.uint8)
        start = position(SOLVED)
        self._distance[start] = 0
        self._levels = [np.array([start], dtype=np.int32)]
        self._growing = Lock()

    def level(self, distance: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The sorted numbers of the positions at this distance; none beyond the farthest."""
        while len(self._levels) <= distance:
            self._grow(len(self._levels))
        return self._levels[distance]

    def __call__(self, cube: str) -> int:
        """The number of turns that a shortest solution takes."""
        number = position(cube)
        while self._distance[number] == _UNKNOWN:
            self._grow(len(self._levels))
        return int(self._distance[number])

    def _grow(self, distance: int) -> None:
        """Fill in level `distance`, the first one that is missing, unless another thread has done it meanwhile."""
        with self._growing:
            if len(self._levels) > distance:
                return
            orders, twists = np.divmod(self._levels[-1], _NUM_TWISTS)
            for order_after, twist_after in self._moves:
                reached = order_after[orders] + twist_after[twists]
                self._distance[reached[self._distance[reached] == _UNKNOWN]] = distance
            self._levels.append(np.flatnonzero(self._distance == distance).astype(np.int32))


def _move_tables(name: str) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """(number of the order after the turn, by that before [5040]; number of the twists after it, by that before [729])."""
    # Turning the solved cube tells where the piece in each place comes from, and how much it is twisted on the way.
    sources, added = _read(turn(SOLVED, name))
    orders = [_NUMBER_OF_ORDER[tuple([order[source] for source in sources])] for order in _ORDERS]
    before = np.arange(_NUM_TWISTS)[:, None] // np.array(_THIRDS) % 3
    before = np.concatenate([before, -before.sum(axis=1, keepdims=True) % 3], axis=1)  # [729, 7]
    after = (before[:, sources] + np.array(added)) % 3
    return np.array(orders, dtype=np.int32), (after[:, :6] @ np.array(_THIRDS)).astype(np.int32)


@cache
def distances(*, half_turns: bool) -> Distances:
    """The table of this process, one for each way of counting."""
    return Distances(half_turns=half_turns)


def draw(distance: int, random: np.random.Generator, *, half_turns: bool) -> str:
    """A cube whose shortest solution takes exactly `distance` turns: each position as likely, held in any of the 24 ways."""
    level = distances(half_turns=half_turns).level(distance)
    choice, rotation = random.integers([len(level), len(ROTATIONS)]).tolist()
    return hold(cube_at(int(level[choice])), rotation)


def best_turn(cube: str, names: tuple[str, ...], *, half_turns: bool) -> str | None:
    """The first of `names` that begins a shortest solution; None if the cube is solved."""
    distance = distances(half_turns=half_turns)
    goal = distance(cube) - 1
    return next((name for name in names if distance(turn(cube, name)) == goal), None)
