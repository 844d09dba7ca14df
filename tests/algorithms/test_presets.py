"""The presets of conf/algorithm: each loads everywhere, none is another under a second name, each has a page that is true."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import Tensor

import tests.support.corridor  # noqa: F401 - registers the environment
from ragen.config.load import groups, load, recipes
from ragen.config.schema import type_of
from ragen.records import EpisodeKey, Group, Trajectory
from tests.support.grid import trainer_of
from tests.support.pages import ROOT, blocks
from tests.support.runs import corridor_config
from tests.support.samples import make_trajectory

PRESETS = groups()["algorithm"]
NAMED = {"ppo", "grpo", "dr_grpo", "dapo", "brpo", "arpo", "rloo", "reinforce_pp", "gspo", "gigpo", "starpo", "starpo_s"}
PAGES = ROOT / "docs" / "algorithms" / "presets"
SETTING = re.compile(r"^\| `(algorithm\.[\w.]+)` \| `([^`]+)` \|", re.MULTILINE)


def settings_of(preset: str) -> dict[str, Any]:
    """What its YAML sets, by dotted key."""
    content = yaml.safe_load((ROOT / "ragen" / "conf" / "algorithm" / f"{preset}.yaml").read_text(encoding="utf-8"))
    flat: dict[str, Any] = {}
    for name, value in content.items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        flat |= {f"algorithm.{name}.{key}".rstrip("."): entry for key, entry in entries}
    return flat


def test_every_algorithm_that_is_promised_has_a_preset() -> None:
    assert set(PRESETS) >= NAMED


@pytest.mark.parametrize("recipe", recipes())
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_loads_over_every_recipe_and_is_what_its_file_says(preset: str, recipe: str) -> None:
    config = load(recipe, [f"algorithm={preset}"])
    own = load(recipe, ["algorithm=arpo"]).algorithm.entropy_coef  # what a recipe says of its own stands above the preset
    assert config.algorithm.entropy_coef == own
    for key, value in settings_of(preset).items():
        found: Any = config
        for name in key.split("."):
            found = getattr(found, name)
        assert found == value, key


@pytest.mark.parametrize("preset", PRESETS)
def test_a_page_names_exactly_the_settings_of_its_preset(preset: str) -> None:
    page = (PAGES / f"{preset}.md").read_text(encoding="utf-8")
    named = {key: yaml.safe_load(value) for key, value in SETTING.findall(page)}
    assert named == settings_of(preset)
    assert all(type_of(key) is not None for key in named)
    assert any(f"algorithm={preset} " in block for block in blocks(PAGES / f"{preset}.md", ""))


def test_no_page_is_of_a_preset_that_is_gone() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*PRESETS}


# -- no two are the same -----------------------------------------------------------------------------------------------------


def planted(key: EpisodeKey) -> Trajectory:
    """Two turns of unequal lengths and rewards, old log-probs on both sides of what the policy says; group 0 has no spread."""
    number = 3 * key.group + key.member
    ids = [10 + (7 * number + i) % 300 for i in range(4 + number % 3)]
    worth = 0.5 if key.group == 0 else (number * number % 7) / 7
    logprobs = [-6.0 + 0.35 * ((number + i) % 5 - 2) for i in range(len(ids) + 2)]
    made = make_trajectory(
        [5, 6, 7 + key.group],
        ids,
        [3, 4],
        [8, 9 + key.member],
        rewards=(worth, 0.1 * key.member * (key.group > 0)),
        logprobs=logprobs,
    )
    return replace(made, key=key)


def updated(preset: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The weights that a preset makes out of the planted rollout, two optimiser steps where it does not say how many."""
    config = corridor_config(folder, f"algorithm={preset}", "environments.bandit.num_groups=4", "rollout.group_size=3")
    with trainer_of(config, folder) as trainer:

        def play(handles: Sequence[Sequence[Any]], *, num_step: int | None = None) -> list[Group]:
            return [Group(trajectories=tuple(planted(handle.key) for handle in members)) for members in handles]

        monkeypatch.setattr(trainer.rollouts, "_play", play)
        trainer.step(0)
        metrics = trainer.step(1)
        assert metrics["update/skipped"] == 0
        return [weight.detach().clone() for weight in trainer.learner.policy.trainable().values()]


def test_no_two_presets_make_the_same_of_the_same_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published PPO and DAPO were one algorithm. The learning rate is 1e-3, rounding far below 1e-5."""
    weights = {preset: updated(preset, tmp_path / preset, monkeypatch) for preset in PRESETS}
    for one, other in combinations(PRESETS, 2):
        apart = max(float((a - b).abs().max()) for a, b in zip(weights[one], weights[other], strict=True))
        assert apart > 1e-5, (one, other, apart)
