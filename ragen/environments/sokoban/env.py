"""Sokoban as an environment: a thin shell around its rules. Described in docs/environments/sokoban.md."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ragen.environments.sokoban import pixels, rules
from ragen.environments.sokoban.generate import MAX_TRIES, Puzzle, RoomSpec, generate
from ragen.environments.sokoban.oracle import Oracle
from ragen.environments.sokoban.rules import ACTIONS
from ragen.environments.sokoban.solver import SearchLimitError, shortest_solution
from ragen.environments.sokoban.view import FORMATS, Symbols, build_view, instruction
from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError, EnvironmentFailure, near_match

DEFAULT_SYMBOLS = "#_O√XPS"

# A player who pulls a box needs three cells in a line, and the walls two more. Beyond the maximum nobody reads the room.
_MIN_SIZE, _MAX_SIZE = 5, 20
_PROBES = 300  # tries in which a kind of room must turn up to be accepted; an episode has MAX_TRIES


@dataclass(kw_only=True)
class SokobanConfig(TextEnvConfig):
    height: int = option(6, "rows of the room with its walls, 5 to 20")
    width: int = option(6, "columns of the room with its walls, 5 to 20")
    num_boxes: int = option(1, "boxes, and as many targets")
    search_depth: int = option(300, "moves of the reverse play that makes a room, at least 1; more make harder rooms")
    min_solution_length: int = option(1, "fewest moves (pushes included) that the shortest solution may have")
    max_solution_length: int | None = option(None, "most moves (pushes included) that the shortest solution may have; null: any")
    observation_format: str = option("grid", "grid (symbols), coord (positions) or grid_coord (both)")
    symbols: str = option(
        DEFAULT_SYMBOLS,
        "seven characters of the grid: wall, floor, target, box on target, box, player, player on target",
    )

    @property
    def room_spec(self) -> RoomSpec:
        return RoomSpec(
            height=self.height,
            width=self.width,
            num_boxes=self.num_boxes,
            search_depth=self.search_depth,
            min_solution_length=self.min_solution_length,
            max_solution_length=self.max_solution_length,
        )

    def check(self) -> None:
        for key in ("height", "width"):
            if not _MIN_SIZE <= getattr(self, key) <= _MAX_SIZE:
                raise ConfigError(f"{key}={getattr(self, key)}: must be within {_MIN_SIZE}..{_MAX_SIZE}")
        most_boxes = ((self.height - 2) * (self.width - 2) - 1) // 2
        if not 1 <= self.num_boxes <= most_boxes:
            raise ConfigError(
                f"num_boxes={self.num_boxes}: must be within 1..{most_boxes} in a room of {self.height} x {self.width}"
            )
        if self.search_depth < 1:
            raise ConfigError(f"search_depth={self.search_depth}: must be at least 1")
        self._check_text()
        self._check_lengths()

    def _check_text(self) -> None:
        if self.observation_format not in FORMATS:
            hint = near_match(self.observation_format, FORMATS)
            raise ConfigError(f"observation_format={self.observation_format!r}: must be one of {', '.join(FORMATS)}{hint}")
        if len(self.symbols) != len(Symbols._fields):
            kinds = ", ".join(name.replace("_", " ") for name in Symbols._fields)
            raise ConfigError(f"symbols={self.symbols!r}: must be {len(Symbols._fields)} characters ({kinds})")
        if len(set(self.symbols)) < len(self.symbols):
            raise ConfigError(f"symbols={self.symbols!r}: the characters must differ from one another")
        if unseen := [symbol for symbol in self.symbols if not _is_visible(symbol)]:
            raise ConfigError(f"symbols={self.symbols!r}: {unseen[0]!r} is not a visible character that stands alone")
        if self.observation_format == "coord" and self.symbols != DEFAULT_SYMBOLS:
            raise ConfigError(f"symbols={self.symbols!r}: coord shows no symbols; choose observation_format grid or grid_coord")

    def _check_lengths(self) -> None:
        if self.min_solution_length < 1:
            raise ConfigError(f"min_solution_length={self.min_solution_length}: must be at least 1")
        if self.max_solution_length is not None and self.max_solution_length < self.min_solution_length:
            raise ConfigError(
                f"max_solution_length={self.max_solution_length}: must be at least min_solution_length={self.min_solution_length}"
            )
        if not _turns_up(self.room_spec):
            boxes = f"{self.num_boxes} {'box' if self.num_boxes == 1 else 'boxes'}"
            kind = f"room of {self.height} x {self.width} with {boxes}"
            if (self.min_solution_length, self.max_solution_length) == (1, None):
                raise ConfigError(f"num_boxes={self.num_boxes}: no {kind} in {_PROBES} tries; take fewer boxes or a larger room")
            upper = "" if self.max_solution_length is None else f", max_solution_length={self.max_solution_length}"
            raise ConfigError(
                f"min_solution_length={self.min_solution_length}{upper}: no such {kind} in {_PROBES} tries; "
                "widen the range or change the room"
            )


def _is_visible(symbol: str) -> bool:
    """Not white space, not a control character, not one that joins the character before it."""
    return symbol.isprintable() and not symbol.isspace() and not unicodedata.category(symbol).startswith("M")


@lru_cache(maxsize=256)
def _turns_up(spec: RoomSpec) -> bool:
    """Is such a room frequent enough to draw episodes from? Asked once per kind of room and process; always answered alike."""
    return generate(spec, np.random.default_rng(0), max_tries=_PROBES) is not None


class SokobanEnv(TextEnv):
    """Push every box onto a target, in a room that can be solved. Chance decides nothing after the start."""

    Config = SokobanConfig
    config: SokobanConfig
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"]}  # type: ignore[misc]

    def _begin(self) -> str:
        config = self.config
        puzzle = generate(config.room_spec, self.np_random)
        if puzzle is None:
            raise EnvironmentFailure(f"no room in {MAX_TRIES} tries: {config.room_spec}; widen the range of solution lengths")
        self.action_names = ACTIONS
        self.instruction = instruction(
            config.height, config.width, config.num_boxes, config.observation_format, Symbols(*config.symbols)
        )
        return self._enter(puzzle)

    def _enter(self, puzzle: Puzzle) -> str:
        self._puzzle = puzzle
        self._state = puzzle.start
        self._steps = dict(zip(ACTIONS, puzzle.room.steps, strict=True))
        self._deadlocked = False  # at the start every room can be solved
        self._oracle = Oracle(puzzle)
        self._view = build_view(puzzle.room, self.config.observation_format, Symbols(*self.config.symbols))
        return self._view.text(puzzle.start)

    def _play(self, action: str) -> StepAnswer:
        room, before = self._puzzle.room, self._state
        after = self._state = rules.play(room, before, self._steps[action])
        pushed = after.boxes != before.boxes
        solved = pushed and rules.is_solved(room, after.boxes)
        if pushed and not self._deadlocked:  # a lost room stays lost, and no walk loses one
            self._deadlocked = rules.is_deadlocked(room, after.boxes)
        info = {"success": solved, "effective": after != before, "deadlock": float(self._deadlocked)}
        return self._view.text(after), rules.reward(room, before.boxes, after.boxes), solved, False, info

    def oracle_action(self) -> str | None:
        """The first move of a shortest solution from here; None in a room that is lost, or where the search for one gives up."""
        action = self._oracle.action(self._state)
        return None if action is None else ACTIONS[action]

    def max_return(self) -> float | None:
        """The return of a shortest solution from the start; None where the search for one gives up."""
        room, start = self._puzzle.room, self._puzzle.start
        try:
            solution = shortest_solution(room, start)
        except SearchLimitError:
            return None
        return None if solution is None else rules.best_return(room, start, len(solution))

    def _pixels(self) -> pixels.Picture:
        return pixels.draw(self._puzzle.room, self._state)
