"""Minesweeper as an environment: what is read and paid, how it ends, what the oracle knows."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable

import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.minesweeper import env as module
from ragen.environments.minesweeper.env import MinesweeperEnv
from ragen.environments.minesweeper.rules import Field, lay
from ragen.environments.minesweeper.solver import members, safe_cells, solve
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.minesweeper.env:MinesweeperEnv"

#   A B C D
# 1 # # 1 0     The field with one mine at B2, after D1 has opened the 0s of column D and row 4 with their border.
# 2 # # 1 0
# 3 1 1 1 0
# 4 0 0 0 0
ONE_MINE = lay(4, 4, [5])


def play_on(field: Field, monkeypatch: pytest.MonkeyPatch, opened_at: int = 3, **options: object) -> MinesweeperEnv:
    """An episode on this field, opened at one of its cells."""
    opened = field.opens[opened_at]
    monkeypatch.setattr(module, "opened_field", lambda *_, no_guess: (field, opened, solve(field, opened) if no_guess else None))
    env = registry.make(NAME, {"height": field.height, "width": field.width, "num_mines": len(field.mines), **options})
    assert isinstance(env, MinesweeperEnv)
    env.reset(seed=0)
    return env


def test_it_keeps_the_contract() -> None:
    check_environment(NAME)
    check_environment(NAME, {"no_guess": False, "num_mines": 9, "mine_penalty": 0.5})
    check_environment(NAME, {"no_guess": False, "opened": False, "progress_reward": 0.0})


def test_a_game_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3 has one hidden neighbour, B2, which is the mine; the other three hidden cells are safe, a sixth of a point each."""
    env = play_on(ONE_MINE, monkeypatch)
    assert env.reset(seed=0)[0] == "Safe cells left: 3\n  A B C D\n1 # # 1 0\n2 # # 1 0\n3 1 1 1 0\n4 0 0 0 0"
    text, reward, terminated, truncated, info = env.step("b1")
    assert text == "Safe cells left: 2\n  A B C D\n1 # 1 1 0\n2 # # 1 0\n3 1 1 1 0\n4 0 0 0 0"
    assert reward == pytest.approx(0.5 / 3)
    assert (terminated, truncated) == (False, False)
    assert info == {"success": False, "effective": True, "revealed_frac": pytest.approx(1 / 3)}
    env.step("A1")
    text, reward, terminated, truncated, info = env.step("A2")
    assert text == "All safe cells are revealed.\nSafe cells left: 0\n  A B C D\n1 1 1 1 0\n2 1 # 1 0\n3 1 1 1 0\n4 0 0 0 0"
    assert reward == pytest.approx(1 + 0.5 / 3)
    assert (terminated, truncated) == (True, False)
    assert info == {"success": True, "effective": True, "revealed_frac": 1.0}


def test_a_mine_ends_the_game_without_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug-log row 35: lost is terminated, not truncated, and no success."""
    env = play_on(ONE_MINE, monkeypatch, mine_penalty=0.25)
    env.step("A1")
    text, reward, terminated, truncated, info = env.step("B2")
    assert text == "B2 was a mine. The game is lost.\n  A B C D\n1 1 # 1 0\n2 # * 1 0\n3 1 1 1 0\n4 0 0 0 0"
    assert (reward, terminated, truncated) == (-0.25, True, False)
    assert info == {"success": False, "effective": True, "revealed_frac": pytest.approx(1 / 3)}


def test_a_revealed_cell_changes_nothing_and_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    env = play_on(ONE_MINE, monkeypatch)
    env.step("A1")
    text, reward, terminated, _, info = env.step("A1")
    assert text.startswith("A1 is revealed already.\nSafe cells left: 2\n")
    assert (reward, terminated, info["effective"]) == (0.0, False, False)


def test_a_zero_opens_its_area_and_is_paid_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mines down column B leave the 0s of column D on the other side: D1 opens eight of the twelve safe cells."""
    walled = lay(4, 4, [1, 5, 9, 13])
    monkeypatch.setattr(module, "closed_field", lambda *_: walled)
    env = registry.make(NAME, {"height": 4, "width": 4, "num_mines": 4, "opened": False, "no_guess": False})
    env.reset(seed=0)
    text, reward, _, _, info = env.step("D1")
    assert text == "Safe cells left: 4\n  A B C D\n1 # # 2 0\n2 # # 3 0\n3 # # 3 0\n4 # # 2 0"
    assert reward == pytest.approx(0.5 * 8 / 12)
    assert info["revealed_frac"] == pytest.approx(8 / 12)
    assert env.oracle_action() == "A1"


def test_without_an_opened_area_nothing_shows_at_the_start() -> None:
    env = registry.make(NAME, {"opened": False, "no_guess": False})
    for seed in range(20):
        text, _ = env.reset(seed=seed)
        assert text == "Safe cells left: 21\n  A B C D E\n" + "\n".join(f"{y} # # # # #" for y in range(1, 6))


def test_the_oracle_needs_no_more_actions_than_areas_and_lone_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mines known: one action for column D and its border, four for the numbers of column A."""
    walled = lay(4, 4, [1, 5, 9, 13])
    monkeypatch.setattr(module, "closed_field", lambda *_: walled)
    env = registry.make(NAME, {"height": 4, "width": 4, "num_mines": 4, "opened": False, "no_guess": False})
    env.reset(seed=0)
    assert list(follow_oracle(env)) == ["D1", "A1", "A2", "A3", "A4"]


def follow_oracle(env: MinesweeperEnv) -> Iterable[str]:
    """Play the oracle to the end; the actions it took."""
    while (action := env.oracle_action()) is not None:
        yield action
        env.step(action)


@pytest.mark.parametrize("options", [{}, {"no_guess": False, "num_mines": 9}, {"opened": False, "no_guess": False}])
def test_the_oracle_wins_and_earns_the_best_return(options: dict[str, object]) -> None:
    env = registry.make(NAME, {"progress_reward": 0.3, **options})
    for seed in range(30):
        env.reset(seed=seed)
        total, terminated = 0.0, False
        while not terminated:
            _, reward, terminated, _, info = env.step(env.oracle_action() or "")
            total += reward
        assert info["success"]
        assert total == pytest.approx(1.3, abs=1e-9)
        assert env.max_return() == 1.3


def test_what_the_oracle_reveals_without_guessing_follows_from_what_shows() -> None:
    """Also after the agent has revealed other cells first."""
    env = MinesweeperEnv()
    for seed in range(20):
        env.reset(seed=seed)
        names = env.action_names or ()
        lucky = next(cell for cell in reversed(range(25)) if cell not in env.shown | env.field.mines)
        _, _, terminated, _, _ = env.step(names[lucky])
        while not terminated:
            action = env.oracle_action() or ""
            numbers = {cell: env.field.numbers[cell] for cell in env.shown}
            while names.index(action) not in members(safe := safe_cells(5, 5, numbers, 4)):
                assert safe  # first what is safe by a single number, then what follows once that is known
                numbers |= {cell: env.field.numbers[cell] for cell in members(safe)}
            terminated = env.step(action)[2]


def test_the_instruction_says_what_the_options_make_true() -> None:
    env = MinesweeperEnv()
    env.reset(seed=0)
    for needed in (
        "5 rows and 5 columns",
        "4 mines.",
        "# is a hidden cell",
        "from A1",
        "to E5",
        "never need to guess",
        "earn 0.5",
    ):
        assert needed in env.instruction
    other = registry.make(NAME, {"num_mines": 1, "width": 6, "no_guess": False, "opened": False, "progress_reward": 0.0})
    other.reset(seed=0)
    for needed in ("5 rows and 6 columns", "1 mine.", "to F5", "a reward of 1. Revealing a mine earns 0."):
        assert needed in other.instruction
    for absent in ("guess", "at the start", "share"):
        assert absent not in other.instruction


def test_a_copy_in_the_middle_of_a_game_goes_on_identically() -> None:
    env = registry.make(NAME, {"height": 9, "width": 9, "num_mines": 10})
    env.reset(seed=1)
    env.step(env.oracle_action() or "")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

    def go_on(game: MinesweeperEnv) -> list[object]:
        return [(action := game.oracle_action(), game.step(action or "")) for _ in range(3)]

    expected = go_on(env)
    assert all(go_on(other) == expected for other in copies)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 3}, r"height=3: must be within 4\.\.16"),
        ({"width": 17}, r"width=17: must be within 4\.\.16"),
        ({"num_mines": 6}, r"num_mines=6: must be within 1\.\.5 on 5x5 cells, a fifth of them, with no_guess=true"),
        ({"num_mines": 17, "no_guess": False}, r"num_mines=17: must be within 1\.\.16 on 5x5 cells, without the 9"),
        ({"num_mines": 25, "no_guess": False, "opened": False}, r"num_mines=25: must be within 1\.\.24 on 5x5 cells"),
        ({"num_mines": 0}, "num_mines=0: must be within 1"),
        ({"opened": False}, "no_guess=True: needs opened=true"),
        ({"progress_reward": -1.0}, "progress_reward=-1.0: must be at least 0"),
        ({"mine_penalty": -1.0}, "mine_penalty=-1.0: must be at least 0"),
    ],
)
def test_an_impossible_option_is_refused_in_one_line(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.make(NAME, options)


def test_another_process_lays_the_same_field() -> None:
    assert first_prompt_elsewhere(NAME, {}, 11, hash_seed=1) == first_prompt(NAME, {}, 11)
