"""What counts as a secret, and that it is blotted out wherever it stands. Canaries, not real keys."""

from __future__ import annotations

import pytest

from ragen.errors import EnvironmentFailure, boundary
from ragen.redaction import is_secret_setting, redact
from ragen.rollout.episode import reason

CANARY = "canary-4f1c9b"


@pytest.mark.parametrize("name", ["api_key", "apikey", "openai_api_key", "token", "auth_token", "client_secret", "password"])
def test_settings_whose_name_says_so(name: str) -> None:
    assert is_secret_setting(name)


@pytest.mark.parametrize("name", ["max_new_tokens", "token_env", "success_key", "stop_token", "passwords", "monkey"])
def test_settings_whose_name_only_looks_so(name: str) -> None:
    assert not is_secret_setting(name)


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET", "PGPASSWORD_PASSWD", "key", "MY_KEY"])
def test_variables_whose_name_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, CANARY)
    assert redact(CANARY) == "***"


@pytest.mark.parametrize("name", ["PATH_TO_IT", "TOKENIZERS_PARALLELISM", "monkey"])
def test_variables_whose_name_only_looks_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, CANARY)
    assert redact(CANARY) == CANARY


def test_values_of_such_variables_are_blotted_out_the_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    monkeypatch.setenv("OTHER_TOKEN", CANARY + "-and-more")
    assert redact(f"401 for {CANARY}-and-more, then {CANARY}!") == "401 for ***, then ***!"


def test_short_values_are_words_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "true")
    assert redact("is it true") == "is it true"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ws://user:hush@host:80/ws failed", "ws://user:***@host:80/ws failed"),
        ("https://:hush@host", "https://:***@host"),
        ("http://host:8000/a@b", "http://host:8000/a@b"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_the_password_of_an_address_is_blotted_out(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_outside_code_that_raises_with_a_key_does_not_pass_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where outside failures become ours: at every boundary, and in what an environment raised."""
    monkeypatch.setenv("HF_TOKEN", CANARY)
    with pytest.raises(EnvironmentFailure, match=r"^there: ValueError: refused: \*\*\*$"), boundary(EnvironmentFailure, "there"):
        raise ValueError(f"refused: {CANARY}")
    assert reason(ValueError(f"refused: {CANARY}")) == "ValueError: refused: ***"
