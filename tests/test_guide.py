"""docs/custom_environments.md does what it says: its environment, its Gymnasium class and its rewards are run."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.rewards import brevity, no_repeats, quick_solution
from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.records import EndReason
from ragen.training.trackers import read_metrics
from tests.support.pages import ROOT, blocks
from tests.support.runs import run, small_config
from tests.support.samples import make_trajectory

GUIDE = ROOT / "docs" / "custom_environments.md"


@pytest.fixture
def coin() -> Iterator[str]:
    """The import path of the guide's Gymnasium class."""
    (source,) = (block for block in blocks(GUIDE, "python") if "class Coin" in block)
    module = types.ModuleType("my_coin")
    sys.modules["my_coin"] = module
    exec(compile(source, str(GUIDE), "exec"), vars(module))
    yield "my_coin:Coin"
    del sys.modules["my_coin"]


@pytest.mark.parametrize("example", ["guess_number", "rewards"])
def test_the_files_that_are_shown_are_the_files_that_are_there(example: str) -> None:
    assert (ROOT / "examples" / f"{example}.py").read_text(encoding="utf-8") in blocks(GUIDE, "python")


def test_the_environment_of_the_guide_is_short_and_keeps_the_contract() -> None:
    source = (ROOT / "examples" / "guess_number.py").read_text(encoding="utf-8")
    assert len([line for line in source.splitlines() if line.strip()]) <= 32
    check_environment("examples.guess_number:GuessNumber")


def test_the_gymnasium_class_of_the_guide_works_unchanged(coin: str) -> None:
    check_environment(coin)
    env = registry.make(coin)
    env.reset(seed=1, options={"dynamics_seed": 1})
    assert env.action_names == ("heads", "tails")
    assert env.instruction.startswith("Guess which side of a coin lies up")
    observation, reward, terminated, truncated, info = env.step("heads")
    assert (observation, info["success"]) == (("Right.", True) if reward else ("Wrong.", False))
    assert (terminated, truncated) == (True, False)


def test_the_environment_of_the_guide_is_trained_on_with_a_reward_of_the_guide(tmp_path: Path) -> None:
    settings = (
        "env=examples.guess_number:GuessNumber",
        "environments.GuessNumber.num_groups=1",
        "environments.GuessNumber.options.highest=4",
        "rewards.functions.brevity=examples.rewards:brevity",
        "rewards.weights.environment=0",
        "trainer.steps=1",
    )
    summary, _ = run(small_config(tmp_path, *settings))
    row = read_metrics(summary.folder)[-1]  # before it stands the evaluation of the start
    assert row["rollout/part/brevity"] == pytest.approx(-0.001 * row["rollout/response_tokens"])
    assert summary.after.environments["GuessNumber"].reward_parts["brevity"] < 0


def test_the_rewards_of_the_guide() -> None:
    """Two turns of 3 and 1 sampled tokens; the second repeats the action of the first."""
    failed = make_trajectory([1], [7, 8, 9], [2], [7], end_reason=EndReason.FAILED)
    assert brevity(failed) == pytest.approx(-0.004)
    assert no_repeats(failed) == [0.0, -1.0]
    assert quick_solution(failed) is None
    assert quick_solution(make_trajectory([1], [7], [2], [7], end_reason=EndReason.SOLVED)) == 0.5
