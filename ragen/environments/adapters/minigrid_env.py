"""MiniGrid and BabyAI levels as text. Described in docs/environments/minigrid.md."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np

from ragen.environments.adapters import minigrid_oracle as oracle
from ragen.environments.adapters import minigrid_text as texts
from ragen.environments.adapters.base import Adapter
from ragen.environments.text_env import StepAnswer, TextEnvConfig, option
from ragen.errors import ConfigError, boundary, near_match

ACTIONS = ("compass", "turns")
OBSERVATIONS = ("words", "map")
COMPASS = dict(zip(texts.HEADINGS, range(4), strict=True))
PRIMITIVES = {
    "turn left": oracle.LEFT,
    "turn right": oracle.RIGHT,
    "move forward": oracle.FORWARD,
    "pick up": oracle.PICK_UP,
    "drop": oracle.DROP,
    "toggle": oracle.TOGGLE,
    "done": oracle.DONE,
}
_NAMES = {action: name for name, action in PRIMITIVES.items()}
_MEANINGS = {
    "turn left": "turn left on the spot",
    "turn right": "turn right on the spot",
    "move forward": "move one cell ahead if nothing blocks it",
    "pick up": "take the key, ball or box in the cell ahead, if you carry nothing",
    "drop": "put what you carry into the free cell ahead",
    "toggle": "open or close the door ahead, or open the box ahead; a locked door needs that you carry the key of its colour",
    "done": "say that the mission is fulfilled; the episode ends",
}
_ENDED_BY_DONE = ("MiniGrid-GoToDoor", "MiniGrid-GoToObject")  # there toggle only gives up


@dataclass(kw_only=True)
class MiniGridConfig(TextEnvConfig):
    id: str = option("MiniGrid-Empty-Random-6x6-v0", "a registered level: MiniGrid-... or BabyAI-...")
    actions: str = option(
        "compass", "compass (north, east, ...: turn as needed and move) or turns (turn left, move forward, ...)"
    )
    observation: str = option("words", "words (what the agent sees from where it stands) or map (the whole level, drawn)")
    max_steps: int | None = option(None, "steps until the mission has failed; null: the level's own number")

    def check(self) -> None:
        for field, allowed in (("actions", ACTIONS), ("observation", OBSERVATIONS)):
            value = getattr(self, field)
            if value not in allowed:
                raise ConfigError(f"{field}={value!r}: must be one of {', '.join(allowed)}{near_match(value, allowed)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(f"max_steps={self.max_steps}: must be at least 1, or null")
        _import_minigrid()
        known = [name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-"))]
        if self.id not in known:
            raise ConfigError(f"id={self.id!r}: must be a level of MiniGrid or BabyAI{near_match(self.id, known)}")

    def make_level(self) -> Any:
        """A minigrid.minigrid_env.MiniGridEnv. Raises ConfigError if a level cannot be made, say without its own extras."""
        kwargs = {} if self.max_steps is None else {"max_steps": self.max_steps}
        with boundary(ConfigError, f"id={self.id!r}: MiniGrid cannot make it"):
            return gymnasium.make(self.id, disable_env_checker=True, **kwargs).unwrapped


class MiniGridEnv(Adapter):
    """A MiniGrid or BabyAI level: a robot walks through rooms and does what its mission says."""

    Config = MiniGridConfig
    config: MiniGridConfig
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"]}  # type: ignore[misc]

    def __init__(self, config: MiniGridConfig | None = None, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self._level = self.config.make_level()
        self._expert: oracle.Expert | None = None

    def _begin(self) -> str:
        self._start_seed = self._draw_start_seed()
        observation, _ = self._level.reset(seed=self._start_seed)
        self._level.np_random = self.dynamics_random
        self._played: list[int] = []  # in MiniGrid's own actions, for the expert
        self._expert = None
        self.action_names = self._name_actions()
        self.instruction = self._compose_instruction()
        return self._describe(observation["image"])

    def _play(self, action: str) -> StepAnswer:
        before = self._trace()
        reward, terminated, truncated = 0.0, False, False
        for primitive in self._primitives(action):
            self._played.append(primitive)
            observation, paid, terminated, truncated, _ = self._level.step(primitive)
            reward += float(paid)
            if terminated or truncated:
                break
        success = bool(terminated and reward > 0)
        # The instruction names the limit, so running into it is a failure of the task: terminated, not truncated.
        ended = bool(terminated or truncated)
        info = {"success": success, "effective": ended or self._trace() != before, "steps": self._level.step_count}
        return self._describe(observation["image"]), reward, ended, False, info

    def close(self) -> None:
        super().close()
        self._expert = None
        self._level.close()

    def oracle_action(self) -> str | None:
        plan = self._plan()
        if not plan:
            return None
        if self.config.actions == "turns":
            return _NAMES[plan[0]]
        turned = self._level.agent_dir
        for primitive in plan:
            if primitive == oracle.FORWARD:
                return texts.HEADINGS[turned]
            if primitive not in oracle.TURNS:
                break
            turned = (turned + (1 if primitive == oracle.RIGHT else 3)) % 4
        return _NAMES[plan[0]]

    def max_return(self) -> float | None:
        if not self._only_a_goal():
            return None
        route = self._route()
        return None if route is None else 1 - 0.9 * (len(route) / self._level.max_steps)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_expert": None}  # it finds its way back through the actions played

    def _plan(self) -> list[int]:
        if hasattr(self._level, "instrs"):
            if self._expert is None:
                self._expert = oracle.Expert(self.config.make_level, self._start_seed)
            return self._expert.plan(self._played)
        return (self._route() or []) if self._only_a_goal() else []

    def _route(self) -> list[int] | None:
        x, y = map(int, self._level.agent_pos)
        return oracle.route_to_goal(self._level.grid.encode(), (x, y, int(self._level.agent_dir)))

    def _only_a_goal(self) -> bool:
        """Whether reaching a goal tile is the whole mission and nothing moves by itself."""
        return not hasattr(self._level, "instrs") and not hasattr(self._level, "obstacles")

    def _primitives(self, action: str) -> list[int]:
        if action not in COMPASS:
            return [PRIMITIVES[action]]
        num_right = (COMPASS[action] - self._level.agent_dir) % 4
        turns = [oracle.LEFT] if num_right == 3 else [oracle.RIGHT] * num_right
        return [*turns, oracle.FORWARD]

    def _name_actions(self) -> tuple[str, ...]:
        names = list(PRIMITIVES)[: self._level.action_space.n]
        unused = "toggle" if self.config.id.startswith(_ENDED_BY_DONE) else "done"
        names = [name for name in names if name != unused]
        if self.config.actions == "compass":
            names = [*("north", "east", "south", "west"), *(name for name in names if name != "move forward")]
        return tuple(names)

    def _trace(self) -> tuple[Any, ...]:
        """What an action of the agent can change."""
        level = self._level
        ahead = level.grid.get(*level.front_pos)
        return (*map(int, level.agent_pos), int(level.agent_dir), id(level.carrying), ahead and ahead.encode())

    def _describe(self, view: np.typing.NDArray[np.uint8]) -> str:
        level = self._level
        heading = int(level.agent_dir)
        carried = "nothing" if level.carrying is None else texts.with_article(level.carrying.encode())
        status = f"Steps: {level.step_count} of {level.max_steps}. You face {texts.HEADINGS[heading]} and carry {carried}."
        if self.config.observation == "map":
            return f"{status}\n{texts.draw(level.grid.encode(), tuple(level.agent_pos), heading)}"
        return f"{status}\n{texts.describe_view(view, heading if self.config.actions == 'compass' else None)}"

    def _compose_instruction(self) -> str:
        level = self._level
        lines = ["You are a robot in a world of square cells.", f"Mission: {level.mission or 'none, explore'}."]
        codes = level.grid.encode()
        if self.config.observation == "map":
            inside = [obj.contains.encode() for obj in level.grid.grid if obj is not None and obj.contains is not None]
            lines.append(f"The map: {texts.legend([*texts.cells_of(codes), *inside])}. North is up.")
        else:
            size = level.agent_view_size
            walls = "" if level.see_through_walls else " Walls and closed doors block the view."
            lines.append(f"You see {size - 1} cells ahead and {size // 2} to each side, nothing behind you.{walls}")
            first, second = ("east", "north") if self.config.actions == "compass" else ("ahead", "left")
            lines.append(f"Distances are in cells: (2 {first}, 1 {second}) is 2 cells {first} and 1 cell {second} of you.")
        lines += self._explain_actions(has_lava=bool((codes[..., 0] == texts.LAVA).any()))
        lines.append(
            "A turn, a move and every other act take one step each. "
            f"Fulfil the mission within {level.max_steps} steps: "
            f"the reward is 1 - 0.9 * steps / {level.max_steps}. Otherwise it is 0."
        )
        return "\n".join(lines)

    def _explain_actions(self, *, has_lava: bool) -> list[str]:
        names = self.action_names or ()
        lines = ["Actions:"]
        if "north" in names:
            lines.append("north, east, south, west: turn that way if needed, then move one cell if nothing blocks it")
        lines += [f"{name}: {_MEANINGS[name]}" for name in names if name in _MEANINGS]
        if has_lava:
            lines.append("Moving into lava ends the episode.")
        if hasattr(self._level, "obstacles"):
            lines.append("The balls move by themselves. Moving into a ball or a wall ends the episode with reward -1.")
        return lines

    def _pixels(self) -> np.typing.NDArray[np.uint8]:
        picture: np.typing.NDArray[np.uint8] = self._level.get_frame(tile_size=16)
        return picture


def _import_minigrid() -> None:
    """Registers the levels with Gymnasium. Raises ConfigError if the package is missing."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # the package imports pygame, which would look for a screen
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import minigrid  # noqa: F401
        from minigrid.envs.babyai.core import roomgrid_level
    except ModuleNotFoundError as error:
        raise ConfigError(f"minigrid needs the package {error.name}: pip install 'ragen-rl[minigrid]'") from None
    _silence(roomgrid_level)


def _silence(module: ModuleType) -> None:
    """Levels that the package draws and rejects are printed one by one; here that would spoil the program's own output."""
    setattr(module, "print", _print_nothing)  # noqa: B010


def _print_nothing(*_: object) -> None:
    pass
