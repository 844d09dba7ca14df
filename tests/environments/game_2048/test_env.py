"""2048 as an environment: what is read and paid, how it ends, and what chance decides."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.game_2048.env import Game2048Env
from ragen.environments.game_2048.rules import DIRECTIONS, Board, legal_moves, max_tile
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.game_2048.env:Game2048Env"


def at(board: Board, **options: object) -> Game2048Env:
    """A game that stands at `board`."""
    env = registry.make(NAME, {"size": len(board), **options})
    assert isinstance(env, Game2048Env)
    env.reset(seed=0)
    env.board, env.max_tile, env.moves = board, max_tile(board), legal_moves(board)
    return env


def test_it_keeps_the_contract() -> None:
    check_environment(NAME)
    check_environment(NAME, {"size": 3, "goal_tile": 64, "log_reward": False})


def test_the_first_board_holds_two_tiles_and_shows_every_move() -> None:
    env = Game2048Env()
    for seed in range(50):
        text, _ = env.reset(seed=seed)
        tiles = sorted(tile for row in env.board for tile in row if tile)
        assert len(tiles) == 2
        assert set(tiles) <= {2, 4}
        first, *rows = text.split("\n")
        assert first == f"Score: 0. Possible moves: {', '.join(legal_moves(env.board))}."
        assert [len(row) for row in rows] == [4 * 4 + 3] * 4


def test_a_merge_pays_by_the_logarithm_of_its_points() -> None:
    env = at(((2, 2, 0), (8, 0, 8), (0, 0, 0)), goal_tile=64)
    text, reward, terminated, truncated, info = env.step("Left")
    assert reward == pytest.approx(0.1 * math.log2(4 + 16 + 1))
    assert (terminated, truncated) == (False, False)
    assert info == {"success": False, "effective": True, "score": 20, "max_tile": 16}
    assert text.startswith("Score: 20. Possible moves: ")
    assert sum(tile > 0 for row in env.board for tile in row) == 3  # two merged tiles and the new one


def test_without_the_logarithm_it_pays_the_points() -> None:
    assert at(((2, 2, 0), (8, 0, 8), (0, 0, 0)), goal_tile=64, log_reward=False).step("Left")[1] == 20.0


def test_sliding_without_a_merge_pays_nothing() -> None:
    env = at(((0, 2, 0), (0, 0, 0), (0, 0, 0)), goal_tile=64)
    _, reward, _, _, info = env.step("Left")
    assert (reward, info["effective"]) == (0.0, True)


@pytest.mark.parametrize("log_reward", [True, False])
def test_a_move_that_moves_nothing_costs_its_penalty_and_brings_no_tile(log_reward: bool) -> None:
    """Bug-log row 36, and the published penalty that vanished with the logarithmic reward: the reward is that of this action."""
    board = ((2, 0, 0), (4, 0, 0), (2, 0, 0))
    env = at(board, goal_tile=64, log_reward=log_reward)
    text, reward, terminated, _, info = env.step("Left")
    assert (reward, terminated, info["effective"]) == (-0.1, False, False)
    assert env.board == board
    assert text == "Left moves nothing.\nScore: 0. Possible moves: Right.\n 2  .  .\n 4  .  .\n 2  .  ."


def test_without_a_penalty_the_reward_is_a_plain_zero() -> None:
    env = at(((2, 0), (0, 0)), goal_tile=16, invalid_penalty=0.0)
    assert str(env.step("Left")[1]) == "0.0"
    assert "a reward of 0." in env.instruction


def test_making_the_goal_tile_ends_the_game_with_success_and_without_a_new_tile() -> None:
    env = at(((32, 32, 0), (0, 0, 0), (0, 0, 0)), goal_tile=64)
    text, reward, terminated, truncated, info = env.step("Right")
    assert text == "You made 64.\nScore: 64.\n .  . 64\n .  .  .\n .  .  ."
    assert reward == pytest.approx(0.1 * math.log2(65))
    assert (terminated, truncated) == (True, False)
    assert info == {"success": True, "effective": True, "score": 64, "max_tile": 64}


def test_a_full_board_without_equal_neighbours_is_lost() -> None:
    """Bug-log row 35: the game is over, and that is no success."""
    env = at(((8, 8), (4, 2)), goal_tile=32, two_prob=0.0)
    text, _, terminated, truncated, info = env.step("Left")  # a 4 is certain to appear in the one empty cell
    assert env.board == ((16, 4), (4, 2))
    assert text == "No move is possible. The game is lost.\nScore: 16.\n16  4\n 4  2"
    assert (terminated, truncated, info["success"]) == (True, False, False)


def test_members_of_a_group_start_alike_and_meet_other_tiles() -> None:
    env = Game2048Env()
    starts, boards = set(), set()
    for dynamics_seed in range(30):
        starts.add(env.reset(seed=3, options={"dynamics_seed": dynamics_seed})[0])
        env.step(env.moves[0])
        boards.add(env.board)
    assert len(starts) == 1
    assert len(boards) > 10


def test_new_tiles_are_twos_with_the_stated_probability_and_fall_anywhere() -> None:
    env = registry.make(NAME, {"two_prob": 0.7})
    assert isinstance(env, Game2048Env)
    twos, num_tiles, cells = 0, 2000, [0] * 15
    env.reset(seed=0, options={"dynamics_seed": 0})
    for _ in range(num_tiles):
        env.board = ((0, 0, 0, 8), (0,) * 4, (0,) * 4, (0,) * 4)
        env.moves = legal_moves(env.board)
        env.step("Left")
        new = [(i, tile) for i, tile in enumerate(tile for row in env.board for tile in row) if tile][1]
        cells[new[0] - 1] += 1
        twos += new[1] == 2
    # Five standard deviations of a binomial count each, wrong less than once in a million draws.
    assert abs(twos - 0.7 * num_tiles) < 5 * math.sqrt(num_tiles * 0.7 * 0.3)
    mean = num_tiles / 15
    assert all(abs(count - mean) < 5 * math.sqrt(mean) for count in cells)


def test_first_tiles_follow_the_same_probability() -> None:
    env = registry.make(NAME, {"two_prob": 1.0})
    assert all("4" not in env.reset(seed=seed)[0].partition("\n")[2] for seed in range(30))


def test_a_copy_in_the_middle_of_a_game_goes_on_identically() -> None:
    env = Game2048Env()
    env.reset(seed=1)
    for action in DIRECTIONS * 3:
        env.step(action)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = [env.step(action) for action in DIRECTIONS * 20]
    assert all([other.step(action) for action in DIRECTIONS * 20] == expected for other in copies)


def test_the_instruction_says_what_the_options_make_true() -> None:
    small = registry.make(NAME, {"size": 3, "goal_tile": 64, "two_prob": 1.0, "log_reward": False, "invalid_penalty": 0.25})
    small.reset(seed=0)
    for needed in ("3x3", "make a tile of 64", "Up, Right, Down, Left", "a 2, appears", "is the points", "-0.25", "dot"):
        assert needed in small.instruction
    usual = Game2048Env()
    usual.reset(seed=0)
    for needed in ("4x4", "make a tile of 2048", "a 2 or a 4, appears", "0.1 * log2(points + 1)", "-0.1"):
        assert needed in usual.instruction


def test_there_is_no_oracle_and_no_known_best_return() -> None:
    env = Game2048Env()
    env.reset(seed=0)
    assert env.oracle_action() is None
    assert env.max_return() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, r"size=1: must be within 2\.\.6"),
        ({"goal_tile": 100}, "goal_tile=100: must be a power of two from 8 to 131072"),
        ({"goal_tile": 4}, "goal_tile=4: must be a power of two from 8"),
        ({"size": 2, "goal_tile": 64}, "goal_tile=64: must be a power of two from 8 to 32"),
        ({"size": 2, "goal_tile": 32, "two_prob": 1.0}, "goal_tile=32: must be a power of two from 8 to 16"),
        ({"two_prob": 1.5}, r"two_prob=1.5: must be within 0\.\.1"),
        ({"invalid_penalty": -1.0}, "invalid_penalty=-1.0: must be at least 0"),
    ],
)
def test_an_impossible_option_is_refused_in_one_line(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.make(NAME, options)


def test_the_largest_goal_of_a_small_board_can_be_made() -> None:
    """32 on 2x2 cells, from the fullest board that still moves; new tiles are 4s, each in the one empty cell."""
    env = at(((16, 8), (4, 4)), goal_tile=32, two_prob=0.0)
    env.step("Right")
    assert env.board == ((16, 8), (4, 8))
    env.step("Up")
    assert env.board == ((16, 16), (4, 4))
    _, _, terminated, _, info = env.step("Left")
    assert (terminated, info["success"]) == (True, True)


def test_another_process_deals_the_same_board() -> None:
    assert first_prompt_elsewhere(NAME, {}, 11, hash_seed=1) == first_prompt(NAME, {}, 11)
