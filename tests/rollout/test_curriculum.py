"""How a step's groups are shared out among environments, worked by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import ConfigError
from ragen.records import EndReason, Group
from ragen.rollout.curriculum import Curriculum, CurriculumConfig, share_out
from tests.support.episodes import corridor, manager
from tests.support.samples import make_trajectory

BALANCE = CurriculumConfig(rule="balance")


def played(tag: str, num_solved: int, num_failed: int, num_lost: int = 0) -> Group:
    ends = [EndReason.SOLVED] * num_solved + [EndReason.FAILED] * num_failed + [EndReason.TIMEOUT] * num_lost
    made = [make_trajectory([1], [2], tag=tag, member=m, end_reason=end) for m, end in enumerate(ends)]
    lost = len(made) - num_lost
    return Group(trajectories=tuple(made[:lost]), failed=tuple(made[lost:]))


def test_by_default_every_environment_gets_what_is_configured_whatever_happens() -> None:
    curriculum = Curriculum(CurriculumConfig(), {"a": 3, "b": 1})
    assert curriculum.learn([played("a", 0, 8)]) == {}
    assert curriculum.num_groups() == {"a": 3, "b": 1}
    assert curriculum.state_dict() == {}


def test_more_groups_go_where_every_second_trajectory_succeeds() -> None:
    """Rates (0+1)/(8+2) = 0.1, (4+1)/10 = 0.5, (8+1)/10 = 0.9: weights 0.09, 0.25, 0.09 of 0.43.

    Twelve groups, one each first: nine times the shares are 1.88, 5.23, 1.88, so 1, 5, 1, and the two left over go to the
    largest remainders, 0.88 twice: 1+2, 1+5, 1+2.
    """
    curriculum = Curriculum(BALANCE, {"hard": 4, "right": 4, "easy": 4})
    assert curriculum.num_groups() == {"hard": 4, "right": 4, "easy": 4}
    metrics = curriculum.learn([played("hard", 0, 8), played("right", 4, 4), played("easy", 8, 0)])
    assert curriculum.num_groups() == {"hard": 3, "right": 6, "easy": 3}
    assert metrics["curriculum/hard/num_groups"] == 4.0  # of the step that was played, not of the next
    assert curriculum.learn([])["curriculum/hard/success"] == pytest.approx(0.1)


def test_what_is_left_over_goes_to_the_largest_remainders_and_of_equal_ones_to_the_first() -> None:
    """Five by 2 : 5 are 1.43 and 3.57; three by 1 : 1 are 1.5 each."""
    assert share_out(5, {"a": 2.0, "b": 5.0}, minimum=0) == {"a": 1, "b": 4}
    assert share_out(3, {"a": 1.0, "b": 1.0}, minimum=0) == {"a": 2, "b": 1}


def test_older_steps_count_less() -> None:
    """4 of 8, then 0 of 8 with memory 0.5: (2 + 1) / (4 + 8 + 2)."""
    curriculum = Curriculum(CurriculumConfig(rule="balance", memory=0.5), {"a": 2, "b": 2})
    for solved in (4, 0):
        curriculum.learn([played("a", solved, 8 - solved)])
    assert curriculum.success_rates() == {"a": pytest.approx(3 / 14), "b": 0.5}


def test_lost_trajectories_count_neither_way_and_abstained_ones_do() -> None:
    curriculum = Curriculum(BALANCE, {"a": 2, "b": 2})
    group = played("a", 1, 0, num_lost=5)
    curriculum.learn([replace(group, abstained=played("a", 1, 0).trajectories)])
    assert curriculum.success_rates()["a"] == 3 / 4


def test_what_was_seen_goes_through_a_checkpoint_bit_for_bit() -> None:
    before, after = (Curriculum(BALANCE, {"a": 5, "b": 4, "c": 3}) for _ in range(2))
    for solved in (1, 3, 2):
        before.learn([played("a", solved, 7), played("b", 1, solved)])
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.state_dict() == before.state_dict()
    for curriculum in (before, after):
        curriculum.learn([played("c", 2, 1)])
    assert after.num_groups() == before.num_groups()
    assert after.success_rates() == before.success_rates()


def test_a_state_of_a_run_without_curriculum_begins_with_nothing_seen() -> None:
    curriculum = Curriculum(BALANCE, {"a": 2, "b": 2})
    curriculum.load_state_dict({"next_step": 3})
    assert curriculum.success_rates() == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("config", "num_groups", "says"),
    [
        (
            {"rule": "balanced"},
            {"a": 2, "b": 2},
            "rollout.curriculum.rule='balanced': must be one of fixed, balance; did you mean",
        ),
        ({"rule": "balance", "memory": 1.0}, {"a": 2, "b": 2}, "rollout.curriculum.memory=1.0: must lie in [0, 1)"),
        ({"rule": "balance", "min_groups": 0}, {"a": 2, "b": 2}, "rollout.curriculum.min_groups=0: must be at least 1"),
        ({"memory": 0.5}, {"a": 2, "b": 2}, "rollout.curriculum.memory=0.5: has no effect with rollout.curriculum.rule=fixed"),
        ({"rule": "balance"}, {"a": 8}, "rollout.curriculum.rule=balance: needs at least two environments"),
        ({"rule": "balance", "min_groups": 2}, {"a": 3, "b": 1}, "rollout.curriculum.min_groups=2: leaves nothing to share out"),
    ],
)
def test_what_cannot_act_is_refused(config: dict[str, Any], num_groups: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}"):
        Curriculum(CurriculumConfig(**config), num_groups)


@given(weights=st.lists(st.floats(0.001, 0.25), min_size=1, max_size=8), minimum=st.integers(0, 3), extra=st.integers(0, 50))
def test_everything_is_shared_out_and_nobody_gets_less_than_the_minimum(weights: list[float], minimum: int, extra: int) -> None:
    named = {str(place): weight for place, weight in enumerate(weights)}
    total = minimum * len(weights) + extra
    counts = share_out(total, named, minimum=minimum)
    assert sum(counts.values()) == total
    for tag, count in counts.items():
        assert minimum <= count
        assert abs(count - minimum - extra * named[tag] / sum(weights)) < 1 + 1e-9


def test_the_state_manager_opens_what_the_curriculum_gives_and_saves_it() -> None:
    tags = {"hard": corridor(num_groups=3), "right": corridor(num_groups=3)}
    with manager(curriculum=BALANCE, **tags) as episodes, manager(curriculum=BALANCE, **tags) as resumed:
        assert [members[0].key.environment for members in episodes.open(0)] == ["hard"] * 3 + ["right"] * 3
        metrics = episodes.learn([played("hard", 0, 16), played("right", 8, 8)])
        assert metrics["curriculum/right/num_groups"] == 3.0
        resumed.load_state_dict(json.loads(json.dumps(episodes.state_dict())))
        keys = [[handle.key for members in each.open(1) for handle in members] for each in (episodes, resumed)]
    assert keys[0] == keys[1]
    assert [key.environment for key in keys[0]].count(
        "right"
    ) == 4  # weights 17/324 and 1/4, four groups beyond one each: 0.7, 3.3
    assert [key.group for key in keys[0]] == list(range(6))
