"""Sudoku, 4x4 and 9x9: see docs/environments/sudoku.md."""
