"""An override acts, or is refused in one line that names it."""

from __future__ import annotations

import pytest

from ragen.config.load import load
from ragen.errors import ConfigError
from ragen.rollout.state_manager import EnvironmentConfig


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load("bandit", overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_values_of_every_type_reach_their_key() -> None:
    config = load(
        "bandit",
        [
            "trainer.steps=50",
            "seed=3",
            "optimizer.lr=3e-5",
            "rollout.format_penalty=-0.5",
            "rollout.context.think=false",
            "tracking.backends=[tensorboard,wandb]",
            "tracking.project='two words, a comma'",
            "environments.bandit.options.names=test",
        ],
    )
    assert config.trainer.steps == 50
    assert config.seed == 3
    assert config.optimizer.lr == 3e-5
    assert config.rollout.format_penalty == -0.5
    assert config.rollout.context.think is False
    assert config.tracking.backends == ["tensorboard", "wandb"]
    assert config.tracking.project == "two words, a comma"
    assert config.environments["bandit"].options == {"names": "test", "reversed": True}


@pytest.mark.parametrize("spelling", ["trainer.steps=5", "+trainer.steps=5", "++trainer.steps=5", "trainer={steps: 5}"])
def test_a_key_is_set_however_the_plus_is_written(spelling: str) -> None:
    assert load("bandit", [spelling]).trainer.steps == 5


def test_the_last_of_two_overrides_of_a_key_wins() -> None:
    assert load("bandit", ["trainer.steps=5", "trainer.steps=6"]).trainer.steps == 6


def test_a_group_choice_comes_before_the_values_wherever_it_is_written() -> None:
    config = load("bandit", ["algorithm.advantage.method=mean", "algorithm=brpo"])
    assert (config.algorithm.advantage.estimator, config.algorithm.advantage.method) == ("brpo", "mean")


def test_environments_are_added_and_removed_by_tag() -> None:
    config = load("bandit", ["+env@environments.second=bandit", "environments.second.num_groups=2"])
    assert {tag: environment.num_groups for tag, environment in config.environments.items()} == {"bandit": 8, "second": 2}
    config = load("bandit", ["+env@environments.second=bandit", "~environments.bandit"])
    assert list(config.environments) == ["second"]


@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("trainer.stepz=3", "trainer.steps"),
        ("steps=3", "trainer.steps"),
        ("lr=1e-3", "optimizer.lr"),
        ("rollout.sampling.temprature=1", "rollout.sampling.temperature"),
        ("environments.bandit.num_group=1", "environments.bandit.num_groups"),
        ("Seed=1", "seed"),
    ],
)
def test_an_unknown_key_is_refused_with_the_near_match(override: str, near: str) -> None:
    key = override.partition("=")[0]
    assert refusal(override) == f"override {override!r}: there is no key {key!r}; did you mean {near!r}?"


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    assert refusal("hydra.run.dir=x") == "override 'hydra.run.dir=x': there is no key 'hydra.run.dir'"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trainer.steps=soon", "trainer.steps=soon: must be a whole number"),
        ("trainer.steps=1.5", "trainer.steps=1.5: must be a whole number"),
        ("trainer.steps=null", "trainer.steps=null: must be a whole number"),
        ("trainer.steps=[1]", "trainer.steps=[1]: must be a whole number"),
        ("trainer.steps=true", "trainer.steps=True: must be a whole number"),
        ("optimizer.lr=fast", "optimizer.lr=fast: must be a number"),
        ("rollout.context.think=maybe", "rollout.context.think=maybe: must be true or false"),
        ("model.name=null", "model.name=null: must be text"),
        ("tracking.backends=wandb", "tracking.backends: must be a list, each text, written [a,b]"),
        ("trainer=3", "trainer=3: must be a section of keys"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_what_is_allowed(override: str, expected: str) -> None:
    assert refusal(override) == expected


@pytest.mark.parametrize("override", ["trainer.steps", "name=a=b", "a b=3", "name='x"])
def test_an_override_that_cannot_be_read_is_refused_with_how_to_quote(override: str) -> None:
    assert refusal(override).startswith(f"override {override!r}: cannot be read as key=value; ")


def test_an_override_without_a_key_is_refused() -> None:
    assert refusal("=3") == "override '=3': the key before '=' is missing"


@pytest.mark.parametrize("override", ["trainer.steps=1,2", "trainer.steps=choice(1,2)", "model=tiny,smollm2-135m"])
def test_several_values_are_refused_since_a_run_has_one(override: str) -> None:
    assert refusal(override).startswith(f"override {override!r}: one run takes one value; ")


def test_an_unknown_option_of_a_group_is_refused_with_the_list() -> None:
    assert (
        refusal("algorithm=grppo")
        == "override 'algorithm=grppo': algorithm must be one of arpo, brpo, dapo, dr_grpo, gigpo, grpo, grpo_mean, gspo, ppo, "
        "reinforce_pp, rloo, starpo, starpo_grpo, starpo_s; did you mean 'grpo'?"
    )
    assert refusal("model=/my/folder").endswith("a folder or hub id is set as model.name=...")


def test_an_unknown_group_is_refused() -> None:
    assert refusal("+envs@environments.x=bandit").startswith(
        "override '+envs@environments.x=bandit': there is no group 'envs'; did you mean 'env'?"
    )


@pytest.mark.parametrize("override", ["+env=bandit", "env=[bandit]"])
def test_env_replaces_every_environment_and_nothing_of_the_former_one_stays(override: str) -> None:
    assert load("bandit").environments["bandit"].options == {"names": "phoenix_dragon", "reversed": True}
    config = load("bandit", [override, "environments.bandit.options.names=test"])
    assert config.environments == {
        "bandit": EnvironmentConfig(
            name="bandit", num_groups=8, max_turns=1, max_actions=1, max_actions_per_turn=1, options={"names": "test"}
        )
    }
    assert config.trainer == load("bandit").trainer


def test_env_takes_a_class_of_one_s_own_beside_others() -> None:
    config = load("bandit_tiny", ["env=[bandit,tests.support.corridor:Corridor]", "environments.Corridor.num_groups=3"])
    assert {tag: (env.name, env.num_groups) for tag, env in config.environments.items()} == {
        "bandit": ("bandit", 8),
        "Corridor": ("tests.support.corridor:Corridor", 3),
    }


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["env=badnit"], "there is no environment 'badnit'; did you mean 'bandit'? (known: "),
        (["env=[]"], "must name an environment, or several as env=[a,b]"),
        (["env=[bandit,bandit]"], "two environments would have the tag 'bandit'; raise its num_groups instead"),
        (["env=bandit", "env=bandit"], "env is given twice; several environments are written env=[a,b]"),
        (["env=no_such_module:X"], "environments.X.name: environment 'no_such_module:X' cannot be imported"),
        (["+env@elsewhere=bandit"], "env=bandit replaces the environments, +env@environments.TAG=bandit adds one under a tag"),
    ],
)
def test_what_env_cannot_mean_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("bandit", overrides)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "override", ["environments.bandti.num_groups=3", "environments.bandti.options.names=test", "~environments.bandti"]
)
def test_a_tag_that_is_not_there_is_refused_with_the_near_match(override: str) -> None:
    """Not made on the fly: a typo would train on a second environment."""
    assert "no environment has the tag 'bandti' (tags: bandit); did you mean 'bandit'?" in refusal(override)


@pytest.mark.parametrize("override", ["~trainer.steps", "~trainer", "~seed", "~algorithm"])
def test_a_key_cannot_be_removed(override: str) -> None:
    assert refusal(override) == (
        f"override {override!r}: only an environment (~environments.TAG) or one of its options can be removed"
    )


@pytest.mark.parametrize("override", ["environments={}", "environments.bandit.options={}", "trainer={}"])
def test_an_empty_mapping_is_refused_since_it_would_change_nothing(override: str) -> None:
    assert refusal(override).endswith("so an empty one changes nothing")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("~environments.bandit.options.low", "there is no environments.bandit.options.low to remove"),
        ("~environments.bandit.options.names=test", "environments.bandit.options.names is phoenix_dragon, not test"),
    ],
)
def test_what_is_not_there_cannot_be_removed(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("bandit", [override])
    assert str(caught.value) == f"override {override!r}: {said}"


def test_a_configuration_that_was_changed_does_not_change_the_next_one() -> None:
    """What is composed of shipped files is kept; every configuration is a copy."""
    plain = load("bandit")
    load("bandit", ["trainer.steps=3", "environments.bandit.options.names=test", "~environments.bandit.options.reversed"])
    load("bandit", ["env=sokoban"])
    assert load("bandit") == plain
