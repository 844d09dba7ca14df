"""The rules of 2048 as pure functions on a board of plain numbers.

A line (row or column) is slid towards one end: its tiles close up, and two equal neighbours merge into their sum, those nearest
to that end first, each tile at most once. Lines repeat all the time, so what happens to one is worked out once and remembered.

Source: the game by Gabriele Cirulli (2014). Points of a move are the sum of the tiles that its merges made.
"""

from __future__ import annotations

from functools import lru_cache

Line = tuple[int, ...]
Board = tuple[Line, ...]  # rows from the top, cells from the left; 0 is an empty cell

DIRECTIONS = ("Up", "Right", "Down", "Left")
_VERTICAL = frozenset(("Up", "Down"))
_TO_END = frozenset(("Right", "Down"))  # towards the last cell of a row or column
# (slides of the rows, slides of the columns) -> the directions they stand for
_LEGAL = {
    (rows, columns): tuple(
        name for name, yes in zip(DIRECTIONS, (columns & 1, rows & 2, columns & 2, rows & 1), strict=True) if yes
    )
    for rows in range(4)
    for columns in range(4)
}
_REMEMBERED = 2**16  # lines; a 4x4 game up to 2048 has 12**4 = 20736 of them


@lru_cache(_REMEMBERED)
def slide(line: Line, to_end: bool) -> tuple[Line, int]:
    """(the line after sliding towards its last cell, or else its first one, points)."""
    tiles = [tile for tile in line if tile]
    if to_end:
        tiles.reverse()
    slid: list[int] = []
    points, mergeable = 0, False
    for tile in tiles:
        mergeable = mergeable and slid[-1] == tile
        if mergeable:
            slid[-1] += tile
            points += 2 * tile
            mergeable = False  # a tile that has just merged takes no other
        else:
            slid.append(tile)
            mergeable = True
    slid += [0] * (len(line) - len(slid))
    return tuple(reversed(slid) if to_end else slid), points


@lru_cache(_REMEMBERED)
def slides(line: Line) -> int:
    """Which slides change the line: bit 0 towards its first cell, bit 1 towards its last one."""
    return (slide(line, False)[0] != line) | (slide(line, True)[0] != line) << 1


def move(board: Board, direction: str) -> tuple[Board, int]:
    """(the board after a move, before a new tile appears, points). A move that cannot change the board gives it back with 0."""
    vertical, to_end = direction in _VERTICAL, direction in _TO_END
    slid = [slide(line, to_end) for line in (zip(*board, strict=True) if vertical else board)]
    lines = tuple(line for line, _ in slid)
    return tuple(zip(*lines, strict=True)) if vertical else lines, sum(points for _, points in slid)


def legal_moves(board: Board) -> tuple[str, ...]:
    """The directions that change the board, in the order of DIRECTIONS; none means that the game is over."""
    rows = columns = 0
    for row in board:
        rows |= slides(row)
    for column in zip(*board, strict=True):
        columns |= slides(column)
    return _LEGAL[rows, columns]


def add_tile(board: Board, where: float, which: float, *, two_prob: float) -> Board:
    """The board with a new tile: `where` picks among the empty cells, `which` decides between 2 and 4; both uniform in [0, 1).

    The board must have an empty cell.
    """
    empty = [(y, x) for y, row in enumerate(board) for x, tile in enumerate(row) if not tile]
    y, x = empty[int(where * len(empty))]
    row = board[y]
    return (*board[:y], (*row[:x], 2 if which < two_prob else 4, *row[x + 1 :]), *board[y + 1 :])


def max_tile(board: Board) -> int:
    """The largest tile, 0 on an empty board."""
    return max(map(max, board))


@lru_cache(_REMEMBERED)
def _show_row(row: Line, width: int) -> str:
    return " ".join((str(tile) if tile else ".").rjust(width) for tile in row)


def show(board: Board, width: int) -> str:
    """The rows from the top, every tile set right in a column of `width` characters, an empty cell as a point."""
    return "\n".join([_show_row(row, width) for row in board])
