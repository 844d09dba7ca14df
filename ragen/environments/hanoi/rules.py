"""The Tower of Hanoi's rules as pure functions.

A state says on which peg each disk lies, the smallest disk first: (2, 0, 0) is the smallest disk on the third peg and two more on
the first. Disks on one peg always lie by size, the largest at the bottom, so every such tuple is a legal state and there are
num_pegs ** num_disks of them.
"""

from __future__ import annotations

import itertools

import numpy as np

State = tuple[int, ...]  # peg of each disk, smallest disk first
Move = tuple[int, int]  # from peg, to peg

PEGS = "ABCDE"


def all_moves(num_pegs: int) -> tuple[Move, ...]:
    """Every ordered pair of pegs, legal or not."""
    return tuple(itertools.permutations(range(num_pegs), 2))


def move_name(move: Move) -> str:
    """The action that asks for `move`, such as "A to B"."""
    return f"{PEGS[move[0]]} to {PEGS[move[1]]}"


def top_disk(state: State, peg: int) -> int | None:
    """The smallest disk on `peg`, counted from 0; None if the peg is empty."""
    return next((disk for disk, its_peg in enumerate(state) if its_peg == peg), None)


def play(state: State, move: Move) -> State | None:
    """The state after moving the top disk of one peg onto another; None if there is none, or it would lie on a smaller one."""
    source, target = move
    disk = top_disk(state, source)
    if disk is None:
        return None
    below = top_disk(state, target)
    if below is not None and below < disk:
        return None
    return (*state[:disk], target, *state[disk + 1 :])


def why_not(state: State, move: Move) -> str:
    """Why `move`, which `play` refuses, is not allowed; disks are counted from 1, as they are shown."""
    source, target = move
    disk, below = top_disk(state, source), top_disk(state, target)
    if disk is None:
        return f"peg {PEGS[source]} is empty"
    assert below is not None and below < disk, (state, move)
    return f"disk {disk + 1} cannot lie on disk {below + 1}, which is smaller"


def tower(num_disks: int, peg: int) -> State:
    """All disks on one peg."""
    return (peg,) * num_disks


def draw_state(num_disks: int, num_pegs: int, random: np.random.Generator) -> State:
    """Any state, all equally likely."""
    return tuple(random.integers(num_pegs, size=num_disks).tolist())


def show(state: State, num_pegs: int) -> str:
    """One line a peg, the disks from the bottom up: "A: 3 2", "B: 1", "C: empty"."""
    lines = []
    for peg in range(num_pegs):
        disks = [str(disk + 1) for disk in reversed(range(len(state))) if state[disk] == peg]
        lines.append(f"{PEGS[peg]}: {' '.join(disks) or 'empty'}")
    return "\n".join(lines)
