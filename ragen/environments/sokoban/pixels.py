"""A picture of a room: square tiles drawn from simple shapes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ragen.environments.sokoban.rules import Room, State

TILE = 32  # pixels

Picture = npt.NDArray[np.uint8]

_FLOOR, _GROUT, _BRICK, _MORTAR = (236, 226, 202), (226, 214, 186), (122, 112, 108), (92, 84, 82)
_TARGET, _EDGE = (205, 62, 58), (84, 54, 30)
_BOX, _BOX_ON_TARGET = (196, 140, 78), (96, 164, 84)
_PLAYER, _OUTLINE = (58, 104, 190), (28, 50, 98)


def draw(room: Room, state: State) -> Picture:
    """The room as colours, uint8 [TILE * height, TILE * width, 3]."""
    tiles = _tiles()
    picture = np.empty((room.height * TILE, room.width * TILE, 3), dtype=np.uint8)
    for cell in range(room.height * room.width):
        y, x = (TILE * place for place in divmod(cell, room.width))
        picture[y : y + TILE, x : x + TILE] = tiles[_kind(room, state, cell)]
    return picture


def _kind(room: Room, state: State, cell: int) -> str:
    if not room.floor >> cell & 1:
        return "wall"
    on_target = " on target" if room.targets >> cell & 1 else ""
    if cell == state.player:
        return f"player{on_target}"
    if state.boxes >> cell & 1:
        return f"box{on_target}"
    return "target" if on_target else "floor"


@lru_cache(maxsize=1)
def _tiles() -> dict[str, Picture]:
    y, x = np.mgrid[:TILE, :TILE] - (TILE - 1) / 2  # from the middle of the tile
    radius = np.hypot(y, x)
    square = np.maximum(abs(y), abs(x))

    def paint(tile: Picture, *layers: tuple[npt.NDArray[np.bool_], tuple[int, int, int]]) -> Picture:
        painted = tile.copy()
        for where, colour in layers:
            painted[where] = colour
        return painted

    def box(tile: Picture, colour: tuple[int, int, int]) -> Picture:
        planks = (square < 11) & ((abs(y - x) < 2) | (abs(y + x) < 2))
        return paint(tile, (square < 13, _EDGE), (square < 11, colour), (planks, _EDGE))

    def player(tile: Picture) -> Picture:
        eyes = np.hypot(y + 3, abs(x) - 4) < 2
        return paint(tile, (radius < 12, _OUTLINE), (radius < 10, _PLAYER), (eyes, (255, 255, 255)))

    blank = np.zeros((TILE, TILE, 3), dtype=np.uint8)
    floor = paint(blank, (square >= 0, _FLOOR), (square > TILE / 2 - 1, _GROUT))
    target = paint(floor, ((radius < 13) & (radius > 10) | (radius < 4), _TARGET))
    row = np.arange(TILE)[:, None] // 8
    joints = (np.arange(TILE)[:, None] % 8 == 7) | ((np.arange(TILE)[None, :] + 8 * (row % 2)) % 16 == 15)
    return {
        "wall": paint(blank, (square >= 0, _BRICK), (joints, _MORTAR)),
        "floor": floor,
        "target": target,
        "box": box(floor, _BOX),
        "box on target": box(target, _BOX_ON_TARGET),
        "player": player(floor),
        "player on target": player(target),
    }
