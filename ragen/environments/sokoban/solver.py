"""The fewest moves that solve a Sokoban room, by breadth-first search over moves.

All states with the same boxes are searched at once: a layer maps each arrangement of boxes to the set of player cells that the
move number reaches there for the first time. One shift of that set is a step of every such player.
"""

from __future__ import annotations

from ragen.environments.sokoban.rules import Room, State, cells, is_deadlocked, shift

MAX_ENTRIES = 200_000  # arrangements over all layers before a search gives up: half a second with few boxes, three with ten

_Layer = dict[int, int]  # boxes -> player cells
_EVERYWHERE = -1  # the set of all cells


class SearchLimitError(Exception):
    """The search gave up before it knew whether and how the state can be solved."""


def shortest_solution(room: Room, start: State, *, max_entries: int = MAX_ENTRIES) -> tuple[int, ...] | None:
    """The actions of a shortest solution, as indices of ACTIONS; empty if `start` is solved, None if it cannot be.

    Always the same one of several. Raises SearchLimitError.
    """
    layers = _search(room, start, max_moves=None, max_entries=max_entries)
    return _trace(room, layers) if room.targets in layers[-1] else None


def is_solved_within(room: Room, start: State, max_moves: int, *, max_entries: int = MAX_ENTRIES) -> bool:
    """Does some solution have at most `max_moves` moves? Raises SearchLimitError."""
    return room.targets in _search(room, start, max_moves=max_moves, max_entries=max_entries)[-1]


def _search(room: Room, start: State, *, max_moves: int | None, max_entries: int) -> list[_Layer]:
    """Layers 0, 1, ... up to the first that holds the solved arrangement, or is empty, or is number `max_moves`."""
    layer: _Layer = {} if is_deadlocked(room, start.boxes) else {start.boxes: 1 << start.player}
    layers = [layer]
    seen = dict(layer)
    num_entries = 1
    while layer and room.targets not in layer and len(layers) - 1 != max_moves:
        layer = _next_layer(room, layer, seen)
        layers.append(layer)
        num_entries += len(layer)
        if num_entries > max_entries:
            raise SearchLimitError(f"no answer among {max_entries} arrangements of boxes")
    return layers


def _next_layer(room: Room, layer: _Layer, seen: _Layer) -> _Layer:
    """What one more move reaches for the first time; it is added to `seen`. Deadlocked arrangements are left out."""
    following: _Layer = {}
    for boxes, players in layer.items():
        free = room.floor & ~boxes
        walked = 0
        for step in room.steps:
            ahead = shift(players, step)
            walked |= ahead
            for cell in cells(shift(ahead & boxes, step) & free):
                box = 1 << cell - step
                pushed = boxes ^ (box | 1 << cell)
                if pushed not in seen:
                    seen[pushed] = _EVERYWHERE if is_deadlocked(room, pushed) else 0
                if box & ~seen[pushed]:  # the player now stands where the box was
                    seen[pushed] |= box
                    following[pushed] = following.get(pushed, 0) | box
        if fresh := walked & free & ~seen[boxes]:
            seen[boxes] |= fresh
            following[boxes] = following.get(boxes, 0) | fresh
    return following


def _trace(room: Room, layers: list[_Layer]) -> tuple[int, ...]:
    """The actions that led to the solved arrangement in the last layer, read backwards."""
    boxes = room.targets
    player = next(cells(layers[-1][boxes]))
    actions: list[int] = []
    for layer in reversed(layers[:-1]):
        for action, step in enumerate(room.steps):
            before = player - step
            pulled = boxes ^ (1 << player | 1 << player + step) if boxes >> player + step & 1 else 0
            unpushed = next((b for b in (boxes, pulled) if layer.get(b, 0) >> before & 1), None)
            if unpushed is not None:
                boxes, player = unpushed, before
                actions.append(action)
                break
    return tuple(reversed(actions))
