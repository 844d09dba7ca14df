"""Faults that other frameworks shipped, planted one by one in the context manager: the check that every conversation passes must
catch each of them. Faults of the chat template itself are planted in tests/models/test_chat_mutations.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from ragen.records import ChatMessage, Completion, Observation, Sample, Sampling, Segment
from ragen.rollout import transcript
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.history import History
from ragen.rollout.memory import Message
from ragen.rollout.transcript import Span, Transcript, _Growing
from tests.support.contexts import assert_exact, assert_sound, play, subject
from tests.support.tokenizers import CHATML, T_BOS, T_DEFSYS, T_STRIP, Kind, chunks, make_tokenizer

SUBJECTS: list[tuple[Kind, str]] = [("merge", CHATML), ("pad", T_DEFSYS), ("bos", T_BOS), ("plain", T_STRIP)]
MODES: list[dict[str, Any]] = [
    {},
    {"mode": "window", "window": 2},
    {"mode": "single_turn"},
    {"overflow": "drop", "max_context_tokens": 620},
    {"overflow": "summarise", "max_context_tokens": 900},
    {"overflow": "summarise", "summarise_every": 2, "train_summaries": False},
]
SEEN = [Observation(text=f"P _ G {turn}", reward=-0.1, executed=("Left",), actions_left=9 - turn) for turn in range(4)]


def check() -> None:
    """Replies as no encoder would write them: one id a byte, with and without an end of turn, cut, and empty."""
    for kind, template in SUBJECTS:
        over = subject(kind, template)
        end = over.chat.end_of_turn_id
        assert end is not None
        said = [*chunks(over.tokenizer, "hello</think>"), *chunks(over.tokenizer, "<answer>Left</answer>")]
        replies: list[list[int]] = [[*said, end], said, [], [*said, *said, *said], [*said, end]]

        def script(prompt_ids: Sequence[int], sampling: Sampling, replies: Sequence[Sequence[int]] = replies) -> Sequence[int]:
            return replies[sampling.seed[-1] % len(replies)]

        for mode in MODES:
            played = play(script, SEEN, over, **mode)
            assert_sound(played)
            assert_exact(played)


def test_the_check_passes_without_a_fault() -> None:
    check()


Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def reencoded_reply(patch: Patch) -> None:
    """bug-log row 1: what is kept of a reply is its text."""
    right = ContextManager.reply

    def reply(self: ContextManager, completion: Completion) -> object:
        ids = self._template.encode_text(self._template.decode(completion.ids))
        logprobs = (*completion.logprobs, *(0.0,) * len(ids))[: len(ids)]
        return right(self, replace(completion, ids=tuple(ids), logprobs=logprobs))

    patch.setattr(ContextManager, "reply", reply)


def ids_that_shrink_alone(patch: Patch) -> None:
    """bug-log row 2: mask and log-probs only ever grow."""

    def sampled(self: Transcript, completion: Completion) -> Span:
        start, last = self.length, self._segments[-1]
        self._append(completion.ids[:-1], [True] * len(completion.ids), completion.logprobs)
        last.stop = self.length
        return Span(segment=len(self._segments) - 1, start=start, stop=self.length, digest="")

    patch.setattr(Transcript, "sampled", sampled)


def end_of_turn_twice(patch: Patch) -> None:
    """bug-log row 3: what the template writes behind a reply is appended whole, although the reply ended its turn itself."""
    patch.setattr(Transcript, "last_sampled_id", None)


def end_of_turn_lost(patch: Patch) -> None:
    """bug-log row 3: it is left out behind every reply, although some did not end their turn."""
    end = {subject(*odd).chat.end_of_turn_id for odd in SUBJECTS}
    patch.setattr(Transcript, "last_sampled_id", property(lambda self: next(i for i in end if i in self.ids)))


def prompt_without_system(patch: Patch) -> None:
    """bug-log row 4: a prompt that begins anew is a chat of its own, to which the template adds a system message."""
    patch.setattr(History, "render", lambda self, messages, prefix="": self._template.prompt(list(messages), reply_prefix=prefix))


def appended_what_was_forgotten(patch: Patch) -> None:
    """bug-log row 5: the memory shows less than before, or the template would, and the next message is appended all the same."""
    patch.setattr(History, "_goes_on", lambda self, view: len(self._exchanges) > 1)


def one_training_row_for_all(patch: Patch) -> None:
    """bug-log row 6: the row that is trained is made of what was said, not of what was seen."""

    def segments(self: Transcript) -> tuple[Segment, ...]:
        whole = [each.up_to_last_completion() for each in self._segments]
        fields = {name: np.concatenate([getattr(each, name) for each in whole]) for name in ("ids", "mask", "logprobs")}
        return (Segment(**fields),) * len(whole)

    patch.setattr(Transcript, "segments", segments)


def on_every_segment(patch: Patch, change: Callable[[Segment], Segment]) -> None:
    right = _Growing.up_to_last_completion
    patch.setattr(_Growing, "up_to_last_completion", lambda self: change(right(self)))


def inverted_mask(patch: Patch) -> None:
    """bug-log row 7."""
    on_every_segment(patch, lambda segment: replace(segment, mask=~segment.mask))


def header_trained(patch: Patch) -> None:
    """bug-log row 8: the id before a reply is trained with it."""
    on_every_segment(patch, lambda s: replace(s, mask=s.mask | np.append(s.mask[1:], False)))


def newline_trained(patch: Patch) -> None:
    """bug-log row 8: so is the one behind it."""
    on_every_segment(patch, lambda s: replace(s, mask=s.mask | np.append(False, s.mask[:-1])))


def earlier_replies_trained_again(patch: Patch) -> None:
    """bug-log row 8: mask by role, in a prompt that shows earlier replies."""
    right = Transcript.restart

    def restart(self: Transcript, ids: Sequence[int], prompt: Sequence[ChatMessage] = ()) -> None:
        right(self, ids, prompt)
        if len(self._segments) > 1:
            self._segments[-1].mask = [True] * len(ids)

    patch.setattr(Transcript, "restart", restart)


def trained_to_the_end(patch: Patch) -> None:
    """bug-log row 9: all that follows the prompt counts as the reply."""
    mask = cached_property(lambda self: np.arange(len(self.ids)) >= self.prompt_length)
    on_samples(patch, mask)


def trained_unless_padding(patch: Patch) -> None:
    """bug-log row 10: mask by the pad id, which is the end of turn."""
    pad = make_tokenizer("pad").pad_token_id
    on_samples(patch, cached_property(lambda self: self.tokens.mask & (self.ids != pad)))


def on_samples(patch: Patch, mask: cached_property[Any]) -> None:
    mask.__set_name__(Sample, "mask")
    patch.setattr(Sample, "mask", mask)


def on_every_restart(patch: Patch, change: Callable[[Sequence[int]], Sequence[int]]) -> None:
    right = Transcript.restart
    patch.setattr(Transcript, "restart", lambda self, ids, prompt=(): right(self, change(ids), prompt))


def no_bos(patch: Patch) -> None:
    """bug-log row 11."""
    bos = make_tokenizer("bos").bos_token_id
    on_every_restart(patch, lambda ids: [i for i in ids if i != bos])


def second_bos(patch: Patch) -> None:
    """bug-log row 12."""
    bos = make_tokenizer("bos").bos_token_id
    on_every_restart(patch, lambda ids: [bos, *ids] if bos in ids else ids)


def nothing_trained(patch: Patch) -> None:
    """bug-log row 14: an empty mask."""
    on_every_segment(patch, lambda segment: replace(segment, mask=np.zeros_like(segment.mask)))


def rules_cut_off(patch: Patch) -> None:
    """bug-log row 15: the row that is trained has lost its first ids, although the engine saw them."""
    on_every_segment(patch, lambda s: replace(s, ids=s.ids[5:], mask=s.mask[5:], logprobs=s.logprobs[5:]))


def prompt_cut_to_fit(patch: Patch) -> None:
    """bug-log row 15: a prompt that is too long is cut from the left, and the engine is asked."""

    def cut(self: History, view: list[Message]) -> int:
        room = self._config.max_context_tokens - self.needed
        self.transcript.restart(self.render(view, self._format.prefix)[-room:])
        return 0

    patch.setattr(History, "_try", cut)


def choice_ignored(patch: Patch) -> None:
    """bug-log row 16: what says that a summary is not to be trained is not read."""
    on_samples(patch, cached_property(lambda self: self.tokens.mask))


def logprobs_of_others(patch: Patch) -> None:
    """bug-log row 16: log-probs stand where nothing was sampled."""
    on_every_segment(patch, lambda segment: replace(segment, logprobs=segment.logprobs - 9))


def no_room_kept(patch: Patch) -> None:
    """bug-log rows 53, 54: only the prompt is counted."""
    patch.setattr(History, "needed", property(lambda self: 0, lambda self, tokens: None), raising=False)


def no_room_for_a_summary(patch: Patch) -> None:
    """bug-log row 53: a reply fits, but not the request for a summary behind it."""
    patch.setattr(History, "_summary_room", lambda self: 0)


def segment_lost(patch: Patch) -> None:
    """What was sampled before a restart is gone."""
    right = Transcript.restart

    def restart(self: Transcript, ids: Sequence[int], prompt: Sequence[ChatMessage] = ()) -> None:
        self._segments[-1].stop = None
        right(self, ids, prompt)

    patch.setattr(Transcript, "restart", restart)


def one_stream_for_two(patch: Patch) -> None:
    """A summary is drawn with the random numbers of the next reply."""
    right = ContextManager.sampling

    def sampling(self: ContextManager, given: Sampling, key: Any) -> Sampling:
        request = right(self, given, key)
        return replace(request, seed=(*request.seed[:-1], self.num_turns))

    patch.setattr(ContextManager, "sampling", sampling)


def digest_of_nothing(patch: Patch) -> None:
    """What is trained could not be told from what was sampled."""
    patch.setattr(transcript, "digest_of", lambda ids, logprobs: "0" * 16)


@pytest.mark.parametrize(
    "fault",
    [
        *(reencoded_reply, ids_that_shrink_alone, end_of_turn_twice, end_of_turn_lost, prompt_without_system),
        *(appended_what_was_forgotten, one_training_row_for_all, inverted_mask, header_trained, newline_trained),
        *(earlier_replies_trained_again, trained_to_the_end, trained_unless_padding, no_bos, second_bos, nothing_trained),
        *(rules_cut_off, prompt_cut_to_fit, choice_ignored, logprobs_of_others, no_room_kept, no_room_for_a_summary),
        *(segment_lost, one_stream_for_two, digest_of_nothing),
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """bug-log rows 1 to 12, 14, 15, 16, 53 and 54."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check()
