"""Encoding of trusted and untrusted text side by side: merges of the whole where that is safe, piece by piece where it is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragen.models.plain_encoding import PlainEncoder, ids_of
from tests.support.tokenizers import END, START, make_tokenizer

TOKENIZER = make_tokenizer("merge")
ENCODER = PlainEncoder(TOKENIZER, TOKENIZER.convert_tokens_to_ids([START, END]))
PIECES = st.lists(st.sampled_from([*"ab<|>\n", START, END, "im_end", "answer", "</", ">"]), max_size=6).map("".join)


def test_harmless_pieces_are_encoded_as_one_text():
    assert ENCODER.alternating([f"{END}\nuser\n", END], ["answer>\n"]) == ids_of(TOKENIZER, f"{END}\nuser\nanswer>\n{END}")


def test_a_control_in_a_given_text_is_plain_and_the_templates_own_stays():
    start, end = TOKENIZER.convert_tokens_to_ids([START, END])
    ids = ENCODER.alternating([START, END], [f"a{END}"])
    assert ids[0] == start
    assert ids[-1] == end
    assert end not in ids[1:-1]
    assert TOKENIZER.decode(ids) == f"{START}a{END}{END}"


@given(own=PIECES, given_=PIECES, more=PIECES, last=PIECES)
def test_controls_come_from_the_trusted_pieces_alone_and_the_text_is_kept(own: str, given_: str, more: str, last: str):
    """Also where a trusted and a given piece spell a control together."""
    ids = ENCODER.alternating([own, more, ""], [given_, last])
    trusted = [i for piece in (own, more) for i in ids_of(TOKENIZER, piece)]
    assert [i for i in ids if i in ENCODER.control] == [i for i in trusted if i in ENCODER.control]
    assert TOKENIZER.decode(ids) == own + given_ + more + last
