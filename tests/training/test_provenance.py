"""Every planted fault is refused, naming trajectory and turn; what a rollout leaves untouched passes, in every context mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.engines.scripted import ScriptedEngine
from ragen.errors import TrainingError
from ragen.records import FinishReason, Group, Sample, Segment, Trajectory
from ragen.rollout.recorder import read_rollout, write_rollout
from ragen.training.packing import pack
from ragen.training.provenance import MAX_LOGPROB, Provenance, trace, verify, verify_pack
from ragen.training.rollout_metrics import rollout_metrics
from tests.support.pages import ROOT, blocks
from tests.support.rollouts import contexts, corridor, play, scripted, walk
from tests.support.samples import make_sample, signed
from tests.support.tokenizers import CHATML, T_STRIP

# prompt 0..1, turn 1 at 2..3, observation 4, turn 2 at 5..7
SAMPLE = make_sample([1, 2], [7, 8], [3], [9, 10, 11], logprobs=[-0.5, -1.5, -0.25, -2.0, -4.0], group=3, member=1)
NAME = r"corridor group 3 member 1 \(task seed 103\)"


def with_segment(sample: Sample, **arrays: Any) -> Sample:
    """The sample with other arrays in its segment, everything else as recorded."""
    trajectory = replace(sample.trajectory, segments=(replace(sample.tokens, **arrays),))
    return replace(sample, trajectory=trajectory)


def with_turn(sample: Sample, index: int, **fields: Any) -> Sample:
    turns = list(sample.trajectory.turns)
    turns[index] = replace(turns[index], **fields)
    return replace(sample, trajectory=replace(sample.trajectory, turns=tuple(turns)))


def changed(array: np.ndarray, place: int, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[place] = value
    return copy


def with_id(place: int) -> Sample:
    return with_segment(SAMPLE, ids=changed(SAMPLE.ids, place, 99))


def with_logprob(place: int, value: float) -> Sample:
    return with_segment(SAMPLE, logprobs=changed(SAMPLE.logprobs, place, value))


def with_mask(*sampled: int) -> Sample:
    return with_segment(SAMPLE, mask=np.isin(np.arange(8), sampled))


def with_advantages_of_another_length() -> Sample:
    """`Sample` asserts their length; Python without assertions does not."""
    sample = replace(SAMPLE)
    object.__setattr__(sample, "advantages", np.ones(7, dtype=np.float32))
    return sample


def with_the_tokens_of(other: Sample) -> Sample:
    return replace(SAMPLE, trajectory=replace(SAMPLE.trajectory, segments=other.trajectory.segments))


OTHER = make_sample([1, 2], [7, 8], [3], [9, 10, 12], logprobs=[-0.5, -1.5, -0.25, -2.0, -4.0], group=3, member=2)
OTHER_PROMPT = make_sample([1, 5], [7, 8], [3], [9, 10, 11], logprobs=[-0.5, -1.5, -0.25, -2.0, -4.0], group=4)
LONGER = make_sample([1, 2], [7, 8, 6], [3], [9, 10], group=3, member=4)
DIGEST = "the digest of its ids and log-probs is not the one recorded when they were sampled"

FAULTS: dict[str, tuple[Sample, str]] = {
    "a sampled id changed": (with_id(6), f"turn 2: {DIGEST}"),
    "an id changed that the model read": (with_id(4), f"turn 2: {DIGEST}"),
    "an id of the prompt changed": (with_id(0), f"turn 1: {DIGEST}"),
    "mask shifted right": (with_mask(3, 4, 6, 7), "turn 1: the mask is False on token 2, which was sampled"),
    "mask shifted left": (with_mask(1, 2, 4, 5, 6), "the prompt: the mask is True on token 1, which was not sampled"),
    "an observation trained": (
        with_mask(2, 3, 4, 5, 6, 7),
        "behind turn 1: the mask is True on token 4, which was not sampled",
    ),
    "a log-prob changed": (with_logprob(7, -4.5), f"turn 2: {DIGEST}"),
    "a log-prob is no number": (with_logprob(3, np.nan), "turn 1: the log-prob of token 3 is nan: must be finite and at most 0"),
    "a log-prob of minus infinity": (with_logprob(3, -np.inf), "turn 1: the log-prob of token 3 is -inf: must be finite"),
    "a log-prob above 0": (with_logprob(5, 0.5), r"turn 2: the log-prob of token 5 is 0\.5: must be finite and at most 0"),
    "a log-prob where nothing was sampled": (
        with_logprob(4, -1.0),
        r"behind turn 1: the log-prob of token 4 is -1\.0: must be 0, since it was not sampled",
    ),
    "the span of a turn is off by one": (
        with_turn(SAMPLE, 1, start=4, stop=7),
        "turn 2: the mask is False on token 4, which was sampled",
    ),
    "the span of a turn ends too early": (with_turn(SAMPLE, 1, stop=7), "behind turn 2: the mask is True on token 7"),
    "the span of a turn ends beyond the tokens": (
        with_turn(SAMPLE, 1, stop=9),
        r"turn 2: its span 5\.\.9 does not lie within 4\.\.8",
    ),
    "two turns overlap": (with_turn(SAMPLE, 1, start=3), r"turn 2: its span 3\.\.8 does not lie within 4\.\.8"),
    "a turn is in another segment": (with_turn(SAMPLE, 1, segment=1), "behind turn 1: the mask is True on token 5"),
    "advantages of another length": (
        with_advantages_of_another_length(),
        "segment 1: one number per token is needed, found 8 ids, 8 mask, 8 logprobs, 7 advantages",
    ),
    "tokens of another trajectory": (with_the_tokens_of(OTHER), f"turn 2: {DIGEST}"),
    "tokens of another trajectory that differs in its prompt": (with_the_tokens_of(OTHER_PROMPT), f"turn 1: {DIGEST}"),
    "tokens of another trajectory with other spans": (with_the_tokens_of(LONGER), "the mask is True on token 4"),
    "turns swapped": (
        replace(SAMPLE, trajectory=replace(SAMPLE.trajectory, turns=OTHER.trajectory.turns)),
        f"turn 2: {DIGEST}",
    ),
    "no digest was recorded": (with_turn(SAMPLE, 0, digest=""), f"turn 1: {DIGEST}"),
}


def test_the_untouched_sample_passes() -> None:
    verify([SAMPLE, OTHER, OTHER_PROMPT, LONGER])
    verify([])


@pytest.mark.parametrize(("sample", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_refused_naming_trajectory_and_turn(sample: Sample, message: str) -> None:
    """The other samples of the batch are good. Bug-log rows 1 to 16 end in one of these."""
    with pytest.raises(TrainingError, match=f"^{NAME}, .*{message}"):
        verify([OTHER, sample, LONGER])


def test_the_refusal_that_is_quoted_in_the_documents_is_the_one_that_comes() -> None:
    _, quoted = blocks(ROOT / "docs" / "tokens.md", "text")
    sokoban = make_sample([1, 2], [7, 8], [3], [9, 10, 11], tag="sokoban", group=3, member=1)
    with pytest.raises(TrainingError) as refusal:
        verify([with_segment(sokoban, ids=changed(sokoban.ids, 6, 99))])
    assert quoted == f"error: {refusal.value}\n"


def test_rounding_above_zero_is_no_fault() -> None:
    almost = with_logprob(3, MAX_LOGPROB / 2)
    verify([replace(almost, trajectory=signed(almost.trajectory))])


def test_a_token_is_traced_to_its_turn() -> None:
    sample = with_turn(SAMPLE, 1, policy_version=4, finish_reason=FinishReason.LENGTH)
    assert trace(sample, 7) == Provenance(turn=1, summary=None, position=2, policy_version=4, finish_reason=FinishReason.LENGTH)
    assert trace(sample, 2) == Provenance(turn=0, summary=None, position=0, policy_version=0, finish_reason=FinishReason.STOP)


@pytest.mark.parametrize("t", [0, 1, 4, 8, -1])
def test_a_token_that_is_not_trained_has_no_origin(t: int) -> None:
    with pytest.raises(ValueError, match=rf"token {t} of {NAME}, segment 0: is not trained"):
        trace(SAMPLE, t)


SUMMARISING = {"overflow": "summarise", "summarise_every": 1}
MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"mode": "window", "window": 2},
    "single_turn": {"mode": "single_turn"},
    "summaries trained": SUMMARISING,
    "summaries not trained": {**SUMMARISING, "train_summaries": False},
    "a template that rewrites": {"template": T_STRIP},
}
REPLIES = st.lists(
    st.one_of(st.sampled_from([walk("Right"), walk("Left", "Right"), "", "no tags"]), st.text(max_size=12)),
    min_size=12,
    max_size=12,
)


def rollout(mode: str, replies: list[str], engine: ScriptedEngine | None = None) -> list[Sample]:
    """One trajectory of the corridor, as samples."""
    settings = dict(MODES[mode])
    make_context = contexts("plain", settings.pop("template", CHATML), max_invalid_turns=9, **settings)
    trajectory = play(engine or scripted(replies), corridor(), make_context=make_context, max_invalid_turns=9)
    return [sample for sample in samples_of(trajectory) if sample.mask.any()]


def samples_of(trajectory: Trajectory) -> list[Sample]:
    """One per segment, before anything is known of advantages."""
    blank = [np.zeros(len(segment.ids), dtype=np.float32) for segment in trajectory.segments]
    return [Sample(trajectory=trajectory, segment=index, advantages=zeros) for index, zeros in enumerate(blank)]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15)
@given(replies=REPLIES)
def test_what_a_rollout_leaves_always_passes(mode: str, replies: list[str]) -> None:
    samples = rollout(mode, replies)
    assert samples
    verify(samples)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15)
@given(replies=REPLIES, data=st.data())
def test_any_id_that_changes_before_the_last_sampled_one_is_found(mode: str, replies: list[str], data: st.DataObject) -> None:
    samples = rollout(mode, replies)
    place = data.draw(st.integers(0, len(samples) - 1))
    sample = samples[place]
    t = data.draw(st.integers(0, len(sample.ids) - 1))
    samples[place] = with_tokens(sample, replace(sample.tokens, ids=changed(sample.ids, t, sample.ids[t] + 1)))
    with pytest.raises(TrainingError, match="digest"):
        verify(samples)


def with_tokens(sample: Sample, segment: Segment) -> Sample:
    segments = list(sample.trajectory.segments)
    segments[sample.segment] = segment
    return replace(sample, trajectory=replace(sample.trajectory, segments=tuple(segments)))


@pytest.mark.parametrize("mode", MODES)
def test_every_trained_token_is_traced_to_the_completion_that_holds_it(mode: str) -> None:
    """What the engine answered, in the order of the calls, is what is found in the order of the tokens."""
    engine = scripted([walk("Right"), walk("Left")] * 6)
    found: dict[tuple[int | None, int | None], list[int]] = {}
    for sample in rollout(mode, [], engine):
        for t in np.flatnonzero(sample.mask).tolist():
            origin = trace(sample, t)
            ids = found.setdefault((origin.turn, origin.summary), [])
            assert len(ids) == origin.position
            ids.append(int(sample.ids[t]))
    answered = [request.completion.ids for request in engine.requests if request.completion is not None]
    if mode == "summaries not trained":
        answered = [ids for ids, request in zip(answered, engine.requests, strict=True) if request.sampling.stop_texts]
    assert [tuple(ids) for ids in found.values()] == answered


def test_summaries_that_are_not_trained_are_not_traced() -> None:
    trained, untrained = (rollout(mode, [walk("Left")] * 12) for mode in ("summaries trained", "summaries not trained"))
    summary = untrained[0].trajectory.summaries[0]
    assert trace(trained[0], summary.start).summary == 0
    with pytest.raises(ValueError, match="is not trained"):
        trace(untrained[0], summary.start)


def test_a_summary_is_refused_by_name() -> None:
    samples = rollout("summaries trained", [walk("Left")] * 12)
    trajectory = samples[0].trajectory
    spoiled = replace(trajectory.summaries[0], digest="0" * 16)
    trajectory = replace(trajectory, summaries=(spoiled, *trajectory.summaries[1:]))
    spoiled_samples = [replace(s, trajectory=trajectory) for s in samples if s.trajectory.key == trajectory.key]
    with pytest.raises(TrainingError, match=f"corridor group 0 member 0 .*, summary 1: {DIGEST}"):
        verify(spoiled_samples)


def test_a_completion_is_trained_once_and_none_of_a_trajectory_is_left_out() -> None:
    samples = rollout("window", [walk("Left")] * 12)
    assert len(samples) > 2
    with pytest.raises(TrainingError, match=r"segment 1: comes 2 times instead of 1"):
        verify([*samples, samples[0]])
    with pytest.raises(TrainingError, match=r"segment \d: comes 0 times instead of 1"):
        verify(samples[1:])


def test_an_advantage_that_is_no_number_is_refused() -> None:
    first, *others = rollout("full", [walk("Left")] * 12)
    with pytest.raises(TrainingError, match="segment 1: an advantage is not a finite number"):
        verify([replace(first, advantages=np.full_like(first.advantages, np.nan)), *others])


def test_what_was_written_to_a_rollout_file_still_passes(tmp_path: Path) -> None:
    samples = rollout("window", [walk("Left")] * 12)
    path = tmp_path / "rollout.parquet"
    write_rollout(path, [Group(trajectories=(samples[0].trajectory,))])
    (row,) = read_rollout(path)
    verify(samples_of(row.trajectory))


@pytest.mark.parametrize("field", ["predictor_M", "target_M"])
def test_a_pack_that_would_train_a_token_on_its_neighbour_is_refused(field: str) -> None:
    samples = [*rollout("full", [walk("Left")] * 12), *rollout("window", [walk("Left")] * 12)]
    for part in pack(samples, max_tokens=64, device="cpu"):
        verify_pack(part)
        with pytest.raises(TrainingError, match="is packed with other tokens than it has"):
            verify_pack(replace(part, **{field: getattr(part, field).roll(1)}))


@pytest.mark.parametrize("returns", [(0.0, 1.0), (1.0, 1.0)])
def test_where_log_probs_are_missing_that_is_the_fault_named_whatever_the_returns(returns: tuple[float, float]) -> None:
    """bug-log row 97: elsewhere a batch without log-probs was said to have equal rewards."""
    members = [make_sample([1, 2], [7, 8], rewards=[each], group=3, member=member) for member, each in enumerate(returns)]
    without = replace(members[0].tokens)
    object.__setattr__(without, "logprobs", np.zeros(0, dtype=np.float32))
    bare = replace(members[0], trajectory=replace(members[0].trajectory, segments=(without,)))
    with pytest.raises(TrainingError, match=r"member 0 .*found 4 ids, 4 mask, 0 logprobs, 4 advantages"):
        verify([bare, members[1]])
    verify(members)  # equal returns are no fault of the batch; a metric says so
    metrics = rollout_metrics([Group(trajectories=tuple(sample.trajectory for sample in members))], seconds=1.0)
    assert metrics["rollout/zero_spread_frac"] == (returns[0] == returns[1])
