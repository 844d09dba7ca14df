"""Who knows the way in MiniGrid: the package's expert bot for BabyAI missions, shortest paths where a goal tile is all.

Both answer in MiniGrid's own actions (turn left 0, turn right 1, forward 2, pick up 3, drop 4, toggle 5).
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from ragen.environments.adapters.minigrid_text import DOOR, GOAL, VECTORS, Codes, is_free
from ragen.errors import EnvironmentFailure, boundary

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
TURNS = (LEFT, RIGHT)
CLOSED = 1
MAX_SEARCHES = 100  # of the bot for one action; in the levels that it solves it was seen to need 10

Pose = tuple[int, int, int]  # x, y, heading


def route_to_goal(grid: Codes, start: Pose) -> list[int] | None:
    """The fewest actions to the nearest goal tile: turns, steps, and a toggle before each closed door; None without a way.

    Never through lava, a locked door or an object. `grid` is [x, y, 3] as in minigrid_text.py.
    """
    best: dict[Pose, int] = {start: 0}
    came: dict[Pose, tuple[Pose, tuple[int, ...]]] = {}
    frontier: list[tuple[int, Pose]] = [(0, start)]
    while frontier:
        cost, pose = heapq.heappop(frontier)
        if cost > best[pose]:
            continue
        if grid[pose[0], pose[1], 0] == GOAL:
            return _actions_to(pose, came)
        for actions, following in _moves(grid, pose):
            if cost + len(actions) < best.get(following, cost + len(actions) + 1):
                best[following] = cost + len(actions)
                came[following] = pose, actions
                heapq.heappush(frontier, (best[following], following))
    return None


def _moves(grid: Codes, pose: Pose) -> list[tuple[tuple[int, ...], Pose]]:
    x, y, heading = pose
    moves: list[tuple[tuple[int, ...], Pose]] = [((LEFT,), (x, y, (heading + 3) % 4)), ((RIGHT,), (x, y, (heading + 1) % 4))]
    ahead = (x + VECTORS[heading][0], y + VECTORS[heading][1])
    kind, colour, state = map(int, grid[ahead])  # the outer wall keeps every pose inside
    if is_free((kind, colour, state)):
        moves.append(((FORWARD,), (*ahead, heading)))
    elif kind == DOOR and state == CLOSED:
        moves.append(((TOGGLE, FORWARD), (*ahead, heading)))
    return moves


def _actions_to(pose: Pose, came: dict[Pose, tuple[Pose, tuple[int, ...]]]) -> list[int]:
    actions: list[int] = []
    while pose in came:
        pose, taken = came[pose]
        actions[:0] = taken
    return actions


class Expert:
    """BabyAI's own bot on a level of its own, which it plays in step with the agent's: the real level is never touched.

    The bot recovers from what the agent does instead of its advice. It gives up where it cannot help any more (say, once a box
    was opened, or where it would plan in circles); then, and when it holds the mission for fulfilled, there is no advice.
    """

    def __init__(self, make_level: Callable[[], Any], seed: int) -> None:
        self._level = make_level()
        self._level.reset(seed=seed)
        self._bot = _bot_class()(self._level)
        self._num_seen = 0
        self._advice: int | None = None
        self._advise(None)

    def plan(self, played: Sequence[int]) -> list[int]:
        """The next actions, after those `played` since the start: turns, up to and including the first that is none."""
        while self._num_seen < len(played):
            self._follow(played[self._num_seen])
        planned: list[int] = []
        ahead = self
        while ahead._advice is not None and len(planned) < 4:
            planned.append(ahead._advice)
            if planned[-1] not in TURNS:
                break
            ahead = copy.deepcopy(ahead) if ahead is self else ahead
            ahead._follow(planned[-1])
        return planned

    def _follow(self, action: int) -> None:
        self._num_seen += 1
        _, _, terminated, truncated, _ = self._level.step(action)
        if terminated or truncated:
            self._advice = None
        elif self._advice is not None:
            self._advise(action)

    def _advise(self, taken: int | None) -> None:
        self._advice = None
        # The bot runs into its own assertions where a player did what it never would.
        with suppress(EnvironmentFailure), boundary(EnvironmentFailure, "the expert bot"):
            self._bot.num_searches = 0
            action = int(self._bot.replan(taken))
            self._advice = None if action == DONE else action


@cache
def _bot_class() -> Any:
    """BabyAI's bot, which in some levels (UnlockToUnlock) searches for ever: this one stops and raises."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    class BoundedBot(BabyAIBot):  # type: ignore[misc, unused-ignore]  # the package need not be there
        num_searches = 0  # since it was last asked

        def _breadth_first_search(self, *args: Any, **kwargs: Any) -> Any:
            self.num_searches += 1
            if self.num_searches > MAX_SEARCHES:
                raise RuntimeError("it plans in circles")
            return super()._breadth_first_search(*args, **kwargs)  # type: ignore[no-untyped-call, unused-ignore]

    return BoundedBot
