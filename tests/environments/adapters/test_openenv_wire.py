"""What counts as a message of the OpenEnv protocol."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.adapters.openenv_wire import decode, encode, is_loopback, parse_object

# Bug-log row 46: what a model writes as JSON is cut, of another type, out of range or ambiguous.
BROKEN = [
    ('{"a": "cut in the midd', "Unterminated string"),
    ("[1, 2]", "a JSON object is expected, not a list"),
    ("null", "not null"),
    ('"text"', "not a text"),
    ("3", "not a number"),
    ("true", "not true or false"),
    ("", "Expecting value"),
    ('{"a": 1e400}', "a number is too large"),
    ('{"a": ' + "9" * 5000 + "}", "a number is too large"),
    ('{"a": NaN}', "NaN is no JSON number"),
    ('{"a": 1, "a": 2}', "a key occurs twice"),
    ('{"b": {"a": 1, "a": 2}}', "a key occurs twice"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a": ' * 100_000, "nested too deeply"),
    ("{'a': 1}", "Expecting property name"),
    ('{"a": 1} and more', "Extra data"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_broken_json_is_named_in_one_short_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_object(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.text() | st.binary())
def test_whatever_comes_is_an_object_or_a_value_error(text: str | bytes) -> None:
    with suppress(ValueError):
        assert isinstance(parse_object(text), dict)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(), max_size=3))
def test_a_message_comes_back_as_it_was_sent(data: dict[str, Any]) -> None:
    """Lone halves of surrogate pairs too: a model's text may hold one."""
    assert decode(encode("step", data)) == ("step", data)


def test_a_message_without_data_has_no_such_key() -> None:
    assert encode("close") == '{"type": "close"}'
    assert decode('{"type": "state"}') == ("state", {})
    for text in ("{}", '{"type": 3}', '{"type": "step", "data": []}', '{"type": "step", "data": null}'):
        with pytest.raises(ValueError, match="a message needs a 'type'"):
            decode(text)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_which_addresses_are_this_machine_s_own(host: str, local: bool) -> None:
    assert is_loopback(host) is local
