"""Lights Out solved exactly, by linear algebra over GF(2); and starts that need an exact number of presses.

All solutions of a board differ by a *quiet* set of presses, one that changes no light. There is only the empty one on boards of
2 to 8 rows, save 4 x 4 with 16 and 5 x 5 with 4 of them, so that the shortest solution is found by trying them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ragen.environments.lights_out.rules import flips

# The longest of the shortest solutions, found by exhaustive search. On the other sizes each board has one solution without
# repetitions, so that some board needs every button.
_FARTHEST = {4: 7, 5: 15}


def farthest(size: int) -> int:
    """Presses that the hardest board of this size needs, 2 <= size <= 8."""
    return _FARTHEST.get(size, size * size)


@dataclass(frozen=True, kw_only=True)
class _Elimination:
    """The flips brought to echelon form: each row is (lights, presses that make them), highest light first and unique."""

    rows: tuple[tuple[int, int], ...]
    quiet: tuple[int, ...]  # every set of presses without effect, the empty one included


@lru_cache(maxsize=16)
def _eliminate(size: int) -> _Elimination:
    rows: list[tuple[int, int]] = []
    quiet = [0]
    for button, flipped in enumerate(flips(size)):
        lights, presses = _reduce(flipped, 1 << button, rows)
        if lights:
            rows.append((lights, presses))
            rows.sort(reverse=True)
        else:
            quiet += [presses ^ other for other in quiet]
    return _Elimination(rows=tuple(rows), quiet=tuple(quiet))


def _reduce(lights: int, presses: int, rows: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Cancel the leading light of each row from `lights`, and note in `presses` what that took."""
    for row_lights, row_presses in rows:
        if lights ^ row_lights < lights:  # its leading light is on
            lights, presses = lights ^ row_lights, presses ^ row_presses
    return lights, presses


def quiet_patterns(size: int) -> tuple[int, ...]:
    """Every set of presses that changes no light, the empty set first."""
    return _eliminate(size).quiet


def shortest_solution(lights: int, size: int) -> int | None:
    """A smallest set of presses that darkens the board (of several the smallest number); None if no set does."""
    left, presses = _reduce(lights, 0, _eliminate(size).rows)
    return None if left else _lightest(presses, size)


def draw_presses(size: int, num_presses: int, random: np.random.Generator) -> int:
    """A set of exactly `num_presses` buttons that no smaller set replaces, all such sets equally likely.

    1 <= num_presses <= farthest(size). A set that a smaller one replaces is drawn again; at worst (15 presses on 5 x 5) one draw
    in a hundred is kept, for the counts of the tags every one.
    """
    while True:
        buttons: list[int] = random.permutation(size * size)[:num_presses].tolist()
        presses = sum(1 << button for button in buttons)
        if _lightest(presses, size).bit_count() == num_presses:
            return presses


def _lightest(presses: int, size: int) -> int:
    """The smallest set of presses with the same effect."""
    _, lightest = min(((presses ^ quiet).bit_count(), presses ^ quiet) for quiet in quiet_patterns(size))
    return lightest
