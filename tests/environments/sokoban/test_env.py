"""Sokoban as an environment: episodes, budgets, options, the oracle."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from omegaconf import OmegaConf

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.sokoban.env import SokobanConfig, SokobanEnv
from ragen.environments.sokoban.generate import Puzzle
from ragen.environments.sokoban.oracle import Oracle
from ragen.environments.sokoban.rules import ACTIONS, best_return, is_solved, play
from ragen.environments.sokoban.solver import shortest_solution
from ragen.environments.text_env import TextEnv
from ragen.errors import ConfigError
from tests.support.sokoban import DIRECTIONS, Drawing, draw

NAME = "ragen.environments.sokoban.env:SokobanEnv"
TAGS = {path.stem: OmegaConf.load(path) for path in (Path(__file__).parents[3] / "ragen/conf/env").glob("sokoban*.yaml")}


def make(**options: Any) -> TextEnv:
    return registry.make(NAME, options)


def placed(*rows: str, **options: Any) -> SokobanEnv:
    """An environment in the middle of an episode, at a drawn position."""
    room, state = draw(*rows)
    env = SokobanEnv(
        SokobanConfig(height=room.height, width=room.width, num_boxes=state.boxes.bit_count(), search_depth=30, **options)
    )
    env.reset(seed=0)
    env._enter(Puzzle(room=room, start=state, proof=()))
    return env


def test_an_episode_ends_with_the_last_box_and_says_so_once() -> None:
    env = placed("#######", "#_____#", "#PX_O_#", "#_____#", "#######")
    assert env.step("Right") == (
        "#######\n#_____#\n#_PXO_#\n#_____#\n#######",
        -0.1,
        False,
        False,
        {"success": False, "effective": True, "deadlock": 0.0},
    )
    assert env.step("Right") == (
        "#######\n#_____#\n#__P√_#\n#_____#\n#######",
        10.9,
        True,
        False,
        {"success": True, "effective": True, "deadlock": 0.0},
    )
    with pytest.raises(ResetNeeded):
        env.step("Up")


def test_a_blocked_action_is_not_effective_and_costs_what_any_action_costs() -> None:
    """Bug-log row 36: each reward is worked out anew; after a push that paid, an action without effect pays -0.1 again."""
    env = placed("#######", "#PXO__#", "#__XO_#", "#_____#", "#######")
    assert env.step("Up")[1:] == (-0.1, False, False, {"success": False, "effective": False, "deadlock": 0.0})
    assert env.step("Right")[1] == 0.9
    assert env.step("Up")[1:] == (-0.1, False, False, {"success": False, "effective": False, "deadlock": 0.0})


def test_an_episode_without_a_solution_goes_on_and_is_never_a_success() -> None:
    """Bug-log row 35: only a solved room ends an episode; how many actions there are is not the environment's business."""
    env = placed("#######", "#_X_O_#", "#_P___#", "#_____#", "#######")
    for number in range(300):
        _, reward, terminated, truncated, info = env.step("Up" if number % 2 else "Down")
        assert (reward, terminated, truncated, info["success"]) == (-0.1, False, False, False)


def test_a_deadlock_shows_in_info_from_the_push_that_made_it_to_the_end() -> None:
    env = placed("#######", "#_____#", "#_X_P_#", "#___O_#", "#_____#", "#######")
    assert env.step("Left")[4]["deadlock"] == 0.0
    observation, reward, terminated, _, info = env.step("Left")
    assert "#XP___#" in observation
    assert (reward, terminated) == (-0.1, False)
    assert info == {"success": False, "effective": True, "deadlock": 1.0}
    assert env.oracle_action() is None
    assert env.step("Up")[4] == {"success": False, "effective": True, "deadlock": 1.0}


def test_the_names_in_the_prompt_are_the_actions_and_case_does_not_matter() -> None:
    """Bug-log row 37: every name moves the player as it says; an arrow, a number or a full stop is no action."""
    for name, (down, right) in DIRECTIONS.items():
        for spelling in (name, name.lower(), f" {name.upper()} "):
            env = placed("#####", "#___#", "#_P_#", "#__X#", "#_O_#", "#####")
            assert name in env.instruction
            drawing = Drawing(tuple(env.step(spelling)[0].splitlines()))
            assert drawing.find("PS") == {(2 + down, 2 + right)}
    for wrong in ("Right.", "→", "4", "", "push"):
        with pytest.raises(ValueError, match="is unknown"):
            env.step(wrong)


@pytest.mark.parametrize("tag", TAGS)
def test_the_oracle_solves_every_room_of_a_tag_within_its_budget(tag: str) -> None:
    """A smaller version of the run over 10 000 seeds: no reset fails, no room is unsolvable or solved at the start."""
    budget = TAGS[tag].max_actions
    env = make(**TAGS[tag].options)
    for seed in range(150):
        observation, _ = env.reset(seed=seed)
        best = env.max_return()
        rewards: list[float] = []
        info: dict[str, Any] = {"success": False}
        while not info["success"]:
            assert len(rewards) < budget
            action = env.oracle_action()
            assert action is not None
            after, reward, terminated, _, info = env.step(action)
            assert (terminated, info["effective"], info["deadlock"]) == (info["success"], True, 0.0)
            assert after != observation
            observation = after
            rewards.append(reward)
        assert sum(rewards) == pytest.approx(best, abs=1e-9)
        assert env.oracle_action() is None


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_keeps_the_contract(tag: str) -> None:
    check_environment(NAME, OmegaConf.to_container(TAGS[tag].options), num_seeds=3, max_actions=TAGS[tag].max_actions)


def test_the_tags_are_the_published_tasks() -> None:
    def options(tag: str) -> SokobanConfig:
        config = registry.configure(NAME, OmegaConf.to_container(TAGS[tag].options))
        assert isinstance(config, SokobanConfig)
        return config

    larger = options("sokoban_larger")
    assert (larger.height, larger.width, larger.num_boxes, larger.search_depth) == (8, 8, 2, 10)
    assert options("sokoban_simple") == options("sokoban")
    assert (options("sokoban_vocab").symbols, options("sokoban_vocab").search_depth) == ("W.GCBA@", 30)
    assert options("sokoban_coord").observation_format == "grid_coord"
    for tag in ("sokoban_simple", "sokoban_vocab", "sokoban_coord"):
        assert (options(tag).height, options(tag).width, options(tag).num_boxes) == (6, 6, 1)


def test_the_oracle_plans_anew_wherever_the_agent_went() -> None:
    """Off the way it led, each answer still begins a solution of the fewest moves (the plain search of tests/support)."""
    env = make(num_boxes=2, search_depth=30)
    num_lost = 0
    for seed in range(15):
        env.reset(seed=seed)
        source = np.random.default_rng(seed)
        for _ in range(6):
            observation, _, terminated, _, _ = env.step(ACTIONS[int(source.integers(4))])
            if terminated:
                break
            drawing = Drawing(tuple(observation.splitlines()))
            fewest, action = drawing.fewest_moves(), env.oracle_action()
            num_lost += fewest is None
            assert (action is None) == (fewest is None)
            if action is not None and fewest is not None:
                player, boxes = drawing.after(drawing.position, action)
                assert _fewest_from(drawing, player, boxes) == fewest - 1
    assert num_lost > 0


def _fewest_from(drawing: Drawing, player: tuple[int, int], boxes: frozenset[tuple[int, int]]) -> int | None:
    targets = drawing.find("OS√")

    def symbol(cell: tuple[int, int]) -> str:
        if cell in drawing.walls:
            return "#"
        if cell == player:
            return "S" if cell in targets else "P"
        if cell in boxes:
            return "√" if cell in targets else "X"
        return "O" if cell in targets else "_"

    height, width = len(drawing.rows), len(drawing.rows[0])
    return Drawing(tuple("".join(symbol((r, c)) for c in range(width)) for r in range(height))).fewest_moves()


def test_where_the_search_gives_up_the_oracle_follows_the_proof_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    env = SokobanEnv(SokobanConfig(num_boxes=2, search_depth=30))
    env.reset(seed=3)
    puzzle = env._puzzle
    monkeypatch.setitem(shortest_solution.__kwdefaults__, "max_entries", 2)
    assert env.max_return() is None
    oracle, state = Oracle(puzzle), puzzle.start
    num_moves = 0
    while (action := oracle.action(state)) is not None:
        state = play(puzzle.room, state, puzzle.room.steps[action])
        num_moves += 1
    assert is_solved(puzzle.room, state.boxes)
    assert num_moves <= len(puzzle.proof)
    stray = puzzle.start._replace(player=puzzle.start.player + 10_000)  # nowhere on the way
    assert oracle.action(stray) is None


def test_the_best_return_is_eleven_minus_a_tenth_for_each_move() -> None:
    env = make(min_solution_length=7, max_solution_length=7)
    env.reset(seed=0)
    assert env.max_return() == pytest.approx(10.3)
    room, start = draw("######", "#PX√O#", "######")
    assert best_return(room, start, 3) == pytest.approx(1 + 10 - 0.3)
    env = make(num_boxes=2, height=8, width=8, min_solution_length=9, max_solution_length=9)
    env.reset(seed=0)
    assert env.max_return() == pytest.approx(2 + 10 - 0.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 4}, "height=4: must be within 5..20"),
        ({"width": 21}, "width=21: must be within 5..20"),
        ({"num_boxes": 0}, "num_boxes=0: must be within 1..7 in a room of 6 x 6"),
        ({"num_boxes": 8}, "num_boxes=8: must be within 1..7"),
        ({"height": 5, "width": 5, "num_boxes": 4}, "num_boxes=4: no room of 5 x 5 with 4 boxes in 300 tries"),
        ({"search_depth": 0}, "search_depth=0: must be at least 1"),
        ({"min_solution_length": 0}, "min_solution_length=0: must be at least 1"),
        ({"min_solution_length": 5, "max_solution_length": 4}, "max_solution_length=4: must be at least min_solution_length=5"),
        ({"min_solution_length": 90}, "min_solution_length=90: no such room of 6 x 6 with 1 box in 300 tries"),
        ({"min_solution_length": 40, "max_solution_length": 50}, "min_solution_length=40, max_solution_length=50: no such room"),
        ({"observation_format": "grids"}, "observation_format='grids': must be one of grid, coord, grid_coord; did you mean"),
        ({"symbols": "#_OX"}, "must be 7 characters (wall, floor, target, box on target, box, player, player on target)"),
        ({"symbols": "##O√XPS"}, "the characters must differ"),
        ({"symbols": "# O√XPS"}, "' ' is not a visible character"),
        ({"symbols": "#_O√XP\n"}, "'\\n' is not a visible character"),
        ({"symbols": "#_O√XP\u0301"}, "is not a visible character that stands alone"),
        ({"symbols": "W.GCBA@", "observation_format": "coord"}, "coord shows no symbols"),
    ],
)
def test_an_impossible_option_is_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_symbols_outside_ascii_are_shown_as_given() -> None:
    observation, _ = make(symbols="墙地标完箱人站").reset(seed=0)
    assert set(observation) == set("墙地标箱人\n")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_the_middle_of_an_episode_goes_on_alike(copied: Any) -> None:
    env = make(num_boxes=2, search_depth=30, observation_format="grid_coord")
    env.reset(seed=2)
    env.step(env.oracle_action() or "Up")
    twin = copied(env)
    for name in ("Left", "Up", "Right", "Down", "Right"):
        assert env.step(name) == twin.step(name)
        assert env.oracle_action() == twin.oracle_action()
    assert env.reset() == twin.reset()


def test_a_picture_shows_each_kind_of_cell_differently() -> None:
    env = SokobanEnv(SokobanConfig(), render_mode="rgb_array")
    env.reset(seed=0)
    room, state = draw("########", "#_OX√P_#", "########")
    env._enter(Puzzle(room=room, start=state, proof=()))
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((3 * 32, 8 * 32, 3), np.uint8)
    tiles = [picture[32:64, 32 * c : 32 * c + 32].tobytes() for c in range(8)]
    assert len(set(tiles)) == 6  # wall, floor, target, box, box on target, player
    assert tiles[1] == tiles[6]
    room, state = draw("########", "#_OX√S_#", "########")
    env._enter(Puzzle(room=room, start=state, proof=()))
    assert env.render()[32:64, 160:192].tobytes() not in tiles


def test_the_same_seed_gives_the_same_room_under_another_hash_seed() -> None:
    code = (
        "from ragen.environments import registry\n"
        f"env = registry.make({NAME!r}, dict(height=8, width=8, num_boxes=2, search_depth=10))\n"
        "print(*(env.reset(seed=seed)[0] for seed in range(20)), sep='\\n')"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    env = make(height=8, width=8, num_boxes=2, search_depth=10)
    assert outputs[0] == "".join(env.reset(seed=seed)[0] + "\n" for seed in range(20))


def test_the_observation_on_the_page_is_a_real_one() -> None:
    page = (Path(__file__).parents[3] / "docs/environments/sokoban.md").read_text(encoding="utf-8")
    env = make(height=7, width=7, num_boxes=2, search_depth=20, observation_format="grid_coord")
    assert f"```\n{env.reset(seed=8)[0]}\n```" in page
