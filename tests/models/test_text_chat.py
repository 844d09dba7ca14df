"""The chat of a policy without tokenizer: text in, pieces, the same text out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragen.models.text_chat import TextChat, num_pieces
from ragen.records import ChatMessage

TEXTS = st.text(max_size=60)


@given(TEXTS)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    chat = TextChat()
    assert chat.decode(chat.encode_text(text)) == text


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=4), TEXTS)
def test_a_prompt_spells_its_messages_and_the_beginning_of_the_reply(turns: list[tuple[str, str]], prefix: str) -> None:
    chat = TextChat()
    messages = [{"role": role, "content": content} for role, content in turns]
    expected = [
        *(ChatMessage(role=role, content=content) for role, content in turns),
        ChatMessage(role="assistant", content=prefix),
    ]
    assert chat.messages(chat.prompt(messages, reply_prefix=prefix)) == expected


def test_a_prompt_grows_by_a_reply_and_the_next_message() -> None:
    chat = TextChat()
    begun = chat.prompt([{"role": "user", "content": "Where?"}], reply_prefix="<think>")
    grown = [*begun, *chat.encode_text("I go</think>"), *chat.append_user("There.", last_id=None, reply_prefix="<think>")]
    assert [message.content for message in chat.messages(grown)] == ["Where?", "<think>I go</think>", "There.", "<think>"]


def test_every_id_is_below_the_one_that_stands_for_an_unknown_token() -> None:
    chat = TextChat()
    assert max(chat.prompt([{"role": "system", "content": "a"}, {"role": "user", "content": "b 12"}])) < -1


def test_pieces_are_words_numbers_and_signs() -> None:
    """Counted by hand: Move| 12| steps|!|\\n|#|_|P, and a long word in two."""
    assert num_pieces("Move 12 steps!\n#_P") == 8
    assert num_pieces("extraordinary") == 2
