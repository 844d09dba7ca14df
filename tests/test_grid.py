"""Whatever may be combined trains: estimators, losses, aggregations, filters, context modes and what lies around them."""

from __future__ import annotations

import math
from itertools import combinations, product
from pathlib import Path

import pytest
import torch

import tests.support.corridor  # noqa: F401 - registers the environment
from ragen.config.check import check
from ragen.config.load import load
from ragen.config.schema import Config
from ragen.errors import ConfigError
from tests.support.grid import AXES, REFUSED, Row, config_of, covering_rows, trainer_of
from tests.support.runs import corridor_config

ROWS = covering_rows(AXES, tuple(REFUSED))
# Nine trajectories a step of two turns, four tokens a reply.
SMALLEST = ("rollout.group_size=3", "rollout.sampling.max_new_tokens=4", "optimizer.lr=1e-3")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return corridor_config(tmp_path_factory.mktemp("grid"), *SMALLEST)


def test_the_rows_hold_every_pair_that_is_not_refused() -> None:
    """Counted from the rows alone."""
    refused = set(REFUSED)
    for a, b in combinations(AXES, 2):
        held = {(row[a], row[b]) for row in ROWS}
        expected = {(x, y) for x, y in product(AXES[a], AXES[b]) if ((a, x), (b, y)) not in refused}
        assert held == expected, (a, b)


@pytest.mark.parametrize("estimator", AXES["estimator"])
def test_two_steps_leave_no_number_that_is_not_finite(tmp_path: Path, base: Config, estimator: str) -> None:
    for row in ROWS:
        if row["estimator"] == estimator:
            train_two_steps(row, config_of(row, base), tmp_path)


def train_two_steps(row: Row, config: Config, folder: Path) -> None:
    """What is not finite never reaches the log, so here the numbers that must be there are asked for."""
    check(config)
    with trainer_of(config, folder) as trainer:
        weights = [*trainer.learner.policy.trainable().values()]
        before = [weight.detach().clone() for weight in weights]
        for step in range(2):
            metrics = trainer.step(step)
            assert all(math.isfinite(value) for value in metrics.values()), row
            expected = {"update/loss", "update/grad_norm", "update/entropy", "update/advantage_std"}
            expected |= {"critic/loss", "critic/grad_norm"} if trainer.critic is not None else set()
            assert expected <= metrics.keys(), (row, expected - metrics.keys())
            assert metrics["update/skipped"] == metrics.get("critic/skipped", 0) == 0, row
            assert metrics["update/advantage_std"] > 0, row
        assert all(bool(weight.isfinite().all()) for weight in weights), row
        assert any(not torch.equal(old, new) for old, new in zip(before, weights, strict=True)), row
        if trainer.critic is not None:
            assert all(bool(weight.isfinite().all()) for weight in trainer.critic.trainable().values()), row


@pytest.mark.parametrize("pair", REFUSED, ids=lambda pair: " ".join(f"{axis}={value}" for axis, value in pair))
def test_a_pair_that_cannot_be_is_refused_with_its_reason(base: Config, pair: tuple[tuple[str, str], ...]) -> None:
    row = {axis: values[0] for axis, values in AXES.items()} | dict(pair)
    with pytest.raises(ConfigError, match=REFUSED[pair]):  # type: ignore[index]
        check(config_of(row, base))


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["algorithm=ppo", "algorithm.critic.warmup_steps=24"], "must be less than trainer.steps=24"),
        (["algorithm=ppo", "algorithm.critic.num_minibatches=129"], "algorithm.critic.num_minibatches=129: must be at most 128"),
        (["algorithm=ppo", "algorithm.critic.kind=adapter", "model.tuning=full"], "there is no frozen base"),
        (["algorithm=ppo", "algorithm.advantage.method=mean"], "has no effect with estimator=gae"),
        (["algorithm=ppo", "algorithm.advantage.lam=0.95"], "say per what"),
        (["algorithm=grpo", "algorithm.critic.lr=1e-3"], "has no effect without a critic"),
        (["algorithm=grpo", "rollout.group_size=1"], "must be at least 2 with algorithm.advantage.estimator=grpo"),
        (["algorithm=starpo_s", "rollout.group_size=1"], "one member has none"),
        (["algorithm=dapo", "rollout.sampling.max_new_tokens=7"], "must be at most rollout.sampling.max_new_tokens=7"),
        (["algorithm=dapo", "algorithm.filter.refill_frac=0.1"], "is less than one group"),
        (["algorithm=gspo", "algorithm.loss.clip_high=0.2"], "must be less than 0.1"),
        (["algorithm=gspo", "algorithm.loss.dual_clip=3"], "has no effect with algorithm.loss.name=gspo"),
        (["algorithm.kl.coef=0.1", "algorithm.kl.estimator=k1"], "holds no policy back"),
        (["algorithm.kl.coef=0.1", "algorithm.kl.place=reward", "algorithm.kl.estimator=unbiased"], "a reward has none"),
        (["algorithm.loss.task_term=false", "algorithm.entropy_coef=0"], "nothing is left to train on"),
        (["algorithm.filter.rule=top_k", "algorithm.filter.value=9"], "must be at most 8, the number of groups"),
        (["rollout.context.mode=window", "rollout.context.overflow=summarise"], "replaces a full history"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_would_do_nothing_or_harm_is_refused_with_its_reason(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("bandit", overrides)
    assert reason in str(caught.value)
