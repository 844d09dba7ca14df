from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from ragen.credit.config import READS, WITH_CRITIC, AdvantageConfig
from ragen.credit.estimators import ESTIMATORS
from ragen.errors import ConfigError
from tests.support import plugins
from tests.support.pages import ROOT

PLUGIN = "tests.support.plugins:half_grpo"


def test_the_defaults_are_grpo() -> None:
    AdvantageConfig().check()
    assert AdvantageConfig().estimator == "grpo"


def test_every_estimator_says_what_it_reads() -> None:
    settings = {field.name for field in fields(AdvantageConfig)} - {"estimator"}
    assert READS.keys() == ESTIMATORS.keys()
    assert set().union(*READS.values()) == settings
    for name in READS:
        AdvantageConfig(estimator=name).check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"estimator": "grpp"}, r"estimator='grpp': must be one of gae, .*'module:function' of your own; did you mean 'grpo'?"),
        ({"method": "std"}, "method='std': must be one of identity, mean, mean_std, asym_clip"),
        ({"method": "identity"}, "method=identity: keeps the raw return, which is estimator=arpo"),
        ({"estimator": "brpo", "grouping": "tags"}, "grouping='tags': must be one of batch, tag; did you mean 'tag'?"),
        ({"estimator": "gae", "gamma": 1.1, "discount_per": "turn"}, "gamma=1.1: must lie in [0, 1]"),
        ({"estimator": "gae", "lam": float("nan")}, "lam=nan: must lie in [0, 1]"),
        ({"estimator": "gigpo", "anchor_weight": -1.0}, "anchor_weight=-1.0: must be at least 0"),
        ({"estimator": "gae", "gamma": 0.9}, "gamma=0.9: say per what, by algorithm.advantage.discount_per"),
        ({"estimator": "gae", "lam": 0.9}, "lam=0.9: say per what, by algorithm.advantage.discount_per"),
        ({"estimator": "gae", "discount_per": "turn"}, "discount_per=turn: has no effect while gamma and lam are 1"),
        ({"gamma": 0.9}, "gamma=0.9: has no effect with estimator=grpo (settings that have: method)"),
        ({"estimator": "arpo", "method": "mean"}, "method=mean: has no effect with estimator=arpo"),
        ({"estimator": "rloo", "whiten": False}, "whiten=False: has no effect with estimator=rloo"),
        ({"estimator": "gae", "whiten": False, "grouping": "tag"}, "grouping=tag: has no effect with whiten=false"),
        ({"estimator": "tests.support.plugins:half"}, "has no function 'half'; did you mean 'half_grpo'?"),
        ({"estimator": "no.such.module:f"}, "estimator='no.such.module:f': cannot be imported"),
        ({"estimator": "tests.support.plugins:"}, "must be 'module:function'"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_refused_with_what_is_allowed(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message).replace(r"\.\*", ".*")) as error:
        AdvantageConfig(**setting).check()
    assert "\n" not in str(error.value)


def test_an_estimator_of_one_s_own_may_read_everything() -> None:
    config = AdvantageConfig(estimator=PLUGIN, method="identity", gamma=0.5, anchor_weight=2.0)
    config.check()
    assert not config.needs_critic
    assert AdvantageConfig(estimator="tests.support.plugins:reward_minus_value").needs_critic
    assert callable(plugins.half_grpo)


def test_which_estimators_need_a_critic() -> None:
    assert {name for name in READS if AdvantageConfig(estimator=name).needs_critic} == WITH_CRITIC


def settings_on_the_page() -> str:
    """The two tables of the section "Settings"."""
    page = (ROOT / "docs" / "algorithms" / "advantages.md").read_text(encoding="utf-8")
    return page.partition("## Settings")[2].partition("## Comparing")[0]


def test_the_page_lists_what_each_estimator_reads() -> None:
    for name, settings in READS.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*\|([^|]*)\|$", settings_on_the_page(), re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == settings, name


def test_the_page_lists_the_defaults() -> None:
    for field in fields(AdvantageConfig):
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default or "''"
        assert f"| `{field.name}` | `{default}` |" in settings_on_the_page()
