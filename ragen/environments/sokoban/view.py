"""What an agent reads: the state of a room as text in one of three formats, and the instruction that explains it.

Source: the grid, coord and grid_coord formats of RAGEN.
Differs from the published: the legend shows the symbols that are in use; coord lists the walls, which the published leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ragen.environments.sokoban.rules import ACTIONS, Room, State, cells

FORMATS = ("grid", "coord", "grid_coord")


class Symbols(NamedTuple):
    """One character for each kind of cell, in the order of the option `symbols`."""

    wall: str
    floor: str
    target: str
    box_on_target: str
    box: str
    player: str
    player_on_target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """How one room is shown; what does not change within an episode is laid out once, by `build_view`."""

    room: Room
    observation_format: str
    symbols: Symbols
    background: tuple[str, ...]  # for each cell its symbol without box and player; the last of a row ends the line
    names: tuple[str, ...]  # for each cell "(row, column)"
    head: str  # the lines of the coordinates that never change

    def text(self, state: State) -> str:
        """The observation."""
        if self.observation_format == "grid":
            return self._grid(state)
        if self.observation_format == "coord":
            return self._coordinates(state)
        return f"Coordinates:\n{self._coordinates(state)}\nGrid Map:\n{self._grid(state)}"

    def _grid(self, state: State) -> str:
        pieces = list(self.background)
        targets = self.room.targets
        for cell in cells(state.boxes):
            pieces[cell] = self.symbols.box_on_target if targets >> cell & 1 else self.symbols.box
        on_target = targets >> state.player & 1
        pieces[state.player] = self.symbols.player_on_target if on_target else self.symbols.player
        return "".join(pieces)

    def _coordinates(self, state: State) -> str:
        player, boxes = 1 << state.player, state.boxes
        targets = self.room.targets
        groups = (
            ("Targets", targets & ~boxes & ~player),
            ("Boxes", boxes & ~targets),
            ("Boxes on target", boxes & targets),
            ("Player", player & ~targets),
            ("Player on target", player & targets),
        )
        return "\n".join([self.head, *(self._line(label, members) for label, members in groups if members)])

    def _line(self, label: str, members: int) -> str:
        return f"{label}: {', '.join([self.names[cell] for cell in cells(members)])}"


def build_view(room: Room, observation_format: str, symbols: Symbols) -> View:
    """The view of one room. `observation_format` is one of FORMATS; the symbols matter where a grid is shown."""
    names = _cell_names(room.height, room.width)
    head = f"Board: {room.height} rows, {room.width} columns"
    inner_walls = _interior(room) & ~room.floor
    if observation_format == "coord" and inner_walls:
        head += f"\nWalls: {', '.join([names[cell] for cell in cells(inner_walls)])}"
    background = [symbols.wall] * len(names)
    for cell in cells(room.floor):
        background[cell] = symbols.target if room.targets >> cell & 1 else symbols.floor
    for end in range(room.width - 1, len(names) - 1, room.width):
        background[end] += "\n"
    return View(
        room=room,
        observation_format=observation_format,
        symbols=symbols,
        background=tuple(background),
        names=names,
        head=head,
    )


@lru_cache(maxsize=64)
def _cell_names(height: int, width: int) -> tuple[str, ...]:
    return tuple(f"({row}, {column})" for row in range(height) for column in range(width))


def _interior(room: Room) -> int:
    row = (1 << room.width - 2) - 1 << 1
    return sum(row << room.width * number for number in range(1, room.height - 1))


def instruction(height: int, width: int, num_boxes: int, observation_format: str, symbols: Symbols) -> str:
    """Everything an agent must know but the form of its reply and how many actions it has. The same for all rooms of a kind."""
    one = num_boxes == 1
    pieces = "1 box and 1 target" if one else f"{num_boxes} boxes and {num_boxes} targets"
    lines = [
        f"You are playing Sokoban. Goal: push {'the box onto the target' if one else 'every box onto a target'}.",
        f"The room has {height} rows and {width} columns, {pieces}.",
    ]
    if observation_format != "coord":
        lines.append(_symbol_legend(symbols))
    if observation_format != "grid":
        lines.append(_coordinate_legend(height, width, walls_listed=observation_format == "coord"))
    lines += [
        f"Actions: {', '.join(ACTIONS)}. Each moves you one cell: Up to the row above, Down to the row below, Left and Right "
        "within the row.",
        "If there is a box in that cell, you push it one cell further in the same direction. You cannot push a box into a wall "
        "or into another box, and you cannot pull. An action that is blocked changes nothing.",
        _reward_rule(one),
    ]
    return "\n".join(lines)


def _symbol_legend(symbols: Symbols) -> str:
    return (
        f"Symbols: {symbols.wall} wall, {symbols.floor} floor, {symbols.target} target, {symbols.box} box, "
        f"{symbols.box_on_target} box on a target, {symbols.player} you, {symbols.player_on_target} you on a target."
    )


def _coordinate_legend(height: int, width: int, *, walls_listed: bool) -> str:
    legend = (
        f"Positions are (row, column), from (0, 0) at the top left to ({height - 1}, {width - 1}) at the bottom right. "
        "Targets are targets with nothing on them, Boxes are boxes that are not on a target, Player or Player on target is you. "
        "What does not occur has no line."
    )
    if walls_listed:
        border = f"Rows 0 and {height - 1} and columns 0 and {width - 1} are wall"
        return f"{legend} {border}; Walls lists the other walls. Every other cell is floor."
    return f"{legend} Walls are shown in the grid map only."


def _reward_rule(one: bool) -> str:
    rule = (
        "+11 when the box comes onto the target"
        if one
        else "+1 when a box comes onto a target, -1 when a box leaves a target, +10 when all boxes are on targets"
    )
    return f"Rewards: -0.1 for each action, {rule}. That is success, and the game ends."
