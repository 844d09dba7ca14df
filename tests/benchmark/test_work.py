"""Pieces of work travel as JSON, and every repeat begins with prompts that no cache knows."""

from __future__ import annotations

import json
import runpy
from dataclasses import asdict

import pytest

from ragen.benchmark.sides import FOLDER
from ragen.benchmark.work import (
    CeilingsWork,
    Exchange,
    RolloutWork,
    StepWork,
    first_id,
    groups_of_prompts,
    work_from_json,
)

BASE = {"model": "m", "dtype": "float32", "threads": 2, "repeats": 3}
TALK = (Exchange(observed=(1, 2, 3), num_new=4), Exchange(observed=(5,), num_new=6))


@pytest.mark.parametrize(
    "work",
    [
        RolloutWork(**BASE, conversations=(TALK, TALK[:1])),  # type: ignore[arg-type]
        StepWork(**BASE, num_groups=1, group_size=2, new_tokens=3, lora_rank=4, prompts=("a", "b")),  # type: ignore[arg-type]
        CeilingsWork(**BASE, products=((1, 2, 3),)),  # type: ignore[arg-type]
    ],
)
def test_a_piece_of_work_survives_the_way_through_a_file(work: RolloutWork | StepWork | CeilingsWork) -> None:
    assert work_from_json(json.loads(json.dumps(asdict(work)))) == work


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="kind='sleep': must be rollout, step or ceilings"):
        work_from_json({"kind": "sleep"})


def test_tokens_are_counted_over_all_turns() -> None:
    work = RolloutWork(**BASE, conversations=(TALK, TALK[:1]))  # type: ignore[arg-type]
    assert (work.num_new, work.longest) == (4 + 6 + 4, 3 + 4 + 1 + 6)


def test_members_of_a_group_share_a_prompt_and_groups_do_not() -> None:
    talks = groups_of_prompts(num_prompts=3, num_samples=2, prompt_tokens=5, new_tokens=7, vocabulary=1000)
    prompts = [talk[0].observed for talk in talks]
    assert prompts[0::2] == prompts[1::2]
    assert len(set(prompts)) == 3
    assert all(100 <= i < 1000 for prompt in prompts for i in prompt)
    assert {(len(talk), talk[0].num_new, len(talk[0].observed)) for talk in talks} == {(1, 7, 5)}


def test_no_two_repeats_begin_with_the_same_id() -> None:
    assert len({first_id(repeat) for repeat in range(20)}) == 20


def test_peers_begin_a_repeat_with_the_same_id_as_we_do() -> None:
    protocol = runpy.run_path(str(FOLDER / "peers" / "protocol.py"))
    exchange = {"observed": [1, 2, 3], "num_new": 4}
    assert protocol["first_turn"](exchange, 2) == [first_id(2), 2, 3]
    assert protocol["num_new"]({"conversations": [[exchange, exchange], [exchange]]}) == 12
