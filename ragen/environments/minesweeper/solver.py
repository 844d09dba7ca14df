"""What can be known of the hidden cells of a Minesweeper field without guessing.

A cell is safe if it holds no mine in any way to lay the mines that agrees with all numbers shown and with the number of mines.
Hidden cells next to numbers fall into parts that share no number. The ways to lay each part are enumerated on their own, then the
parts are joined by how many mines they use. Sets of cells are integers: bit i stands for cell i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ragen.environments.minesweeper.rules import Cells, Field, neighbours

_MAX_WAYS = 5_000  # to lay one part; a field that has more is given up, which larger ones without many numbers do

_Constraint = tuple[int, int]  # (set of cells, number of mines in it)


class _TooMany(Exception):
    """A part of the field can be laid in more ways than are worth enumerating."""


def solve(field: Field, opened: Cells) -> Cells | None:
    """Cells to reveal one after the other, none by guessing, until every safe cell shows; None if that cannot be found.

    `opened` are the cells that show at the start. What is safe stays safe when more is known: the first cell of the answer that
    is still hidden is safe beyond doubt in whatever order the others were revealed.
    """
    shown = {cell: field.numbers[cell] for cell in opened}
    order: list[int] = []
    while len(shown) < field.num_safe:
        safe = safe_cells(field.height, field.width, shown, len(field.mines))
        if not safe:
            return None
        for cell in members(safe):
            if cell not in shown:
                order.append(cell)
                shown.update((seen, field.numbers[seen]) for seen in field.opens[cell])
    return tuple(order)


def safe_cells(height: int, width: int, shown: Mapping[int, int], num_mines: int) -> int:
    """Hidden cells that hold no mine for certain: not always all of them, but none only if there is none or the search gave up.

    `shown` maps every revealed cell to its number; `num_mines` is that of the whole field.
    """
    around = neighbours(height, width)
    hidden = set_of(cell for cell in range(height * width) if cell not in shown)
    constraints = [(set_of(around[cell]) & hidden, number) for cell, number in shown.items()]
    simplified = _simplify(constraints)
    assert simplified is not None, f"numbers that no mines agree with: {dict(shown)}"
    constraints, mines, safe = simplified
    if safe:
        return safe
    try:
        return _safe_by_enumeration(constraints, hidden & ~mines, num_mines - mines.bit_count())
    except _TooMany:
        return 0


def set_of(cells: Iterable[int]) -> int:
    """These cells as a set."""
    found = 0
    for cell in cells:
        found |= 1 << cell
    return found


def members(cells: int) -> Iterator[int]:
    """The cells of a set, in order."""
    while cells:
        lowest = cells & -cells
        yield lowest.bit_length() - 1
        cells ^= lowest


def _simplify(constraints: list[_Constraint]) -> tuple[list[_Constraint], int, int] | None:
    """(constraints that leave a choice, cells that must be mines, cells that cannot be); None if they contradict each other."""
    mines = safe = 0
    while True:
        known = mines | safe
        left: dict[int, int] = {}
        for cells, number in constraints:
            number -= (cells & mines).bit_count()
            cells &= ~(mines | safe)
            if not 0 <= number <= cells.bit_count() or left.setdefault(cells, number) != number:
                return None
            if number == 0:
                safe |= cells
            elif number == cells.bit_count():
                mines |= cells
        if mines & safe:
            return None
        constraints = [(cells, number) for cells, number in left.items() if cells]
        if mines | safe == known:
            return constraints, mines, safe


def _lay(constraints: list[_Constraint]) -> Iterator[int]:
    """Every set of mines that meets the constraints, within the cells they speak of."""
    simplified = _simplify(constraints)
    if simplified is None:
        return
    constraints, mines, _ = simplified
    if not constraints:
        yield mines
        return
    cells, _ = min(constraints, key=lambda constraint: constraint[0].bit_count())
    cell = cells & -cells
    for number in (0, 1):
        for more in _lay([*constraints, (cell, number)]):
            yield mines | more


def _parts(constraints: list[_Constraint]) -> list[tuple[int, list[_Constraint]]]:
    """The constraints in groups that share no cell, each with the set of its cells."""
    parts: list[tuple[int, list[_Constraint]]] = []
    for constraint in constraints:
        touching = [part for part in parts if part[0] & constraint[0]]
        parts = [part for part in parts if not part[0] & constraint[0]]
        cells, joined = constraint[0], [constraint]
        for part_cells, part_constraints in touching:
            cells |= part_cells
            joined += part_constraints
        parts.append((cells, joined))
    return parts


def _ways(constraints: list[_Constraint]) -> dict[int, int]:
    """For each number of mines that a part can hold: the cells that are a mine in at least one way to lay that many."""
    possible: dict[int, int] = {}
    for count, mines in enumerate(_lay(constraints)):
        if count == _MAX_WAYS:
            raise _TooMany
        number = mines.bit_count()
        possible[number] = possible.get(number, 0) | mines
    return possible


def _safe_by_enumeration(constraints: list[_Constraint], hidden: int, num_mines: int) -> int:
    """All safe cells among `hidden`, which hold `num_mines` mines. Raises _TooMany."""
    parts = [(cells, _ways(part)) for cells, part in _parts(constraints)]
    rest = hidden
    for cells, _ in parts:
        rest &= ~cells
    # Numbers of mines in all the parts together; the rest of the hidden cells has to take the others.
    fitting = range(max(0, num_mines - rest.bit_count()), num_mines + 1)
    safe = 0
    for index, (cells, ways) in enumerate(parts):
        elsewhere = _sums([other for i, (_, other) in enumerate(parts) if i != index])
        maybe_mines = 0
        for number, mines in ways.items():
            if any(number + other in fitting for other in elsewhere):
                maybe_mines |= mines
        safe |= cells & ~maybe_mines
    if all(total == num_mines for total in _sums([ways for _, ways in parts]) if total in fitting):
        safe |= rest
    return safe


def _sums(counts: list[dict[int, int]]) -> set[int]:
    """All sums of one key from each."""
    sums = {0}
    for keys in counts:
        sums = {total + key for total in sums for key in keys}
    return sums
