"""Minesweeper, by default solvable without guessing: see docs/environments/minesweeper.md."""
