"""The player that knows: the next move of a shortest solution from wherever the room stands."""

from __future__ import annotations

from collections.abc import Sequence

from ragen.environments.sokoban.generate import Puzzle
from ragen.environments.sokoban.rules import State, play
from ragen.environments.sokoban.solver import SearchLimitError, shortest_solution


class Oracle:
    """Searches once, follows what it found, and searches again where the player has left the way."""

    def __init__(self, puzzle: Puzzle) -> None:
        self._puzzle = puzzle
        self._next: dict[State, int | None] = {}  # an index of ACTIONS; None: cannot be solved, or is solved

    def action(self, state: State) -> int | None:
        """The index of the move to make; None if no move is left that leads to a solution.

        Where the search gives up, the room's proof is followed as far as `state` lies on its way; elsewhere the answer is None.
        """
        if state not in self._next:
            try:
                self._learn(state, shortest_solution(self._puzzle.room, state) or ())
            except SearchLimitError:
                self._learn(self._puzzle.start, self._puzzle.proof)
        return self._next.setdefault(state, None)

    def _learn(self, state: State, actions: Sequence[int]) -> None:
        room = self._puzzle.room
        for action in actions:
            self._next[state] = action  # the last time counts for a state that is passed twice, so no way runs in a circle
            state = play(room, state, room.steps[action])
        self._next[state] = None
