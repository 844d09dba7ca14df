from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from ragen.engines.stopping import StopMatcher, token_bytes
from tests.support.models import tiny_tokenizer

PIECES = [b"</", b"answer", b">", b"ok", b"okay", b" ", b"o", b"k", b"ay", "é".encode()[:1], "é".encode()[1:]]


def pieces(token_id: int) -> bytes:
    return PIECES[token_id]


def stopped_at(ids: list[int], stop_ids: tuple[int, ...] = (), stop_texts: tuple[str, ...] = ()) -> int | None:
    """Index of the id at which sampling stops."""
    matcher = StopMatcher(pieces, stop_ids, stop_texts)
    return next((i for i, token_id in enumerate(ids) if matcher.push(token_id)), None)


def test_a_stop_text_split_over_three_tokens_is_found_at_the_last() -> None:
    """Bug-log row 60."""
    assert stopped_at([5, 0, 1, 2, 5], stop_texts=("</answer>",)) == 3


def test_a_stop_text_that_ends_inside_a_larger_token_is_found() -> None:
    """Bug-log row 60: stop text `ok`, next token `okay`."""
    assert stopped_at([5, 4], stop_texts=("ok",)) == 1


def test_a_stop_text_that_begins_inside_a_token_is_found() -> None:
    assert stopped_at([4, 6, 7], stop_texts=("ayok",)) == 2


def test_a_reply_that_is_begun_again_knows_nothing_of_what_was_sampled_before() -> None:
    matcher = StopMatcher(pieces, (), ("</answer>",))
    assert not any(map(matcher.push, (5, 0, 1)))
    matcher.restart()
    assert not matcher.push(2)
    assert [matcher.push(token_id) for token_id in (0, 1, 2)] == [False, False, True]


def test_what_stands_in_the_prompt_does_not_stop_the_reply() -> None:
    """Bug-log row 60: the prompt, which says `</answer`, is not shown to the matcher, so a lone `>` is just a character."""
    assert stopped_at([2, 5], stop_texts=("</answer>",)) is None


def test_a_stop_id_stops_whatever_text_it_has() -> None:
    assert stopped_at([5, 6, 5], stop_ids=(6,)) == 1


def test_a_near_miss_does_not_stop() -> None:
    assert stopped_at([0, 1, 5, 2, 0, 1, 0, 1], stop_texts=("</answer>",)) is None


def test_a_character_split_between_two_tokens_is_matched() -> None:
    assert stopped_at([9, 10], stop_texts=("é",)) == 1


def test_without_stops_nothing_stops() -> None:
    assert stopped_at([0, 1, 2]) is None


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(pieces, (), ("",))


@given(
    ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=12),
    stops=st.lists(st.text("ok</answer> ay", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple),
)
def test_it_stops_exactly_where_the_whole_text_first_contains_a_stop(ids: list[int], stops: tuple[str, ...]) -> None:
    joined = [b"".join(PIECES[i] for i in ids[: n + 1]) for n in range(len(ids))]
    expected = next((n for n, text in enumerate(joined) if any(stop.encode() in text for stop in stops)), None)
    assert stopped_at(ids, stop_texts=stops) == expected


TEXT = "Go <answer>Right || Up</answer>\n\n🧍 é naïve  </think> "


def test_bytes_of_a_byte_level_vocabulary_add_up_to_the_text() -> None:
    tokenizer = tiny_tokenizer()
    piece = token_bytes(tokenizer)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert len(ids) < len(TEXT.encode())  # some tokens hold several bytes
    assert b"".join(map(piece, ids)) == TEXT.encode()


def test_an_added_token_stands_for_its_written_form() -> None:
    tokenizer = tiny_tokenizer()
    assert token_bytes(tokenizer)(tokenizer.eos_token_id) == tokenizer.eos_token.encode()


def test_an_id_beyond_the_vocabulary_has_no_text() -> None:
    tokenizer = tiny_tokenizer()
    assert token_bytes(tokenizer)(len(tokenizer) + 5) == b""


def sentencepiece_like(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    """A leading space is written '▁' and a rare byte '<0xHH>'; the decoder drops the first space."""
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def test_bytes_of_a_byte_fallback_vocabulary_keep_leading_spaces_and_half_characters() -> None:
    vocabulary = ["<unk>", "▁ok", "ay", "<0x0A>", "<0xC3>", "<0xA9>", "▁"]
    piece = token_bytes(sentencepiece_like(vocabulary))
    assert [piece(i) for i in range(1, 7)] == [b" ok", b"ay", b"\n", b"\xc3", b"\xa9", b" "]
