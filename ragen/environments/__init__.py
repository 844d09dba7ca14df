"""Environments: Gymnasium's API, text in and text out. Built-in ones are listed here and imported when first used."""

from __future__ import annotations

from ragen.environments.registry import register

register(
    "bandit",
    "ragen.environments.bandit.env:BanditEnv",
    "two arms, a steady one and a risky one; the names hint which is which, one pull ends the episode",
)
register(
    "countdown",
    "ragen.environments.countdown.env:CountdownEnv",
    "make a target out of 3 or 4 numbers with + - * /; the answer is one expression, one attempt",
)
register(
    "sudoku",
    "ragen.environments.sudoku.env:SudokuEnv",
    "fill a 4x4 or 9x9 Sudoku with one solution, digit by digit; the last digit pays a bonus",
)
register(
    "game_2048",
    "ragen.environments.game_2048.env:Game2048Env",
    "slide and merge tiles until the goal tile is made; 4x4 and 2048 by default",
)
register(
    "rubiks_cube",
    "ragen.environments.rubiks_cube.env:RubiksCubeEnv",
    "the 2x2x2 cube, scrambled exactly as many turns deep as asked for",
)
register(
    "minesweeper",
    "ragen.environments.minesweeper.env:MinesweeperEnv",
    "reveal every cell that is not a mine; solvable by logic, without guessing, by default",
)
