"""The 2x2x2 cube as a group: what a turn does follows from where the stickers lie in space, not from typed tables.

A cube is a text of 24 colours: faces in the order of FACES, on each face upper left, upper right, lower left, lower right.
Faces lie as on the unfolded net, seen from outside: L, F, R, B side by side, U above F, D below F.

In space x points right, y up, z towards the viewer; the eight small cubes have their centres at (+-1, +-1, +-1). A sticker is
such a place and the outward direction in which it looks. A clockwise turn of a face, seen from outside, rotates the stickers of
its four small cubes by -90 degrees about the direction of the face.
"""

from __future__ import annotations

from itertools import product
from operator import itemgetter
from types import MappingProxyType

Vector = tuple[int, int, int]
Sticker = tuple[Vector, Vector]  # place of the small cube, direction of the sticker
Permutation = tuple[int, ...]  # 24 numbers: position i shows afterwards what position p[i] showed before

FACES = "ULFRBD"
COLOURS = MappingProxyType({"U": "W", "L": "O", "F": "G", "R": "R", "B": "B", "D": "Y"})  # of the solved cube as bought

_NORMALS: dict[str, Vector] = {
    "U": (0, 1, 0),
    "L": (-1, 0, 0),
    "F": (0, 0, 1),
    "R": (1, 0, 0),
    "B": (0, 0, -1),
    "D": (0, -1, 0),
}
# What is right and what is down on a face of the net, as faces that lie in that direction.
_RIGHT_AND_DOWN = {"U": "RF", "L": "FD", "F": "RD", "R": "BD", "B": "LD", "D": "RB"}


def _cross(a: Vector, b: Vector) -> Vector:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _dot(a: Vector, b: Vector) -> int:
    return sum(i * j for i, j in zip(a, b, strict=True))


def _turned(vector: Vector, axis: Vector) -> Vector:
    """`vector` rotated by -90 degrees about `axis`: its part along the axis stays, the rest v becomes v x axis."""
    along, around = _dot(vector, axis), _cross(vector, axis)
    return (axis[0] * along + around[0], axis[1] * along + around[1], axis[2] * along + around[2])


def _stickers() -> tuple[Sticker, ...]:
    found = []
    for face in FACES:
        normal, (right, down) = _NORMALS[face], (_NORMALS[name] for name in _RIGHT_AND_DOWN[face])
        for row, column in product((-1, 1), repeat=2):
            x, y, z = (n + column * r + row * d for n, r, d in zip(normal, right, down, strict=True))
            found.append(((x, y, z), normal))
    return tuple(found)


STICKERS = _stickers()


def compose(first: Permutation, then: Permutation) -> Permutation:
    """The permutation that does `first` and `then` the other."""
    return tuple(first[i] for i in then)


def _rotation(face: str, *, whole: bool) -> Permutation:
    """A quarter turn clockwise, of the layer of a face or of the whole cube."""
    axis = _NORMALS[face]
    before = [0] * len(STICKERS)
    for index, (place, direction) in enumerate(STICKERS):
        if whole or _dot(place, axis) == 1:
            before[STICKERS.index((_turned(place, axis), _turned(direction, axis)))] = index
        else:
            before[index] = index
    return tuple(before)


def _turns() -> dict[str, Permutation]:
    turns: dict[str, Permutation] = {}
    for face in FACES:
        once = _rotation(face, whole=False)
        twice = compose(once, once)
        turns |= {face: once, f"{face}'": compose(twice, once), f"{face}2": twice}
    return turns


TURNS = MappingProxyType(_turns())  # 18 turns by name: clockwise, counter-clockwise, half
QUARTER_TURNS = tuple(f"{face}{way}" for face in "UDLRFB" for way in ("", "'"))
ALL_TURNS = tuple(f"{face}{way}" for face in "UDLRFB" for way in ("", "'", "2"))


def _rotations() -> tuple[Permutation, ...]:
    """The 24 ways to hold a cube, the unchanged one first: all that turning it about two axes can reach."""
    found = [tuple(range(len(STICKERS)))]
    for held in found:  # grows while it is walked
        found += [new for face in "UF" if (new := compose(held, _rotation(face, whole=True))) not in found]
    return tuple(found)


ROTATIONS = _rotations()
SOLVED = "".join(COLOURS[face] * 4 for face in FACES)

_TURNERS = {name: itemgetter(*turn) for name, turn in TURNS.items()}
_HOLDERS = tuple(itemgetter(*rotation) for rotation in ROTATIONS)


def turn(cube: str, name: str) -> str:
    """The cube after the turn `name`."""
    return "".join(_TURNERS[name](cube))


def hold(cube: str, rotation: int) -> str:
    """The same cube held in the way ROTATIONS[rotation]."""
    return "".join(_HOLDERS[rotation](cube))


_ALL_SOLVED = frozenset(hold(SOLVED, rotation) for rotation in range(len(ROTATIONS)))


def is_solved(cube: str) -> bool:
    """Whether every face shows one colour, however the cube is held: a 2x2x2 has no centres that could say how."""
    return cube in _ALL_SOLVED


_LINES = "\n".join(f"{face}: %s %s / %s %s" for face in FACES)


def show(cube: str) -> str:
    """One line a face: its name, the upper row, a stroke, the lower row."""
    return _LINES % tuple(cube)
