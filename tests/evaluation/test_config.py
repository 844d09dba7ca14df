"""The settings of an evaluation refuse what cannot be played."""

from __future__ import annotations

import pytest

from ragen.errors import ConfigError
from ragen.evaluation.config import EvaluationConfig


def test_the_defaults_are_the_papers() -> None:
    config = EvaluationConfig()
    config.check()
    assert (config.num_episodes, config.temperature, config.top_p, config.top_k) == (256, 0.5, 1.0, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_episodes", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("samples_per_seed", 0),
        ("num_episodes", 1_000_001),
        ("samples_per_seed", 99_999_999_999_999_999_999_999),
        ("every", -1),
        ("show_episodes", -1),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_full_key(key: str, value: float) -> None:
    config = EvaluationConfig(**{key: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^evaluation\.{key}={value}"):
        config.check()


def test_more_episodes_than_memory_can_hold_are_refused_also_as_a_product() -> None:
    EvaluationConfig(num_episodes=250_000, samples_per_seed=4).check()
    with pytest.raises(ConfigError, match=r"^evaluation\.samples_per_seed=5: .* 1250000 episodes .* at most 1000000$"):
        EvaluationConfig(num_episodes=250_000, samples_per_seed=5).check()


def test_greedy_sampling_is_allowed() -> None:
    EvaluationConfig(temperature=0.0).check()


def test_a_suite_is_named_once() -> None:
    with pytest.raises(ConfigError, match=r"^evaluation\.suites=\['quick', 'quick'\]: names a suite twice"):
        EvaluationConfig(suites=["quick", "quick"]).check()


def test_what_is_never_measured_in_between_is_not_measured_beside() -> None:
    with pytest.raises(ConfigError, match=r"^evaluation\.beside=true: has no effect with evaluation\.every=0"):
        EvaluationConfig(beside=True).check()
    EvaluationConfig(beside=True, every=2).check()
