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
register(
    "frozen_lake",
    "ragen.environments.frozen_lake.env:FrozenLakeEnv",
    "walk over slippery ice to the goal without falling into a hole",
)
register(
    "hanoi",
    "ragen.environments.hanoi.env:HanoiEnv",
    "the Tower of Hanoi: move disks between pegs, never a larger one onto a smaller one",
)
register(
    "lights_out",
    "ragen.environments.lights_out.env:LightsOutEnv",
    "press buttons, each of which flips its light and the lights around it, until all are off",
)
register(
    "multi_turn_bandit",
    "ragen.environments.multi_turn_bandit.env:MultiTurnBanditEnv",
    "arms of unknown worth and several pulls: find out which pays best and stay with it",
)
register(
    "sokoban",
    "ragen.environments.sokoban.env:SokobanEnv",
    "push every box onto a target, in a room that can be solved",
)
register(
    "reasoning_gym",
    "ragen.environments.reasoning.env:ReasoningGymEnv",
    "a problem from any generator of reasoning-gym, in one or more attempts",
)
register(
    "gsm",
    "ragen.environments.reasoning.gsm:GsmEnv",
    "a word problem of primary-school mathematics, answered by a number",
)
register(
    "question_answer",
    "ragen.environments.question_answer.env:QuestionAnswerEnv",
    "questions from a JSON, JSONL or Parquet file, compared as mathematics, number or text",
)
register(
    "gymnasium",
    "ragen.environments.adapters.gymnasium_id:GymnasiumEnv",
    "any environment of Gymnasium's registry with discrete or text actions, by its id",
)
register(
    "minigrid",
    "ragen.environments.adapters.minigrid_env:MiniGridEnv",
    "MiniGrid and BabyAI levels as text: a robot walks through rooms and does what its mission says",
)
register(
    "openenv",
    "ragen.environments.adapters.openenv_env:OpenEnvEnv",
    "an environment on a server that speaks the OpenEnv protocol",
)
