"""Steps that train on what was sampled before: by an earlier step (Online-k), or by another run (offline)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen.config.check import check
from ragen.errors import ConfigError, StorageError
from ragen.training import rollout_phase as module
from tests.support.runs import ARPO, LORA, metrics_of, rollouts_of, run, small_config, weights_of

ONLINE_2 = ("trainer.updates_per_rollout=2", "trainer.steps=4", *ARPO)


def sampled(folder: Path) -> list[list[tuple[int, ...]]]:
    """Per step the ids of every trajectory."""
    return [[tuple(row.trajectory.segments[-1].ids) for row in rows] for rows in rollouts_of(folder).values()]


def test_a_rollout_serves_as_many_steps_as_asked_and_its_age_is_logged(tmp_path: Path) -> None:
    run(small_config(tmp_path, *ONLINE_2, "algorithm.num_minibatches=1"))
    first, again, second, once_more = sampled(tmp_path / "run")
    assert first == again
    assert second == once_more
    assert first != second
    rows = [row for row in metrics_of(tmp_path / "run") if row["step"]]
    # one optimiser step a rollout or reuse: what is used again was sampled one version ago
    assert [row["update/version_lag_mean"] for row in rows] == [0, 1, 0, 1]
    ratios = [row["update/engine_gap_mean"] for row in rows]
    assert ratios[0] < 1e-4 < ratios[1]  # the learner has moved on, and the loss measures it against what sampled


@pytest.mark.parametrize("tuning", [(), LORA])
def test_a_run_resumed_between_two_steps_of_one_rollout_ends_as_if_it_had_not_been_stopped(
    tmp_path: Path, tuning: tuple[str, ...]
) -> None:
    """Bug-log row 75: at a step that is no multiple of how often a rollout is used."""
    run(small_config(tmp_path / "whole", *ONLINE_2, *tuning))
    run(small_config(tmp_path / "parts", *ONLINE_2, *tuning, "trainer.steps=1"))
    run(small_config(tmp_path / "parts", *ONLINE_2, *tuning), resume=True)
    whole, parts = tmp_path / "whole/run", tmp_path / "parts/run"
    assert weights_of(whole, 4) == weights_of(parts, 4)
    assert sampled(whole) == sampled(parts)


def test_a_run_trains_on_the_rollouts_of_another_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same start the first file moves the weights as it did when it was played; after the last comes the first."""
    run(small_config(tmp_path / "online", *ARPO))

    def played(*_: object, **__: object) -> None:
        raise AssertionError("an offline run plays nothing but its evaluation")

    monkeypatch.setattr(module, "collect", played)
    source = tmp_path / "online/run"
    run(
        small_config(
            tmp_path / "offline", *ARPO, f"trainer.rollouts_from={source}", "trainer.steps=3", "trainer.keep_checkpoints=3"
        )
    )
    offline = tmp_path / "offline/run"
    assert weights_of(offline, 1) == weights_of(source, 1)
    assert weights_of(offline, 2) == weights_of(source, 2)
    first, second, third = sampled(offline)
    assert [first, second] == sampled(source)
    assert third == first


def test_rollouts_that_cannot_be_trained_on_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    run(small_config(tmp_path / "online", *ARPO, "trainer.steps=1"))
    source = f"trainer.rollouts_from={tmp_path / 'online/run'}"
    with pytest.raises(ConfigError, match=r"rollout.sampling.temperature=0.5: must be 1.0, as in the run that sampled"):
        run(small_config(tmp_path / "off", source, "rollout.sampling.temperature=0.5"))
    with pytest.raises(ConfigError, match=r"model.name=tiny: must be .*, as in the run that sampled"):
        run(small_config(tmp_path / "off", source, "model.name=tiny"))
    with pytest.raises(StorageError, match=r"trainer.rollouts_from=.*nowhere: holds no rollouts/step-\*.parquet"):
        run(small_config(tmp_path / "off", f"trainer.rollouts_from={tmp_path / 'nowhere'}"))
    assert not (tmp_path / "off").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("trainer.rollouts_from=x", "trainer.updates_per_rollout=2"), "updates_per_rollout=2: has no effect with"),
        (("trainer.updates_per_rollout=3", "trainer.keep_rollouts=2"), "keep_rollouts=2: must be at least"),
        (("trainer.updates_per_rollout=0",), "updates_per_rollout=0: must be at least 1"),
        (
            ("trainer.rollouts_from=x", "rollout.curriculum.rule=balance"),
            "rule=balance: has no effect with trainer.rollouts_from",
        ),
    ],
)
def test_settings_without_effect_or_out_of_range_are_refused(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    others = ("+env@environments.other=bandit",) if any("curriculum" in each for each in overrides) else ()
    with pytest.raises(ConfigError, match=message):
        check(small_config(tmp_path, *others, *overrides))
