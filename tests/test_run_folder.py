"""Under which settings each step of a run was played, however often it was resumed with others, wherever that broke off."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ragen import run_folder as module
from ragen.config.load import dump
from ragen.config.schema import Config
from ragen.errors import ConfigError
from ragen.run_folder import changed_since, config_of, go_on_from, where_it_lies, write_config
from tests.support.runs import small_config

NUM_STEPS = 9
LRS = {"a": 0.1, "b": 0.2, "c": 0.3}


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    folder = tmp_path_factory.mktemp("configs")
    return {name: small_config(folder, f"optimizer.lr={lr}") for name, lr in LRS.items()}


@pytest.fixture
def settings(configs: dict[str, Config], monkeypatch: pytest.MonkeyPatch) -> dict[str, Config]:
    """The three, and the reading of their files by looking them up: composing one takes a tenth of a second."""
    by_text = {dump(config): config for config in configs.values()}
    monkeypatch.setattr(module, "load_file", lambda path: by_text[path.read_text()])
    return configs


def history(folder: Path) -> str:
    """One letter a step: the settings that each of the first nine was or will be played under."""
    names = {lr: name for name, lr in LRS.items()}
    return "".join(names[config_of(folder, step).optimizer.lr] for step in range(1, NUM_STEPS + 1))


def begun(folder: Path, config: Config) -> Path:
    """A run that has played and saved nine steps."""
    write_config(folder, config)
    for step in range(1, NUM_STEPS + 1):
        (folder / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    return folder


# What is done, as (steps that stay, settings from there on), and the settings of each step afterwards, written out by hand.
STORIES: dict[str, tuple[list[tuple[int, str]], str]] = {
    "never resumed": ([], "aaaaaaaaa"),
    "resumed as it was": ([(5, "a")], "aaaaaaaaa"),
    "resumed with others": ([(5, "b")], "aaaaabbbb"),
    "changed twice": ([(3, "b"), (6, "c")], "aaabbbccc"),
    "changed, and back before a step was played": ([(5, "b"), (5, "a")], "aaaaaaaaa"),
    "changed, and again before a step was played": ([(5, "b"), (5, "c")], "aaaaacccc"),
    "changed, and back later": ([(3, "b"), (6, "a")], "aaabbbaaa"),
    "begun again before the change, with the first": ([(5, "b"), (3, "a")], "aaaaaaaaa"),
    "begun again before the change, with the later": ([(5, "b"), (3, "b")], "aaabbbbbb"),
    "begun again before the change, with a third": ([(5, "b"), (3, "c")], "aaacccccc"),
    "begun again between two changes": ([(2, "b"), (7, "c"), (4, "c")], "aabbccccc"),
    "begun again between two changes, as it was there": ([(2, "b"), (7, "c"), (4, "b")], "aabbbbbbb"),
    "begun again from before the first step": ([(5, "b"), (0, "c")], "ccccccccc"),
}


@pytest.mark.parametrize("story", STORIES)
def test_every_step_has_the_settings_that_it_was_played_under(tmp_path: Path, settings: dict[str, Config], story: str) -> None:
    resumed, expected = STORIES[story]
    folder = begun(tmp_path / "run", settings["a"])
    for step, name in resumed:
        go_on_from(folder, step, settings[name])
    assert history(folder) == expected
    num_changes = sum(one != other for one, other in pairwise(expected))
    assert len(list(folder.glob("earlier_configs/*"))) == num_changes


def test_what_has_been_changed_since_a_step_is_told(tmp_path: Path, configs: dict[str, Config]) -> None:
    """But not that the folder has been moved, which is no setting of the run."""
    folder = begun(tmp_path / "run", configs["a"])
    go_on_from(folder, 5, small_config(tmp_path / "elsewhere", "optimizer.lr=0.2", "name=other"))
    assert [str(change) for change in changed_since(folder, 5)] == ["optimizer.lr=0.2 (it was 0.1)"]
    assert changed_since(folder, 6) == []
    assert config_of(folder, 6).name == "run"


@pytest.mark.parametrize("broken_at", ["set_aside_later", "write_config"])
@pytest.mark.parametrize("story", [story for story, (resumed, _) in STORIES.items() if resumed])
def test_a_kill_in_between_leaves_the_steps_that_were_played_with_their_settings(
    tmp_path: Path, settings: dict[str, Config], monkeypatch: pytest.MonkeyPatch, story: str, broken_at: str
) -> None:
    """The last resume of each story dies before the second or third of its acts; steps up to where it resumed keep theirs."""
    resumed, expected = STORIES[story]
    folder = begun(tmp_path / "run", settings["a"])
    for step, name in resumed[:-1]:
        go_on_from(folder, step, settings[name])
    step, name = resumed[-1]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, broken_at, die)
        with pytest.raises(KeyboardInterrupt):
            go_on_from(folder, step, settings[name])
    assert history(folder)[:step] == expected[:step]
    go_on_from(folder, step, settings[name])
    assert history(folder) == expected


def test_the_settings_of_steps_that_are_played_again_lie_with_them(tmp_path: Path, settings: dict[str, Config]) -> None:
    folder = begun(tmp_path / "run", settings["a"])
    go_on_from(folder, 5, settings["b"])
    (folder / "checkpoints" / "step-000007").mkdir()  # played since
    kept = go_on_from(folder, 3, settings["c"])
    assert kept is not None
    assert config_of(kept, 5).optimizer.lr == LRS["a"]
    assert config_of(kept, 6).optimizer.lr == LRS["b"]


@pytest.mark.parametrize("target", ["moved/other", "moved/other/", "moved/other/config.yaml"])
def test_a_run_is_resumed_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Moved and renamed: its settings still say where it began."""
    monkeypatch.chdir(tmp_path)
    began = Config(name="began", output_dir="runs")
    begun(tmp_path / "moved" / "other", began)
    here = where_it_lies(began, target, ["trainer.steps=9"])
    assert Path(here.output_dir, here.name) == Path("moved/other")
    assert replace(here, name="began", output_dir="runs") == began


def test_a_run_is_resumed_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = Config(name="began", output_dir="runs")
    monkeypatch.chdir(begun(tmp_path / "other", began))
    here = where_it_lies(began, ".", [])
    assert Path(here.output_dir, here.name) == tmp_path.resolve() / "other"


def test_a_recipe_is_resumed_where_its_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config(name="bandit", output_dir="runs")
    begun(tmp_path / "bandit", config)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text("defaults: [bandit, _self_]\n")
    for recipe in ("bandit", "mine/config.yaml"):
        assert where_it_lies(config, recipe, ["name=other"]) == config


@pytest.mark.parametrize("override", ["name=other", "+output_dir=elsewhere"])
def test_another_place_for_a_run_that_is_resumed_is_refused(tmp_path: Path, override: str) -> None:
    folder = begun(tmp_path / "other", Config())
    with pytest.raises(ConfigError, match=rf"^{re.escape(override)}: the run in .*other is resumed where it lies; leave "):
        where_it_lies(Config(), str(folder), ["seed=1", override])
