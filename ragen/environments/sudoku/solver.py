"""Solving by search: always the empty cell with the fewest candidates next, digits of a unit kept as bits of an int."""

from __future__ import annotations

from collections.abc import Sequence

from ragen.environments.sudoku.rules import Cells, box_of


def solutions(cells: Cells, *, limit: int, digit_order: Sequence[Sequence[int]] | None = None) -> list[Cells]:
    """The complete grids that hold the filled cells, up to `limit` of them; none if the filled cells break a rule.

    `digit_order` gives for each cell the order in which its digits are tried (default: ascending), and so which grids come first.
    """
    size = int(len(cells) ** 0.5)
    search = _Search(list(cells), size, limit, digit_order or [range(1, size + 1)] * len(cells))
    if search.legal:
        search.fill()
    return search.found


class _Search:
    """One search. Bit d of rows[r], columns[c] and boxes[b] says that digit d is used there."""

    def __init__(self, cells: list[int], size: int, limit: int, digit_order: Sequence[Sequence[int]]) -> None:
        self.cells, self.size, self.limit, self.digit_order = cells, size, limit, digit_order
        self.rows, self.columns, self.boxes = [0] * size, [0] * size, [0] * size
        self.all_digits = (2 << size) - 2
        self.found: list[Cells] = []
        self.legal = True
        # (cell, row, column, box) of every empty cell
        self.empty: list[tuple[int, int, int, int]] = []
        for cell, digit in enumerate(cells):
            row, column, box = cell // size, cell % size, box_of(size)[cell]
            if not digit:
                self.empty.append((cell, row, column, box))
            elif (self.rows[row] | self.columns[column] | self.boxes[box]) >> digit & 1:
                self.legal = False
            else:
                self._toggle(row, column, box, 1 << digit)

    def fill(self) -> bool:
        """Fill the empty cells in every way there is; True as soon as `limit` ways are found."""
        if not self.empty:
            self.found.append(tuple(self.cells))
            return len(self.found) >= self.limit
        index, candidates = self._fewest()
        if not candidates:
            return False
        place = self.empty[index]
        self.empty[index] = self.empty[-1]
        self.empty.pop()
        cell, row, column, box = place
        for digit in self.digit_order[cell]:
            bit = 1 << digit
            if candidates & bit:
                self.cells[cell] = digit
                self._toggle(row, column, box, bit)
                if self.fill():
                    return True
                self._toggle(row, column, box, bit)
        self.cells[cell] = 0
        self.empty.append(place)
        self.empty[index], self.empty[-1] = self.empty[-1], self.empty[index]
        return False

    def _fewest(self) -> tuple[int, int]:
        """(index into `empty`, candidate bits) of the first cell with the fewest candidates."""
        rows, columns, boxes, all_digits = self.rows, self.columns, self.boxes, self.all_digits
        best_index, best, fewest = 0, 0, self.size + 1
        for index, (_, row, column, box) in enumerate(self.empty):
            candidates = all_digits & ~(rows[row] | columns[column] | boxes[box])
            count = candidates.bit_count()
            if count < fewest:
                best_index, best, fewest = index, candidates, count
                if count <= 1:
                    break
        return best_index, best

    def _toggle(self, row: int, column: int, box: int, bit: int) -> None:
        self.rows[row] ^= bit
        self.columns[column] ^= bit
        self.boxes[box] ^= bit
