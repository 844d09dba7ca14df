"""Values out of range and impossible combinations are refused before anything loads."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from ragen.config import schema
from ragen.config.check import check
from ragen.config.load import load
from ragen.config.schema import Config
from ragen.errors import ConfigError


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load("bandit", overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "override",
    [
        "seed=-1",
        "name=",
        "name=a/b",
        "name=..",
        "output_dir=",
        "rollout.group_size=0",
        "rollout.format_penalty=0.1",
        "rollout.max_invalid_turns=0",
        "rollout.max_failed_frac=1.5",
        "rollout.max_replacements_frac=-0.1",
        "rollout.sampling.temperature=0",
        "rollout.sampling.top_p=0",
        "rollout.sampling.top_p=1.1",
        "rollout.sampling.top_k=-1",
        "rollout.sampling.max_new_tokens=0",
        "optimizer.lr=0",
        "trainer.steps=0",
        "environments.bandit.num_groups=0",
        "environments.bandit.step_timeout_s=0",
        "evaluation.num_episodes=0",
    ],
)
def test_a_value_out_of_range_is_refused_by_its_key(override: str) -> None:
    key = override.partition("=")[0]
    message = refusal(override)
    assert message.startswith(f"{key}=")
    assert ": " in message


FLOATS = [key.name for key in schema.all_keys() if key.kind == "a number"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("key", FLOATS)
def test_no_number_of_the_whole_configuration_may_be_nan_or_infinite(key: str, value: str) -> None:
    key = key.replace(schema.TAG, "bandit")
    assert refusal(f"{key}={value}") == f"{key}={value}: must be a finite number"


def test_a_group_of_one_is_refused_by_an_estimator_that_compares_members() -> None:
    """bug-log row 17."""
    assert refusal("rollout.group_size=1").startswith(
        "rollout.group_size=1: must be at least 2 with algorithm.advantage.estimator=grpo"
    )


def test_a_group_of_one_is_fine_where_nothing_is_compared_within_it() -> None:
    """bug-log row 17, the other side."""
    assert load("bandit", ["rollout.group_size=1", "algorithm=arpo"]).rollout.group_size == 1
    assert load("bandit", ["rollout.group_size=1", "algorithm=brpo"]).rollout.group_size == 1


def test_a_batch_of_one_is_refused_by_an_estimator_that_compares_the_batch() -> None:
    """bug-log row 17."""
    alone = ("algorithm=brpo", "rollout.group_size=1", "environments.bandit.num_groups=1", "algorithm.num_minibatches=1")
    assert "leaves algorithm.advantage.estimator=brpo nothing to compare" in refusal(*alone)


def test_minibatches_are_counted_against_trajectories() -> None:
    """bug-log row 83: 8 groups of 16 are 128 trajectories, and that is the number that matters."""
    assert load("bandit", ["algorithm.num_minibatches=128"]).algorithm.num_minibatches == 128
    assert refusal("algorithm.num_minibatches=129").startswith(
        "algorithm.num_minibatches=129: must be at most 128, the number of trajectories in a step"
    )


def test_the_critic_s_minibatches_are_counted_like_the_policy_s() -> None:
    assert load("bandit", ["algorithm=ppo", "algorithm.critic.num_minibatches=128"]).algorithm.critic.num_minibatches == 128
    said = refusal("algorithm=ppo", "algorithm.critic.num_minibatches=129")
    assert said.startswith("algorithm.critic.num_minibatches=129: must be at most 128, the number of trajectories in a step")


def test_weights_from_learner_to_engine_are_refused_for_a_cut_distribution() -> None:
    for key, value in (("tis_cap", 2.0), ("tis_mask_low", 0.99), ("tis_mask_high", 1.01)):
        load("bandit", [f"algorithm.loss.{key}={value}"])
        for cut in ("rollout.sampling.top_p=0.9", "rollout.sampling.top_k=20"):
            said = refusal(f"algorithm.loss.{key}={value}", cut)
            assert said.startswith(f"algorithm.loss.{key}={value}: needs rollout.sampling.top_p=1 and rollout.sampling.top_k=0")


def test_a_reply_must_leave_room_for_its_prompt() -> None:
    message = refusal("rollout.sampling.max_new_tokens=512", "rollout.context.max_context_tokens=512")
    assert message.startswith("rollout.sampling.max_new_tokens=512: must be less than rollout.context.max_context_tokens=512")


def test_a_turn_cannot_hold_more_actions_than_the_trajectory() -> None:
    message = refusal("environments.bandit.max_actions_per_turn=3", "environments.bandit.max_actions=2")
    assert message.startswith("environments.bandit.max_actions_per_turn=3: must be at most environments.bandit.max_actions=2")


@pytest.mark.parametrize(
    "override", ["model.lora_rank=8", "model.lora_alpha=8", "model.lora_targets=q_proj", "model.kernels=torch"]
)
def test_a_lora_setting_is_refused_where_no_adapter_is_trained(override: str) -> None:
    assert refusal("model.tuning=full", override) == (
        f"{override}: has no effect with model.tuning=full; set model.tuning=lora or leave it out"
    )


def test_an_unknown_environment_is_refused_with_the_near_match() -> None:
    """bug-log row 86."""
    message = refusal("environments.bandit.name=Bandti")
    assert message.startswith("environments.bandit.name")
    assert "did you mean 'bandit'?" in message


def test_an_option_that_the_environment_does_not_have_is_refused_by_its_whole_key() -> None:
    message = refusal("environments.bandit.options.revresed=true")
    assert message.startswith("environments.bandit.options.revresed")
    assert "did you mean 'reversed'?" in message


def test_no_environment_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^environments: at least one is needed"):
        check(Config())


def test_a_missing_environment_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^environments\.x\.name"):
        check(Config(environments={"x": schema.EnvironmentConfig()}))


def test_checking_loads_no_model_package() -> None:
    """What is refused is refused before torch is even imported."""
    import subprocess

    code = (
        "import sys\nfrom ragen.config.load import load\nload('bandit')\nassert not {'torch', 'transformers'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_key_has_words_for_its_type_and_a_default_that_its_own_check_accepts() -> None:
    names = [key.name for key in schema.all_keys()]
    assert len(names) == len(set(names))
    assert {"name", "trainer.steps", "environments.<tag>.options", "rollout.sampling.temperature"} <= set(names)
    for key in schema.all_keys():
        assert key.default is not dataclasses.MISSING, key.name
        assert schema.type_of(key.name) is not None, key.name


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.keep_best=eval/bandit/succes"], "trainer.keep_best='eval/bandit/succes': must be a metric"),
        (["trainer.keep_best=eval/bandit/success"], "needs evaluated steps that are saved"),
        (
            ["trainer.keep_best=eval/bandit/success", "evaluation.every=7"],
            "evaluation.every=7 a multiple of trainer.save_every=5",
        ),
        (["trainer.keep_best=eval/bandid/success", "evaluation.every=5"], "did you mean 'bandit'?"),
        (["trainer.keep_best_direction=min"], "has no effect without trainer.keep_best"),
        (["trainer.keep_rollouts=0"], "must be at least 1, or null to keep all"),
        (["trainer.on_signal=abandn"], "must be one of finish, abandon; did you mean 'abandon'?"),
    ],
)
def test_retention_that_cannot_act_is_refused(overrides: list[str], message: str) -> None:
    assert message in refusal("trainer.save_every=5", *overrides)


def test_what_is_measured_beside_has_to_be_saved() -> None:
    beside = ("evaluation.beside=true", "trainer.save_every=2")
    assert "make evaluation.every=3 a multiple of trainer.save_every=2" in refusal(*beside, "evaluation.every=3")


def test_another_process_has_to_find_the_environment_that_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ConfigError(f"environment {name!r}: another process cannot import the script itself")

    monkeypatch.setattr("ragen.environments.registry.portable_name", unknown)
    said = refusal("evaluation.beside=true", "evaluation.every=5", "trainer.save_every=5")
    assert said.startswith("evaluation.beside=true: environments.bandit.name: environment 'bandit': another process")
