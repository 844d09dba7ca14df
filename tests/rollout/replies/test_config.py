"""Settings of replies: what is refused before anything runs, in words that say what to do."""

from __future__ import annotations

import re

import pytest

from ragen.errors import ConfigError
from ragen.rollout.replies import ReplyConfig, ReplyFormat

HERE = "rollout.context"


def test_the_defaults_are_those_of_the_format() -> None:
    config = ReplyConfig()
    config.check_replies(HERE)
    assert config.reply_format(max_actions=3) == ReplyFormat(max_actions=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"grammar": "raw", "think": False},
        {"grammar": "raw", "think": False, "tools": "json"},
        {"grammar": "lenient", "tools": "hermes", "think_tag": "plan"},
        {"think_tag": "plan", "answer_tag": "move-2"},
    ],
)
def test_what_goes_together_is_let_through(settings: dict[str, object]) -> None:
    config = ReplyConfig(**settings)  # type: ignore[arg-type]
    config.check_replies(HERE)
    assert config.reply_format(max_actions=1).grammar == settings.get("grammar", "strict")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action_separator": " "}, "action_separator=' ': must be visible text without '<' and '>'"),
        ({"action_separator": "<>"}, "action_separator='<>': must be visible text without '<' and '>'"),
        ({"action_separator": "\n"}, "action_separator='\\n': must be visible text without '<' and '>'"),
        ({"grammar": "lenent"}, "grammar='lenent': must be one of strict, lenient, raw; did you mean 'lenient'?"),
        ({"tools": "native"}, "tools='native': must be one of none, json, hermes, llama3, mistral"),
        ({"tools": ""}, "tools='': must be one of none, json, hermes, llama3, mistral"),
        (
            {"grammar": "raw"},
            "think=true: rollout.context.grammar=raw has no tags, so no thoughts; set rollout.context.think=false",
        ),
        (
            {"grammar": "raw", "think": False, "tools": "hermes"},
            "grammar=raw: rollout.context.tools=hermes has marks of its own; set rollout.context.grammar=strict or lenient",
        ),
        (
            {"parser": "m:f", "tools": "json"},
            "parser='m:f': has no effect beside rollout.context.tools=json; set one of them",
        ),
        ({"parser": "m"}, "parser='m': must be 'module:function'"),
        (
            {"think_tag": "Think"},
            "think_tag='Think': must be small letters, digits, '_' and '-', and begin with a letter",
        ),
        ({"answer_tag": ""}, "answer_tag='': must be small letters, digits, '_' and '-', and begin with a letter"),
        ({"think_tag": "answer"}, "think_tag='answer': must differ from the tag of the answer"),
        ({"think_tag": "tool_call", "tools": "hermes"}, "think_tag='tool_call': must differ from the tag of the answer"),
        ({"answer_tag": "move", "tools": "llama3"}, "answer_tag='move': has no effect beside rollout.context.tools=llama3"),
        (
            {"answer_tag": "move", "grammar": "raw", "think": False},
            "answer_tag='move': has no effect beside rollout.context.grammar=raw",
        ),
        (
            {"think_tag": "plan", "grammar": "raw", "think": False},
            "think_tag='plan': has no effect beside rollout.context.grammar=raw",
        ),
    ],
    ids=lambda value: " ".join(f"{key}={it}" for key, it in value.items()) if isinstance(value, dict) else "",
)
def test_what_does_not_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{HERE}.{message}')}$"):
        ReplyConfig(**settings).check_replies(HERE)  # type: ignore[arg-type]
