"""Recipes and files become one checked Config, and a Config becomes a file again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragen.config import load
from ragen.config.schema import Config, EnvironmentConfig
from ragen.errors import ConfigError

CONF = Path(load.__file__).parent.parent / "conf"
CHOICES = [f"{group}={name}" for group, names in load.groups().items() if group != "env" for name in names]


def write(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(target: str | Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load.load(str(target), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_main_recipe_has_the_values_of_its_files_and_the_defaults_elsewhere() -> None:
    config = load.load("bandit")
    assert config.name == "bandit"
    assert config.model.name == "smollm2-135m"
    assert config.model.tuning == "lora"
    environment = config.environments["bandit"]
    assert (environment.name, environment.num_groups, environment.max_turns) == ("bandit", 8, 1)
    assert (environment.max_actions, environment.max_actions_per_turn) == (1, 1)
    assert config.rollout.group_size == 16
    assert config.rollout.sampling.max_new_tokens == 40
    assert config.optimizer.lr == 2e-4
    assert (config.algorithm.advantage.estimator, config.algorithm.advantage.method) == ("grpo", "mean")
    assert config.seed == Config().seed  # in no YAML file


def test_what_comes_out_is_made_of_real_dataclasses() -> None:
    config = load.load("bandit")
    assert type(config) is Config
    assert type(config.environments) is dict
    assert type(config.environments["bandit"]) is EnvironmentConfig
    assert type(config.tracking.backends) is list


@pytest.mark.parametrize("recipe", load.recipes())
def test_every_shipped_recipe_loads_and_says_in_its_first_line_what_it_is_for(recipe: str) -> None:
    """bug-log row 90: shipped configurations are parsed in tests."""
    assert load.load(recipe).name == recipe
    first = load.recipe_text(recipe).splitlines()[0]
    assert first.startswith("# ")


@pytest.mark.parametrize(
    "option", [f"{group}={name}" for group, names in load.groups().items() if group != "env" for name in names]
)
@pytest.mark.parametrize("recipe", load.recipes())
def test_every_recipe_loads_with_every_option_of_every_group(recipe: str, option: str) -> None:
    load.load(recipe, [option])


def leaf_paths(content: dict[str, object], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Dotted paths of everything that can be deleted from a YAML file: sections and leaves alike."""
    found = []
    for key, value in content.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += leaf_paths(value, (*prefix, key))
    return found


def without(content: dict[str, object], path: tuple[str, ...]) -> dict[str, object]:
    head, *rest = path
    if not rest:
        return {key: value for key, value in content.items() if key != head}
    inner = content[head]
    assert isinstance(inner, dict)
    return {**content, head: without(inner, tuple(rest))}


@pytest.mark.parametrize("recipe", load.recipes())
def test_a_recipe_still_loads_when_any_one_optional_key_is_deleted(recipe: str, tmp_path: Path) -> None:
    """bug-log row 90: a value that only one file sets must have a usable default."""
    content = yaml.safe_load(load.recipe_text(recipe))
    paths = leaf_paths(content)
    assert ("trainer", "steps") in paths
    for path in paths:
        if path != ("defaults",):  # brings the environment, without which there is nothing to train on
            load.load(str(write(tmp_path, yaml.safe_dump(without(content, path)))))


@pytest.mark.parametrize("recipe", load.recipes())
def test_the_resolved_configuration_trains_again_unchanged_by_file_and_by_run_folder(recipe: str, tmp_path: Path) -> None:
    config = load.load(recipe, ["seed=7", "environments.bandit.options.reversed=true"])
    path = write(tmp_path, load.dump(config))
    assert load.load(str(path)) == config
    assert load.load(str(tmp_path)) == config


@settings(max_examples=40)  # each writes and reads every key there is
@example(text="two\x85lines", tag="a", number=1e-5, seed=0, options={"low_score": 1e300, "miss_score": "1e5", "high_score": None})
@example(text="\x85\U00010000", tag="a", number=1.0, seed=0, options={})
@given(
    text=st.text(),
    tag=st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    number=st.floats(min_value=1e-300, max_value=1e300),
    seed=st.integers(min_value=0, max_value=2**63),
    options=st.dictionaries(
        st.sampled_from(["low_score", "high_score", "miss_score"]),
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans(), st.none(), st.text()),
    ),
)
def test_any_configuration_survives_being_written_and_read(
    text: str, tag: str, number: float, seed: int, options: dict[str, object]
) -> None:
    """Numbers keep every bit; text that looks like YAML, or like a reference to another key, stays text."""
    from omegaconf import OmegaConf

    config = Config(seed=seed, environments={tag: EnvironmentConfig(name="bandit", options=options)})
    config.tracking.project = text
    config.optimizer.lr = number
    merged = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(load.dump(config)))
    assert OmegaConf.to_object(merged) == config


def test_a_file_may_build_on_a_shipped_recipe(tmp_path: Path) -> None:
    path = write(tmp_path, "defaults: [bandit, _self_]\nname: mine\ntrainer: {steps: 3}\n")
    config = load.load(str(path))
    assert (config.name, config.trainer.steps, config.rollout.group_size) == ("mine", 3, 16)


def test_a_file_may_choose_groups(tmp_path: Path) -> None:
    path = write(tmp_path, "defaults: [{model: tiny}, {env@environments.first: bandit}, _self_]\nname: mine\n")
    config = load.load(str(path))
    assert config.model.name == "tiny"
    assert list(config.environments) == ["first"]


def test_a_group_chosen_for_the_file_of_a_run_takes_the_place_of_its_sections_and_leaves_single_values(tmp_path: Path) -> None:
    """Two algorithms mixed would be neither: the run's method of comparing says nothing to an estimator that compares nothing."""
    path = write(tmp_path, load.dump(load.load("bandit", ["algorithm.loss.clip_high=0.3", "algorithm.num_minibatches=4"])))
    algorithm = load.load(str(path), ["algorithm=arpo", "algorithm.kl.coef=0.1"]).algorithm
    assert (algorithm.advantage.estimator, algorithm.loss.clip_high, algorithm.kl.coef) == ("arpo", 0.28, 0.1)
    assert (algorithm.num_minibatches, algorithm.entropy_coef) == (4, 0.002)  # the second is the recipe's


def test_an_unknown_recipe_is_refused_with_the_list_and_the_near_match() -> None:
    message = refusal("bandits")
    assert "bandit_tiny" in message
    assert message.endswith("did you mean 'bandit'?")


def test_a_missing_file_and_a_folder_without_a_configuration_are_named(tmp_path: Path) -> None:
    assert refusal("nowhere/x.yaml").startswith("nowhere/x.yaml: no such file")
    assert refusal(tmp_path).startswith(f"{tmp_path}/config.yaml: no such file")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nme: x\n", "there is no key 'nme'; did you mean 'name'?"),
        ("trainer: {stepz: 3}\n", "there is no key 'trainer.stepz'; did you mean 'trainer.steps'?"),
        ("trainer: {steps: soon}\n", "trainer.steps=soon: must be a whole number"),
        ("trainer: {steps: null}\n", "trainer.steps: must be a whole number"),
        ("trainer: 3\n", "trainer=3: must be a section of keys"),
        ("trainer:\n", "trainer=null: must be a section of keys"),
        ("environments: {a: 3}\n", "environments.a=3: must be a section of keys"),
        ("- 3\n", "must hold keys and values, found a list"),
        ("name: ${nope}\n", "name: Interpolation key 'nope' not found"),
        ("defaults: 3\n", "defaults=3: must be a list, such as [bandit, _self_]"),
        ("defaults: [{model: tny}]\n", "defaults: there is no 'model/tny' (known: smollm2-135m, tiny); did you mean 'tiny'?"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_the_file_and_the_key(text: str, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    assert refusal(path) == f"{path}: {expected}"


@pytest.mark.parametrize("text", ["a: [\n", "\x00", "a: b: c\n"])
def test_a_file_that_is_no_yaml_is_one_line(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    assert refusal(path).startswith(f"{path}: ")


def test_loading_twice_and_beside_another_user_of_hydra_changes_nothing() -> None:
    """Hydra keeps one global state; a program of one's own that uses Hydra must not be disturbed."""
    with initialize_config_dir(str(CONF / "env"), version_base="1.3"):
        assert load.load("bandit") == load.load("bandit")
        assert compose("bandit").name == "bandit"


def test_a_refused_configuration_leaves_the_next_one_alone() -> None:
    refusal("bandit", "trainer.steps=soon")
    assert load.load("bandit").trainer.steps == yaml.safe_load(load.recipe_text("bandit"))["trainer"]["steps"]
