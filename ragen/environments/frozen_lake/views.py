"""What an agent sees of a frozen lake: a map, coordinates, or both."""

from __future__ import annotations

from ragen.environments.frozen_lake.rules import Lake
from ragen.errors import ConfigError

FORMATS = ("grid", "coord", "grid_coord")
SYMBOLS = "P_OGX√"
_MEANINGS = ("you", "ice", "hole", "goal", "you in a hole", "you on the goal")  # in the order of the symbols


def check_symbols(symbols: str, observation_format: str) -> None:
    """Raise ConfigError unless these are six different visible characters, shown by a format that has a map."""
    if len(symbols) != len(SYMBOLS) or len(set(symbols)) != len(SYMBOLS) or not (symbols.isprintable() and " " not in symbols):
        raise ConfigError(f"symbols={symbols!r}: must be {len(SYMBOLS)} different visible characters, such as {SYMBOLS!r}")
    if observation_format == "coord" and symbols != SYMBOLS:
        raise ConfigError(f"symbols={symbols!r}: has no effect with observation_format='coord', which shows no map")


def legend(lake: Lake, symbols: str, observation_format: str) -> str:
    """The lines of the instruction that explain the observation."""
    last = f"({lake.height - 1}, {lake.width - 1})"
    place = f"Coordinates are (row, column), from (0, 0) at the top left to {last} at the bottom right."
    if observation_format == "coord":
        return place
    signs = ", ".join(f"{symbol} {meaning}" for symbol, meaning in zip(symbols, _MEANINGS, strict=True))
    size = f"The map has {lake.height} rows and {lake.width} columns."
    return f"Symbols: {signs}.\n{size if observation_format == 'grid' else place}"


class View:
    """Shows the player anywhere on one lake. What does not move is written once; a step only puts the player in."""

    def __init__(self, lake: Lake, symbols: str, observation_format: str) -> None:
        self._lake = lake
        self._has_coordinates = observation_format != "grid"
        self._has_grid = observation_format != "coord"
        self._player, ice, hole, goal, self._fallen, self._arrived = tuple(symbols)
        cells = [ice] * lake.num_cells
        cells[lake.goal] = goal
        for cell in lake.holes:
            cells[cell] = hole
        width = lake.width
        self._grid = "\n".join(["".join(cells[i : i + width]) for i in range(0, lake.num_cells, width)])
        if self._has_coordinates:
            holes = ", ".join(self._place(cell) for cell in sorted(lake.holes)) or "none"
            self._head = (
                f"Size: {lake.height} rows, {width} columns\nStart: {self._place(lake.start)}\nGoal: {self._place(lake.goal)}\n"
                f"Holes: {holes}\n"
            )

    def show(self, cell: int) -> str:
        """The observation with the player on `cell`."""
        symbol, label = self._player, "Player"
        if cell == self._lake.goal:
            symbol, label = self._arrived, "Player on the goal"
        elif cell in self._lake.holes:
            symbol, label = self._fallen, "Player in a hole"
        parts = []
        if self._has_coordinates:
            parts.append(f"{self._head}{label}: {self._place(cell)}")
        if self._has_grid:
            at = cell + cell // self._lake.width  # a line end after each row
            parts.append(f"{self._grid[:at]}{symbol}{self._grid[at + 1 :]}")
        return "\nMap:\n".join(parts)

    def _place(self, cell: int) -> str:
        return f"({cell // self._lake.width}, {cell % self._lake.width})"
