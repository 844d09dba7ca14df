"""A resumed run with other settings: each is told from when it acts, or why the run cannot go on with it."""

from __future__ import annotations

import pytest

from ragen.config.continuation import Consequence, consequences, refuse_what_cannot_continue
from ragen.config.load import load
from ragen.errors import ConfigError


def found(*overrides: str, before: tuple[str, ...] = ()) -> dict[str, Consequence]:
    """What changes from bandit with the settings `before` to bandit with `overrides` on top."""
    return {each.change.key: each for each in consequences(load("bandit", before), load("bandit", [*before, *overrides]))}


def test_equal_configurations_have_no_consequences() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    ("override", "meaning"),
    [
        ("trainer.steps=99", "where the run ends"),
        ("trainer.keep_checkpoints=9", "takes effect with the next file that is written"),
        ("trainer.on_signal=abandon", "takes effect at once"),
        ("optimizer.lr=0.5", "takes effect from the next step; the optimiser keeps its moments"),
        ("optimizer.warmup_steps=3", "still counted from the first optimiser step of the run"),
        ("algorithm.num_epochs=3", "takes effect from the next step"),
        (
            "rewards.weights={environment: 2.0}",
            "takes effect from the next step; returns before and after it are not on one scale",
        ),
        ("evaluation.temperature=0.1", "takes effect from the next evaluation; earlier ones cannot be compared with it"),
        ("tracking.project=mine", "trackers that are added begin with the next step"),
        ("environments.bandit.step_timeout_s=99", "takes effect from the next step"),
        ("output_dir=elsewhere", "the run folder has been moved; nothing else depends on it"),
        ("rollout.sampling.max_new_tokens=20", "takes effect from the next step"),
    ],
)
def test_what_may_change_says_from_when_it_acts(override: str, meaning: str) -> None:
    ((_, consequence),) = found(override).items()
    assert not consequence.is_refused
    assert str(consequence).endswith(f": {meaning}")
    refuse_what_cannot_continue([consequence])


@pytest.mark.parametrize(
    ("overrides", "before", "reason"),
    [
        (("seed=5",), (), "every random stream of the run is a function of it"),
        (("model.lora_rank=3",), (), "are of the model as it was set up"),
        (("environments.bandit.max_turns=3",), (), "are those of the environments that the run began with"),
        (("algorithm.critic.lora_rank=3",), ("algorithm=ppo",), "the checkpoint holds a critic of the other rank"),
        (("algorithm.kl.coef=0.5",), ("algorithm.kl.coef=0.1", "algorithm.kl.target=0.01"), "led by the run"),
    ],
)
def test_what_cannot_change_is_refused_with_the_reason(overrides: tuple[str, ...], before: tuple[str, ...], reason: str) -> None:
    changed = list(found(*overrides, before=before).values())
    with pytest.raises(ConfigError, match=rf"cannot change when a run is resumed, since .*{reason}") as refused:
        refuse_what_cannot_continue(changed)
    assert str(refused.value).endswith("Leave it as it was, or start a new run with name=...")


def test_a_weight_that_is_not_led_may_change() -> None:
    """With a target it would have had no effect: the checkpoint's weight counts (algorithms/kl.py)."""
    changed = found("algorithm.kl.coef=0.5", before=("algorithm.kl.coef=0.1",))
    assert not changed["algorithm.kl.coef"].is_refused


def test_a_critic_may_be_left_behind_but_not_be_picked_up() -> None:
    away = found("algorithm.advantage.estimator=grpo", before=("algorithm=ppo",))["algorithm.advantage.estimator"]
    assert not away.is_refused
    assert away.meaning.endswith("the critic is left behind, and later checkpoints hold none")
    picked_up = consequences(load("bandit", ["algorithm=grpo"]), load("bandit", ["algorithm=ppo"]))
    assert [each.meaning for each in picked_up if each.is_refused] == [
        "the run began without a critic, so the checkpoint holds none"
    ]


def test_everything_that_stands_against_it_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^rollout\.group_size=3 \(it was 16\): cannot .*; seed=5 \(it was 0\): cannot "):
        refuse_what_cannot_continue(list(found("seed=5", "rollout.group_size=3").values()))
