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
