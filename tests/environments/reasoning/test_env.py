"""reasoning_gym as an environment."""

from __future__ import annotations

import importlib.util
from importlib.util import find_spec
from typing import Any

import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.reasoning import library
from ragen.environments.reasoning.env import ReasoningGymConfig, ReasoningGymEnv, problem_seed
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.reasoning.env:ReasoningGymEnv"
needs_library = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="needs reasoning-gym")


@needs_library
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dataset": "word_ladder", "num_attempts": 1},
        {"dataset": "pool_matrix", "levels": [0, 1]},
        {"dataset": "rush_hour", "partial_credit": False},
    ],
)
def test_it_keeps_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


@needs_library
def test_the_known_answer_solves_it_at_any_attempt() -> None:
    env = ReasoningGymEnv(ReasoningGymConfig(dataset="basic_arithmetic"))
    env.reset(seed=3)
    assert env.max_return() == 1.0
    env.step("no number")
    assert env.step(env.oracle_action() or "") == (
        "Correct.",
        0.5,
        True,
        False,
        {"success": True, "effective": True, "attempts": 2, "score": 1.0},
    )


@needs_library
def test_without_a_known_answer_there_is_no_oracle() -> None:
    env = ReasoningGymEnv(ReasoningGymConfig(dataset="graph_color"))
    env.reset(seed=3)
    assert (env.oracle_action(), env.max_return()) == (None, None)


@needs_library
def test_a_partial_score_pays_only_if_it_may() -> None:
    """countdown's scorer gives 0.05 for a readable expression that uses other numbers."""
    for partial_credit, expected in ((True, 0.05), (False, 0.0)):
        env = ReasoningGymEnv(ReasoningGymConfig(dataset="countdown", partial_credit=partial_credit))
        env.reset(seed=3)
        assert env.step("1 + 1")[1] == expected
        assert env.step("1 + 2")[1] == 0.0  # the same score again
        assert ("partly right" in env.instruction) is partial_credit


@needs_library
def test_levels_are_drawn_by_the_task_seed() -> None:
    env = ReasoningGymEnv(ReasoningGymConfig(dataset="spell_backward", levels=[0, 3]))  # words of 3 letters, or of 3 to 10
    words = [env.reset(seed=seed)[0].split()[-1] for seed in range(60)]
    assert words == [env.reset(seed=seed)[0].split()[-1] for seed in range(60)]
    assert sum(len(word) == 3 for word in words) >= 15  # half of them, if not by chance 3.9 standard deviations fewer
    assert max(map(len, words)) > 6


@needs_library
def test_even_and_odd_task_seeds_never_meet() -> None:
    import numpy as np

    seeds = [[problem_seed(np.random.default_rng(seed), seed) for seed in range(start, 2000, 2)] for start in (0, 1)]
    assert {seed % 2 for seed in seeds[0]} == {0}
    assert {seed % 2 for seed in seeds[1]} == {1}
    assert max(map(max, seeds)) < 2**32


@needs_library
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "chain_sums"}, "dataset='chain_sums': reasoning-gym has no such generator; did you mean 'chain_sum'?"),
        ({"dataset": "composite"}, "dataset='composite': is a mixture of generators; give each its own environment instead"),
        (
            {"dataset_config": {"min_term": 3}},
            "dataset_config.min_term: chain_sum has no such setting; did you mean 'min_terms'? "
            "(settings: min_terms, max_terms, min_digits, max_digits, allow_negation)",
        ),
        (
            {"dataset_config": {"min_terms": 30}},
            "dataset_config: chain_sum refuses its settings: AssertionError: max_terms must be >= min_terms",
        ),
        ({"dataset_config": {"seed": 3}}, "dataset_config.seed: is set by the environment; leave it out"),
        ({"levels": [0, 99]}, "levels=[0, 99]: the curriculum of chain_sum has levels 0.."),
        ({"dataset": "gsm_symbolic", "levels": [0]}, "levels=[0]: gsm_symbolic has no curriculum"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        registry.configure(NAME, options, where="env")
    assert str(error.value).startswith(f"env.{message}")
    assert "\n" not in str(error.value)


def test_settings_must_be_plain_values() -> None:
    with pytest.raises(ConfigError, match=r"dataset_config=.*: must hold plain values"):
        ReasoningGymConfig(dataset_config={"min_terms": float("nan")}).check()


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    library.check.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        registry.configure(NAME, {}, where="env")
    assert str(error.value) == "env.dataset='chain_sum': needs the package reasoning-gym: pip install 'ragen-rl[reasoning]'"


@needs_library
def test_the_first_prompt_is_the_same_in_another_process() -> None:
    options = {"dataset": "isomorphic_strings"}  # its generator follows the hash seed, unless that is fixed
    assert first_prompt_elsewhere(NAME, options, 11, hash_seed=5) == first_prompt(NAME, options, 11)
