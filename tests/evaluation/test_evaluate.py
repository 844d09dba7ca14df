"""Held-out evaluation over the scripted engine: literal replies in, literal figures out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from ragen.credit.rewards import RewardsConfig
from ragen.engines.scripted import ScriptedEngine, ScriptedReply
from ragen.errors import TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.results import EvaluationResult, read_result, write_result
from ragen.evaluation.statistics import Interval
from ragen.models.chat import ChatTemplate
from ragen.records import Sampling, Split
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.state_manager import EnvironmentConfig
from tests.support.corridor import num_open
from tests.support.tokenizers import make_tokenizer

TEMPLATE = ChatTemplate(make_tokenizer())
RIGHT = "go</think><answer>Right</answer>"  # behind the prefix '<think>'; one step from the goal, it wins
NOISE = "no idea"
ONE_STEP = EnvironmentConfig(name="corridor", options={"start": 3})
ROLLOUT = RolloutConfig(group_size=16, max_invalid_turns=1, sampling=SamplingConfig(max_new_tokens=40))

Script = Sequence[str] | Callable[[Sequence[int], Sampling], ScriptedReply]


def engine_of(script: Script, fail_at: Collection[int] = ()) -> ScriptedEngine:
    if callable(script):
        return ScriptedEngine(script, fail_at=fail_at)
    return ScriptedEngine([tuple(TEMPLATE.encode_text(text)) for text in script], fail_at=fail_at)


def run(
    engine: ScriptedEngine,
    evaluation: EvaluationConfig,
    *,
    rollout: RolloutConfig = ROLLOUT,
    step: int = 16,
    rewards: RewardsConfig | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
    **environments: EnvironmentConfig,
) -> EvaluationResult:
    environments = environments or {"walk": ONE_STEP}
    return asyncio.run(
        evaluate(
            engine,
            TEMPLATE,
            environments,
            evaluation,
            rollout,
            model="tiny",
            step=step,
            rewards=rewards,
            on_progress=on_progress,
        )
    )


def test_rewards_of_one_s_own_are_measured_beside_the_environment_s_return() -> None:
    """Weight 0 for the environment changes nothing about success and return, which compare runs of every kind."""
    evaluation = EvaluationConfig(num_episodes=2)
    plain = run(engine_of([RIGHT, NOISE]), evaluation)
    rewards = RewardsConfig(functions={"mine": "tests.support.rewards:one"}, weights={"mine": 0.5, "environment": 0.0})
    measured = run(engine_of([RIGHT, NOISE]), evaluation, rewards=rewards)
    assert measured.environments["walk"].reward_parts == {"mine": 0.5}
    assert measured.environments["walk"].episodes.returns == plain.environments["walk"].episodes.returns
    assert measured.metrics() == plain.metrics() | {"eval/walk/part/mine": 0.5}


def test_three_wins_and_one_reply_that_could_not_be_read() -> None:
    """Success 3 of 4: Wilson (0.75 + 0.4802 +- 1.96 sqrt(0.1875/4 + 3.8415/64)) / 1.9604. Returns 1, -0.1, 1, 1: mean 0.725."""
    result = run(engine_of([RIGHT, NOISE, RIGHT, RIGHT]), EvaluationConfig(num_episodes=4))
    walk = result.environments["walk"]
    assert result.success.mean == 0.75
    assert result.success.low == pytest.approx(0.30064, abs=1e-5)
    assert result.success.high == pytest.approx(0.95441, abs=1e-5)
    assert walk.success == result.success
    assert walk.return_.mean == pytest.approx(0.725)
    # Scaled from [-0.1, 1] to [0, 1] it is the same three of four.
    assert walk.return_.low == pytest.approx(-0.1 + 1.1 * 0.30064, abs=1e-5)
    assert walk.format_validity.mean == 0.75
    assert walk.num_turns == Interval(mean=1.0)
    assert walk.num_actions.mean == 0.75
    assert walk.end_reasons == {"parse_failure": 1, "solved": 3}
    assert walk.failures == {}
    assert (result.num_episodes, result.num_failed) == (4, 0)
    assert (result.model, result.step) == ("tiny", 16)


def test_replies_are_sampled_at_the_temperature_of_the_evaluation() -> None:
    engine = engine_of([RIGHT] * 2)
    run(engine, EvaluationConfig(num_episodes=2, temperature=0.25, top_p=0.9, top_k=7))
    assert {(s.temperature, s.top_p, s.top_k, s.max_new_tokens) for s in (r.sampling for r in engine.requests)} == {
        (0.25, 0.9, 7, 40)
    }


def test_episodes_are_held_out_and_each_has_a_seed_of_its_own() -> None:
    """bug-log row 91: validation seeds are the odd ones."""
    result = run(engine_of([RIGHT] * 6), EvaluationConfig(num_episodes=6))
    assert len(set(result.seeds)) == 6
    assert all(seed % 2 == 1 for seed in result.seeds)
    assert {trajectory.key.split for trajectory in result.trajectories} == {Split.VALIDATION}


def test_every_evaluation_plays_the_same_episodes_with_the_same_random_streams() -> None:
    """bug-log row 92: whatever the step and whatever other environments there are."""
    alone, later, beside = engine_of([RIGHT] * 3), engine_of([RIGHT] * 3), engine_of([RIGHT] * 6)
    evaluation = EvaluationConfig(num_episodes=3)
    first = run(alone, evaluation, step=0, walk=ONE_STEP)
    assert run(later, evaluation, step=99, walk=ONE_STEP).seeds == first.seeds
    both = run(beside, evaluation, step=0, other=ONE_STEP, walk=ONE_STEP)
    assert both.environments["walk"].episodes.seeds == first.seeds
    streams = [[request.sampling.seed for request in engine.requests] for engine in (alone, later, beside)]
    assert streams[0] == streams[1] == streams[2][3:]
    assert len(set(streams[0])) == 3


def test_broken_infrastructure_is_counted_apart_and_never_scored() -> None:
    """bug-log row 44: the second of four episodes is lost; the mean is over the other three."""
    rollout = dataclasses.replace(ROLLOUT, max_failed_frac=0.5, max_replacements_frac=0.0)
    result = run(engine_of([RIGHT, RIGHT, NOISE], fail_at={1}), EvaluationConfig(num_episodes=4), rollout=rollout)
    walk = result.environments["walk"]
    assert (result.num_episodes, result.num_failed) == (3, 1)
    assert result.success.mean == pytest.approx(2 / 3)
    assert walk.episodes.successes == (True, True, False)
    assert len(walk.episodes.seeds) == len(result.seeds) == 3
    assert walk.failures == {"engine_error": 1}
    assert "engine_error" not in walk.end_reasons


def test_an_episode_lost_to_broken_infrastructure_is_played_anew_from_the_same_seed() -> None:
    """bug-log row 44: every seed is measured, so that evaluations stay paired; the failure is counted all the same."""
    result = run(engine_of([RIGHT] * 4, fail_at={1}), EvaluationConfig(num_episodes=4))
    whole = run(engine_of([RIGHT] * 4), EvaluationConfig(num_episodes=4))
    assert result.seeds == whole.seeds
    assert (result.num_episodes, result.num_failed) == (4, 1)
    assert result.environments["walk"].failures == {"engine_error": 1}


def test_too_much_broken_infrastructure_is_an_error_and_not_a_score() -> None:
    rollout = dataclasses.replace(ROLLOUT, max_replacements_frac=0.0)
    with pytest.raises(TrainingError, match="2 of 4 trajectories failed"):
        run(engine_of([RIGHT] * 4, fail_at={0, 1}), EvaluationConfig(num_episodes=4), rollout=rollout)


def test_several_tags_are_measured_apart_and_pooled_on_top() -> None:
    result = run(engine_of([RIGHT, RIGHT, NOISE, RIGHT]), EvaluationConfig(num_episodes=2), a=ONE_STEP, b=ONE_STEP)
    assert {tag: measured.success.mean for tag, measured in result.environments.items()} == {"a": 1.0, "b": 0.5}
    assert result.success.mean == 0.75
    assert result.metrics()["eval/b/success"] == 0.5


def test_progress_counts_every_episode_and_all_environments_are_closed() -> None:
    seen: list[tuple[int, int, int]] = []
    before = num_open()
    run(engine_of([RIGHT] * 3), EvaluationConfig(num_episodes=3), on_progress=lambda *counts: seen.append(counts))
    tokens = len(TEMPLATE.encode_text(RIGHT))
    assert seen == [(1, 3, tokens), (2, 3, 2 * tokens), (3, 3, 3 * tokens)]
    assert num_open() == before


def test_an_evaluation_goes_to_its_file_and_back(tmp_path: Path) -> None:
    """bug-log row 93: the settings are stored with the score."""
    result = run(engine_of([RIGHT, NOISE]), EvaluationConfig(num_episodes=2, temperature=0.5))
    path = write_result(tmp_path, result)
    assert read_result(path) == result
    settings = json.loads(path.read_text())["settings"]
    assert (settings["temperature"], settings["max_new_tokens"], settings["num_episodes"]) == (0.5, 40, 2)
    assert settings["environments"]["walk"]["options"] == {"start": 3}
    assert settings["context"]["think"] is True
    assert path.with_suffix(".parquet").exists()
