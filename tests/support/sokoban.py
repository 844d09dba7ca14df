"""Sokoban a second time, for tests: rooms drawn as text, rules and search on coordinates, nothing shared with the package."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from ragen.environments.sokoban.rules import Room, State, build_room

Cell = tuple[int, int]  # row, column
Position = tuple[Cell, frozenset[Cell]]  # player, boxes

DIRECTIONS = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}


@dataclass(frozen=True)
class Drawing:
    """A room as rows of the default symbols: # wall, _ floor, O target, √ box on target, X box, P player, S player on target."""

    rows: tuple[str, ...]

    def find(self, symbols: str) -> frozenset[Cell]:
        return frozenset((r, c) for r, row in enumerate(self.rows) for c, symbol in enumerate(row) if symbol in symbols)

    @cached_property
    def walls(self) -> frozenset[Cell]:
        return self.find("#")

    @property
    def position(self) -> Position:
        (player,) = self.find("PS")
        return player, self.find("X√")

    def after(self, position: Position, name: str) -> Position:
        """The position after the named action, by the rules as a person would say them."""
        player, boxes = position
        walls = self.walls
        down, right = DIRECTIONS[name]
        ahead = (player[0] + down, player[1] + right)
        behind = (ahead[0] + down, ahead[1] + right)
        if ahead in walls:
            return position
        if ahead not in boxes:
            return ahead, boxes
        if behind in walls or behind in boxes:
            return position
        return ahead, boxes - {ahead} | {behind}

    def is_solved(self, position: Position) -> bool:
        return position[1] == self.find("OS√")

    def reachable(self) -> dict[Position, int]:
        """Every position that can be reached, and in how many moves."""
        distances = {self.position: 0}
        queue = deque(distances)
        while queue:
            position = queue.popleft()
            for name in DIRECTIONS:
                following = self.after(position, name)
                if following not in distances:
                    distances[following] = distances[position] + 1
                    queue.append(following)
        return distances

    def solvable(self) -> set[Position]:
        """The reachable positions from which the room can be solved."""
        before: dict[Position, list[Position]] = {}
        for position in self.reachable():
            for name in DIRECTIONS:
                before.setdefault(self.after(position, name), []).append(position)
        solvable = {position for position in before if self.is_solved(position)}
        queue = list(solvable)
        while queue:
            for earlier in before.get(queue.pop(), ()):
                if earlier not in solvable:
                    solvable.add(earlier)
                    queue.append(earlier)
        return solvable

    def fewest_moves(self) -> int | None:
        """The length of a shortest solution; None if there is none."""
        return min((moves for position, moves in self.reachable().items() if self.is_solved(position)), default=None)


def draw(*rows: str) -> tuple[Room, State]:
    """The package's room and state for a drawing."""
    drawing = Drawing(rows)
    height, width = len(rows), len(rows[0])

    def members(symbols: str) -> int:
        return sum(1 << row * width + column for row, column in drawing.find(symbols))

    room = build_room(height=height, width=width, floor=members("_OXP√S"), targets=members("O√S"))
    return room, State(members("PS").bit_length() - 1, members("X√"))


def redraw(room: Room, state: State) -> Drawing:
    """The drawing of a state, cell by cell."""
    return Drawing(tuple("".join(_symbol(room, state, r, c) for c in range(room.width)) for r in range(room.height)))


def bits(room: Room, position: Position) -> State:
    """A position in the package's terms."""
    (row, column), boxes = position
    return State(row * room.width + column, sum(1 << r * room.width + c for r, c in boxes))


def _symbol(room: Room, state: State, row: int, column: int) -> str:
    cell = row * room.width + column
    wall, target, box = not room.floor >> cell & 1, room.targets >> cell & 1, state.boxes >> cell & 1
    if wall:
        return "#"
    if cell == state.player:
        return "S" if target else "P"
    if box:
        return "√" if target else "X"
    return "O" if target else "_"
