from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ragen.errors import StorageError
from ragen.records import (
    ChatMessage,
    EndReason,
    EpisodeKey,
    FinishReason,
    Group,
    Reply,
    Sample,
    Segment,
    Split,
    Summary,
    Trajectory,
    Turn,
    Verdict,
)
from ragen.rollout.recorder import Recorded, read_rollout, write_rollout

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
FLOATS32 = st.floats(allow_nan=False, width=32)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.lists(TEXTS, max_size=3).map(tuple)

replies = st.builds(Reply, text=TEXTS, thought=TEXTS, actions=NAMES, verdict=st.sampled_from(Verdict), feedback=TEXTS)
turns = st.builds(
    Turn,
    start=st.integers(0, 2**31 - 1),
    stop=st.integers(0, 2**31 - 1),
    observation=TEXTS,
    reply=replies,
    executed=NAMES,
    reward=NUMBERS,
    format_penalty=NUMBERS,
    finish_reason=st.sampled_from(FinishReason),
    policy_version=st.integers(0, 2**40),
    segment=st.integers(0, 3),
    digest=TEXTS,
    parts=st.dictionaries(TEXTS, NUMBERS, max_size=2),
    info=st.dictionaries(TEXTS, NUMBERS, max_size=2),
)


summaries = st.builds(
    Summary,
    segment=st.integers(0, 3),
    start=st.integers(0, 2**31 - 1),
    stop=st.integers(0, 2**31 - 1),
    num_turns=st.integers(0, 100),
    text=TEXTS,
    trained=st.booleans(),
    finish_reason=st.sampled_from(FinishReason),
    policy_version=st.integers(0, 2**40),
    digest=TEXTS,
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    length = draw(st.integers(0, 6))
    return Segment(
        ids=draw(hnp.arrays(np.int32, length)),
        mask=draw(hnp.arrays(np.bool_, length)),
        logprobs=draw(hnp.arrays(np.float32, length, elements=FLOATS32)),
        prompt=tuple(draw(st.lists(st.builds(ChatMessage, role=TEXTS, content=TEXTS), max_size=2))),
    )


@st.composite
def trajectories(draw: st.DrawFn, group: int, member: int, *, failed: bool) -> Trajectory:
    seeds = st.integers(0, 2**64 - 1)
    return Trajectory(
        key=EpisodeKey(
            split=draw(st.sampled_from(Split)),
            step=draw(st.integers(0, 2**40)),
            group=group,
            member=member,
            environment=draw(TEXTS),
            task_seed=draw(seeds),
            dynamics_seed=draw(seeds),
            attempt=draw(st.integers(0, 3)),
        ),
        segments=tuple(draw(st.lists(segments(), min_size=1, max_size=3))),
        summaries=tuple(draw(st.lists(summaries, max_size=2))),
        turns=tuple(draw(st.lists(turns, max_size=2))),
        final_observation=draw(TEXTS),
        end_reason=draw(st.sampled_from([reason for reason in EndReason if reason.is_infrastructure == failed])),
        success=draw(st.booleans()),
        truncated=draw(st.booleans()),
        error=draw(TEXTS),
    )


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[list[Group], list[Sample]]:
    groups: list[Group] = []
    samples: list[Sample] = []
    for index in range(draw(st.integers(0, 2))):
        members = [draw(trajectories(index, m, failed=False)) for m in range(draw(st.integers(0, 2)))]
        failed = [draw(trajectories(index, len(members) + m, failed=True)) for m in range(draw(st.integers(0, 1)))]
        groups.append(Group(trajectories=tuple(members), failed=tuple(failed)))
        for trajectory in members:
            for number, segment in enumerate(trajectory.segments):
                if draw(st.booleans()):
                    advantages = draw(hnp.arrays(np.float32, len(segment.ids), elements=FLOATS32))
                    samples.append(Sample(trajectory=trajectory, segment=number, advantages=advantages))
    return groups, samples


def fields_but_arrays(t: Trajectory) -> dict[str, object]:
    return {name: value for name, value in vars(t).items() if name != "segments"}


def assert_same_array(a: np.ndarray, b: np.ndarray) -> None:
    assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


@given(rollouts())
def test_what_is_written_is_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, drawn) -> None:
    groups, samples = drawn
    path = tmp_path_factory.mktemp("rollout") / "step-000001.parquet"
    write_rollout(path, groups, samples)
    back = read_rollout(path)
    written = [t for group in groups for t in (*group.trajectories, *group.failed)]
    assert [fields_but_arrays(r.trajectory) for r in back] == [fields_but_arrays(t) for t in written]
    trained = {(sample.trajectory.key, sample.segment): sample.advantages for sample in samples}
    for recorded, trajectory in zip(back, written, strict=True):
        for number, (found, segment) in enumerate(zip(recorded.trajectory.segments, trajectory.segments, strict=True)):
            for name in ("ids", "mask", "logprobs"):
                assert_same_array(getattr(found, name), getattr(segment, name))
            assert found.prompt == segment.prompt
            advantages = recorded.advantages[number]
            if (trajectory.key, number) in trained:
                assert advantages is not None
                assert_same_array(advantages, trained[trajectory.key, number])
            else:
                assert advantages is None


def one_turn(member: int, *, end_reason: EndReason = EndReason.SOLVED, reward: float = 1.0) -> Trajectory:
    reply = Reply(text="<answer>Left</answer>", thought="", actions=("Left",), verdict=Verdict.VALID)
    turn = Turn(
        start=2,
        stop=4,
        observation="P",
        reply=reply,
        executed=("Left",),
        reward=reward,
        format_penalty=-0.25,
        finish_reason=FinishReason.STOP,
        policy_version=1,
    )
    return Trajectory(
        key=EpisodeKey(split=Split.TRAIN, step=3, group=0, member=member, environment="c", task_seed=5, dynamics_seed=member),
        segments=(
            Segment(
                ids=np.array([1, 2, 3, 4], np.int32),
                mask=np.array([False, False, True, True]),
                logprobs=np.array([0, 0, -1, -2], np.float32),
            ),
        ),
        turns=(turn,),
        final_observation="G",
        end_reason=end_reason,
        success=end_reason is EndReason.SOLVED,
        error="broke" if end_reason.is_infrastructure else "",
    )


def test_columns_can_be_asked_without_opening_the_lists(tmp_path: Path) -> None:
    path = tmp_path / "rollouts" / "step-000003.parquet"
    broken = one_turn(1, end_reason=EndReason.ENGINE_ERROR, reward=0.0)
    write_rollout(path, [Group(trajectories=(one_turn(0),), failed=(broken,))])
    table = pq.read_table(path, columns=["member", "return", "num_sampled", "failed", "end_reason", "error"])
    assert table.to_pylist() == [
        {"member": 0, "return": 0.75, "num_sampled": 2, "failed": False, "end_reason": "solved", "error": ""},
        {"member": 1, "return": -0.25, "num_sampled": 2, "failed": True, "end_reason": "engine_error", "error": "broke"},
    ]
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_a_full_disk_leaves_the_earlier_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "step-000001.parquet"
    write_rollout(path, [Group(trajectories=(one_turn(0),))])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"step-000001.parquet: cannot write: No space left on device"):
        write_rollout(path, [])
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert len(read_rollout(path)) == 1


@pytest.mark.parametrize("content", [None, b"", b"PAR1 cut short", b"x" * 100])
def test_a_missing_or_cut_file_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "step-000001.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError) as caught:
        read_rollout(path)
    assert str(caught.value).startswith(f"{path}: cannot read this rollout: ")
    assert "\n" not in str(caught.value)


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StorageError, match="not a rollout file of format 4"):
        read_rollout(path)


def test_a_recorded_row_knows_whether_it_was_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    first, second = one_turn(0), one_turn(1)
    write_rollout(
        path, [Group(trajectories=(first, second))], [Sample(trajectory=second, advantages=np.full(4, 0.5, np.float32))]
    )
    untrained, trained = read_rollout(path)
    assert isinstance(untrained, Recorded)
    assert (untrained.advantages, untrained.is_trained) == ((None,), False)
    assert trained.is_trained
    (advantages,) = trained.advantages
    assert advantages is not None
    assert advantages.tolist() == [0.5] * 4
