from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ragen.credit.config import AdvantageConfig
from ragen.credit.samples import assign_credit, make_samples
from ragen.credit.view import Values
from ragen.errors import TrainingError
from ragen.records import EndReason, Group, Segment
from tests.support.samples import make_group, make_trajectory

TWO_TURNS = make_trajectory([1, 2], [3, 4], [5], [6], rewards=[1, 2])


def test_advantages_stand_on_the_trained_tokens_in_float32() -> None:
    (sample,) = make_samples([Group(trajectories=(TWO_TURNS,))], AdvantageConfig(estimator="arpo"))
    assert sample.advantages.tolist() == [0, 0, 3, 3, 0, 3]
    assert sample.advantages.dtype == np.float32


def test_each_segment_gets_the_advantages_of_its_own_tokens() -> None:
    """Rewards to come: 3 in the first turn, 2 in the second, which is a sequence of its own."""
    whole = TWO_TURNS.segments[0]
    later = Segment(ids=whole.ids, mask=whole.mask & (np.arange(6) == 5), logprobs=whole.logprobs)
    first = Segment(ids=whole.ids[:4], mask=whole.mask[:4], logprobs=whole.logprobs[:4])
    trajectory = replace(TWO_TURNS, segments=(first, later), turns=(TWO_TURNS.turns[0], replace(TWO_TURNS.turns[1], segment=1)))
    config = AdvantageConfig(estimator="reinforce_pp", whiten=False)
    samples = make_samples([Group(trajectories=(trajectory,))], config)
    assert [(s.segment, s.advantages.tolist()) for s in samples] == [(0, [0, 0, 3, 3]), (1, [0, 0, 0, 0, 0, 2])]


def test_a_critic_learns_beside_each_sample_what_it_should_have_said() -> None:
    """gamma = lambda = 1: targets are the rewards to come, 3, 3 and 2."""
    values = {TWO_TURNS.key: Values(tokens=np.array([0.5, 1.0, 1.5]), after=9.0)}
    config = AdvantageConfig(estimator="gae", whiten=False)
    (sample,), (critic,) = assign_credit([Group(trajectories=(TWO_TURNS,))], config, values=values)
    assert sample.advantages.tolist() == [0, 0, 2.5, 2.0, 0, 0.5]
    assert critic.values.tolist() == [0, 0, 0.5, 1.0, 0, 1.5]
    assert critic.targets.tolist() == [0, 0, 3, 3, 0, 2]
    assert (critic.values.dtype, critic.targets.dtype) == (np.float32, np.float32)


def test_whitening_leaves_the_targets_alone() -> None:
    values = {TWO_TURNS.key: Values(tokens=np.array([0.5, 1.0, 1.5]), after=0.0)}
    (sample,), (critic,) = assign_credit([Group(trajectories=(TWO_TURNS,))], AdvantageConfig(estimator="gae"), values=values)
    trained = sample.advantages[sample.mask]
    assert (trained.mean(), trained.std(ddof=1)) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-5))
    assert critic.targets.tolist() == [0, 0, 3, 3, 0, 2]


def test_whitening_by_tag_keeps_tasks_apart() -> None:
    groups = [
        Group(
            trajectories=tuple(make_trajectory([1], [2], rewards=[r], member=m, group=g, tag=tag) for m, r in enumerate(rewards))
        )
        for g, (tag, rewards) in enumerate((("a", (0, 2)), ("b", (0, 200))))
    ]
    samples = make_samples(groups, AdvantageConfig(estimator="reinforce_pp", grouping="tag"))
    assert [s.advantages[1] for s in samples] == pytest.approx([-(0.5**0.5), 0.5**0.5] * 2, abs=2e-6)


def test_without_a_critic_there_is_nothing_for_it_to_learn() -> None:
    assert assign_credit([make_group(1.0, 2.0)], AdvantageConfig())[1] == []


def test_a_critic_s_estimator_without_values_is_a_mistake_of_the_program() -> None:
    with pytest.raises(AssertionError, match="gae needs values"):
        make_samples([make_group(1.0)], AdvantageConfig(estimator="gae"))


def test_a_trajectory_without_a_sampled_token_gives_no_sample_but_was_scored() -> None:
    """Bug-log rows 14 and 66: an empty mask is never trained, so no loss is divided by zero.

    Its return stays in the mean: the policy did answer, with nothing.
    """
    silent = make_trajectory([1, 2], [], penalties=[-1.0], end_reason=EndReason.PARSE_FAILURE)
    spoke = make_trajectory([1, 2], [3], rewards=[1.0], member=1)
    (sample,) = make_samples([Group(trajectories=(silent, spoke))], AdvantageConfig(method="mean"))
    assert sample.trajectory is spoke
    assert sample.advantages.tolist() == [0.0, 0.0, 1.0]


def test_the_mean_is_over_scored_members_only() -> None:
    """Bug-log row 20, its numbers: over the valid 2, 0, 0 the mean is 2/3, so 4/3, -2/3, -2/3."""
    samples = make_samples([make_group(2.0, 0.0, 0.0, failed=[EndReason.TIMEOUT])], AdvantageConfig(method="mean"))
    assert [s.advantages[1] for s in samples] == pytest.approx([4 / 3, -2 / 3, -2 / 3])


def test_one_scored_member_among_failures_learns_nothing_from_itself() -> None:
    """Bug-log row 18: [1, None, None, None] must be 0, not the NaN of a spread of one value."""
    (sample,) = make_samples([make_group(1.0, failed=[EndReason.TIMEOUT] * 3)], AdvantageConfig())
    assert sample.advantages.tolist() == [0.0, 0.0]


def test_two_parts_that_cancel_give_no_advantage() -> None:
    """Bug-log row 21: one member earned 0.1 and paid 0.1, the other neither."""
    cancelled = make_trajectory([1], [2], rewards=[0.1], penalties=[-0.1])
    samples = make_samples([Group(trajectories=(cancelled, make_trajectory([1], [2], member=1)))], AdvantageConfig())
    assert [sample.advantages.tolist() for sample in samples] == [[0.0, 0.0], [0.0, 0.0]]


def test_the_largest_returns_still_give_finite_advantages() -> None:
    for config in (AdvantageConfig(), AdvantageConfig(method="mean"), AdvantageConfig(estimator="arpo")):
        samples = make_samples([make_group(1e38, -1e38, 1e38)], config)
        assert np.isfinite([s.advantages for s in samples]).all()


def test_an_advantage_beyond_float32_names_its_trajectory() -> None:
    """The return is 0, but what is still to come after the first turn is not a float32."""
    far = make_trajectory([1], [2], [3], [4], rewards=[-1e39, 1e39], group=2, member=1)
    with pytest.raises(TrainingError, match=r"advantage by reinforce_pp of corridor group 2 member 1 \(task seed 102\): must be"):
        make_samples([Group(trajectories=(far,))], AdvantageConfig(estimator="reinforce_pp", whiten=False))


def test_no_groups_give_no_samples() -> None:
    assert make_samples([], AdvantageConfig(estimator="brpo")) == []
    assert make_samples([Group(trajectories=())], AdvantageConfig()) == []
