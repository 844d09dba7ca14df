"""From literal episodes to literal figures."""

from __future__ import annotations

import pytest

from ragen.credit.rewards import RewardsConfig
from ragen.errors import TrainingError
from ragen.evaluation.measure import measure, summarise
from ragen.evaluation.statistics import Interval
from ragen.records import EndReason, Group, Verdict
from tests.support.finished import Episode, Played


def test_a_tag_without_a_scored_episode_is_left_out_beside_others_and_named(caplog: pytest.LogCaptureFixture) -> None:
    lost = Episode(turns=(), end_reason=EndReason.TIMEOUT, error="no answer in 60 s", tag="broken").made()
    groups = [Group(trajectories=(Episode().made(),)), Group(trajectories=(), failed=(lost,))]
    result = summarise(groups, model="m", step=0, kind="k", seconds=0.0, settings={}, rewards=RewardsConfig())
    assert list(result.environments) == ["bandit"]
    assert caplog.messages == ["evaluation of broken: no episode was scored, it is left out: no answer in 60 s"]


def test_where_no_tag_has_a_scored_episode_that_is_an_error_that_names_the_cause() -> None:
    lost = Episode(turns=(), end_reason=EndReason.TIMEOUT, error="no answer in 60 s").made()
    with pytest.raises(TrainingError, match=r"evaluation of bandit: no episode was scored \(no answer in 60 s\)"):
        summarise(
            [Group(trajectories=(), failed=(lost,))],
            model="m",
            step=0,
            kind="k",
            seconds=0.0,
            settings={},
            rewards=RewardsConfig(),
        )


def test_success_is_the_environments_word_and_not_a_sign_of_the_reward() -> None:
    """bug-log row 94: reward 0.5 without success, reward -0.1 with it."""
    rich = Episode(seed=1, success=False, turns=(Played(reward=0.5),))
    poor = Episode(seed=3, success=True, turns=(Played(reward=-0.1),))
    tag = measure("bandit", [rich.made(), poor.made()], [])
    assert tag.episodes.successes == (False, True)
    assert tag.success.mean == 0.5
    assert tag.episodes.returns == (0.5, -0.1)


def test_episodes_of_one_and_of_three_turns_are_averaged_per_episode_and_validity_per_reply() -> None:
    """bug-log rows 95 and 99: 1 + 3 turns, 2 + (4 + 5 + 9) sampled tokens, 3 of 4 replies valid."""
    short = Episode(seed=1, success=True, turns=(Played(num_tokens=2),))
    bad = Played(num_tokens=5, verdict=Verdict.EMPTY, actions=(), format_penalty=-0.1)
    long = Episode(seed=3, turns=(Played(num_tokens=4), bad, Played(num_tokens=9, actions=("left", "right"))))
    tag = measure("bandit", [short.made(), long.made()], [])
    assert (tag.num_turns.mean, tag.sampled_tokens.mean, tag.num_actions.mean) == (2.0, 10.0, 2.0)
    assert tag.format_validity.mean == 0.75
    assert tag.episodes.returns == (0.0, -0.1)


def test_prompts_are_counted_as_a_server_bills_them_each_turn_s_whole() -> None:
    """Three turns of 4, 5 and 9 tokens behind a prompt of 2, 3 tokens between: they start at 2, 2+4+3 = 9 and 9+5+3 = 17."""
    long = Episode(turns=(Played(num_tokens=4), Played(num_tokens=5), Played(num_tokens=9)))
    assert measure("bandit", [long.made()], []).prompt_tokens == Interval(mean=28.0)


def test_prompts_that_nobody_counted_have_no_mean() -> None:
    silent = Episode(turns=(), end_reason=EndReason.CONTEXT_LIMIT)
    assert measure("bandit", [silent.made(), Episode(seed=3).made()], []).prompt_tokens is None


def test_the_samples_of_one_seed_count_as_one_cluster_and_give_pass_at_k() -> None:
    """Seed 1: both of two; seed 3: one of two. pass@2 = (1 + 1) / 2, pass^2 = (1 + 0) / 2, success 3 of 4."""
    episodes = [Episode(seed=seed, success=won).made() for seed, won in ((1, True), (1, True), (3, True), (3, False))]
    tag = measure("bandit", episodes, [])
    assert tag.samples_per_seed == 2
    assert [each.mean for each in tag.pass_at] == [0.75, 1.0]
    assert [each.mean for each in tag.pass_all] == [0.75, 0.5]
    assert tag.success.mean == 0.75
    apart = measure("bandit", [Episode(seed=i, success=won).made() for i, won in enumerate((True, True, True, False))], [])
    assert tag.success.low is not None
    assert apart.success.low is not None
    assert tag.success.low < apart.success.low  # two seeds tell less than four


def test_validity_is_a_share_of_replies_and_not_of_episodes() -> None:
    """bug-log row 95: validity is a share of replies: 1 of 1 and 0 of 3 are 1 of 4, not the mean of 1 and 0."""
    bad = Played(verdict=Verdict.EMPTY, actions=())
    tag = measure("bandit", [Episode(seed=1).made(), Episode(seed=3, turns=(bad, bad, bad)).made()], [])
    assert tag.format_validity.mean == 0.25
