from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ragen.credit.filters import FilterConfig, Selection, tags_to_add


def selection(*kept: int, num_wanted: int) -> Selection:
    return Selection(kept=kept, weights=(1.0,) * len(kept), num_wanted=num_wanted)


def budget(frac: float) -> FilterConfig:
    return FilterConfig(drop_zero_spread=True, refill_frac=frac)


def test_a_dropped_group_is_followed_by_one_of_its_own_tag() -> None:
    tags = ["a", "a", "b", "b"]
    assert tags_to_add(selection(0, 1, 3, num_wanted=4), tags, budget(1.0), num_planned=4) == ["b"]
    assert tags_to_add(selection(3, num_wanted=4), tags, budget(1.0), num_planned=4) == ["a", "a", "b"]
    assert tags_to_add(selection(num_wanted=4), tags, budget(1.0), num_planned=4) == ["a", "b", "a", "b"]


def test_a_full_batch_or_no_budget_asks_for_nothing() -> None:
    tags = ["a", "a"]
    assert tags_to_add(selection(0, 1, num_wanted=2), tags, budget(9.0), num_planned=2) == []
    assert tags_to_add(selection(0, num_wanted=2), tags, FilterConfig(), num_planned=2) == []


def test_the_budget_is_for_the_whole_step() -> None:
    """Half of four is two: one was played, one is left, though three are missing."""
    tags = ["a", "a", "a", "a", "a"]
    assert tags_to_add(selection(0, num_wanted=4), tags, budget(0.5), num_planned=4) == ["a"]
    assert tags_to_add(selection(0, num_wanted=4), [*tags, "a"], budget(0.5), num_planned=4) == []


def test_what_was_added_does_not_change_what_was_planned() -> None:
    """One of a and one of b were planned; that b was played anew twice gives it no larger share."""
    tags = ["a", "b", "b", "b"]
    assert tags_to_add(selection(num_wanted=2), tags, budget(2.0), num_planned=2) == ["a", "b"]


def test_where_fewer_are_wanted_than_planned_tags_keep_their_proportions() -> None:
    """Two of six wanted, from four of a and two of b: 4/3 and 2/3; one of b is kept, so a is due."""
    tags = ["a", "a", "a", "a", "b", "b"]
    assert tags_to_add(selection(5, num_wanted=2), tags, budget(1.0), num_planned=6) == ["a"]


@given(
    planned=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    verdicts=st.lists(st.booleans(), min_size=40, max_size=40),
    frac=st.sampled_from([0.0, 0.3, 0.5, 1.0, 3.0]),
)
def test_a_step_ends_full_or_with_its_budget_spent_and_never_above_either(
    planned: list[str], verdicts: list[bool], frac: float
) -> None:
    """Groups pass or not by `verdicts`; when all is filled, the kept groups have the tags that were planned."""
    config, size, tags = budget(frac), len(planned), list(planned)
    while True:
        kept = [place for place in range(len(tags)) if verdicts[place % 40]]
        more = tags_to_add(selection(*kept, num_wanted=size), tags, config, num_planned=size)
        assert len(kept) + len(more) <= size
        if not more:
            break
        tags += more
    assert len(tags) - size <= config.num_extra(size)
    if len(kept) < size:
        assert len(tags) - size == config.num_extra(size)
    else:
        assert Counter(tags[place] for place in kept) == Counter(planned)
