"""Sokoban's rules as pure functions: what a move does, what it pays, when boxes are stuck for good.

A cell is its row-major index (row * width + column); a set of cells is an int whose bit `cell` is set if the cell belongs to it.
The border of a room is wall, so that a step from a floor cell never leaves the board or wraps around it.

Source: Sokoban as the RAGEN paper sets it up (arXiv 2504.20073), which is gym-sokoban without an action that does nothing.
Differs from the published: boxes that can never come home are recognised (`is_deadlocked`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ACTIONS = ("Up", "Down", "Left", "Right")

# What one action pays. A push moves one box, so the number of boxes on targets changes by one at most.
REWARD_NEUTRAL = -0.1
REWARD_PLACED = 0.9
REWARD_REMOVED = -1.1
REWARD_SOLVED = 10.9  # the last box comes onto its target: -0.1 + 1 + 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What does not move. `floor` holds every cell that is not wall, targets included; `dead` the floor cells from which a box
    reaches no target, however the player stands and even if it were the only box."""

    height: int
    width: int
    floor: int
    targets: int
    dead: int

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """What each of ACTIONS adds to a cell."""
        return (-self.width, self.width, -1, 1)


class State(NamedTuple):
    """What moves: the player's cell and the set of the boxes' cells."""

    player: int
    boxes: int


def build_room(*, height: int, width: int, floor: int, targets: int) -> Room:
    """A room with its dead cells. `floor` must leave the border free, `targets` must be floor."""
    return Room(height=height, width=width, floor=floor, targets=targets, dead=floor & ~_live_cells(width, floor, targets))


def cells(members: int) -> Iterator[int]:
    """The cells of a set, in ascending order."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def shift(members: int, step: int) -> int:
    """The set with `step` added to each of its cells."""
    return members << step if step > 0 else members >> -step


def play(room: Room, state: State, step: int) -> State:
    """The state after the player goes to `player + step`, pushing a box there if the cell behind is free; `state` if blocked."""
    player, boxes = state
    ahead = player + step
    if not room.floor >> ahead & 1:
        return state
    if not boxes >> ahead & 1:
        return State(ahead, boxes)
    beyond = ahead + step
    if not (room.floor & ~boxes) >> beyond & 1:
        return state
    return State(ahead, boxes ^ (1 << ahead | 1 << beyond))


def reward(room: Room, before: int, after: int) -> float:
    """What an action pays that took the boxes from `before` to `after`."""
    if before == after:
        return REWARD_NEUTRAL
    if is_solved(room, after):
        return REWARD_SOLVED
    placed = (after & room.targets).bit_count() - (before & room.targets).bit_count()
    return (REWARD_NEUTRAL, REWARD_PLACED, REWARD_REMOVED)[placed]  # 0, 1, and -1, which is the last


def best_return(room: Room, start: State, num_moves: int) -> float:
    """The return of an episode that solves `start` in `num_moves` actions.

    It does not depend on the way: +1 and -1 for boxes on targets add up to the boxes that were not on targets at the start.
    """
    missing = (start.boxes & ~room.targets).bit_count()
    return missing + 10 - num_moves / 10


def is_solved(room: Room, boxes: int) -> bool:
    """Every box is on a target; there are as many of the one as of the other."""
    return boxes == room.targets


def is_deadlocked(room: Room, boxes: int) -> bool:
    """Is the room seen to be lost? True only if no sequence of actions solves it any more; False promises nothing.

    Seen are a box on a dead cell, and a box off its target that is frozen: blocked in both axes by walls or other frozen boxes.
    """
    if boxes & room.dead:
        return True
    return any(_is_frozen(box, boxes, room.floor, room.dead, room.width) for box in cells(boxes & ~room.targets))


def _is_frozen(box: int, boxes: int, floor: int, dead: int, width: int) -> bool:
    """Can `box` never move without losing the room? In each axis a wall, a frozen neighbour or dead cells on both sides stop it.

    A box counts as wall while its neighbours are asked: where boxes wait for one another, none of them can be the first to move.
    """
    boxes &= ~(1 << box)
    floor &= ~(1 << box)
    for step in (1, width):
        sides = (box - step, box + step)
        if all(floor >> side & 1 for side in sides) and not all(dead >> side & 1 for side in sides):
            neighbours = [side for side in sides if boxes >> side & 1]
            if not any(_is_frozen(side, boxes, floor, dead, width) for side in neighbours):
                return False
    return True


def _live_cells(width: int, floor: int, targets: int) -> int:
    """The cells from which a lone box can be pushed to a target: those to which it can be pulled from one.

    A pull into a cell needs one more free cell in the same direction, for the player.
    """
    live, grown = 0, targets
    while grown != live:
        live = grown
        for step in (1, width):
            grown |= live << step & floor & floor >> step
            grown |= live >> step & floor & floor << step
    return live
