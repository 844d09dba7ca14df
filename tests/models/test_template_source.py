"""What is read off a template's source, on sources of a line or two."""

from __future__ import annotations

import pytest
from jinja2 import TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ragen.models.template_source import DAY, read_source


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("{{ messages }}{{ tools }}{{ bos_token }}{{ raise_exception('x') }}", ()),
        ("{% if enable_thinking is defined and not enable_thinking %}x{% endif %}{{ effort }}", ("effort", "enable_thinking")),
        ("{% set keep = keep | default(false) %}{{ keep }}", ("keep",)),
        ("{% if not day is defined %}{% if x %}{% set day = 'May' %}{% endif %}{% endif %}{{ day }}", ("day", "x")),
        ("{% for m in messages %}{% set text = m %}{% endfor %}{% if text is defined %}{{ text }}{% endif %}", ()),
        ("{% generation %}{{ style }}{% endgeneration %}", ("style",)),
    ],
)
def test_options_are_the_variables_that_a_caller_may_set(text: str, options: tuple[str, ...]):
    assert read_source(text).options == options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ m.content.split('</think>')[-1].lstrip('\\n') }}", ("</think>",)),
        ("{% if '<think>' in m.content %}{% endif %}{% if m.content.endswith('/no') %}{% endif %}", ("<think>", "/no")),
        ("{{ m.content | replace('effort', 'strength') }}", ("effort",)),
        ("{% set tag = 'GO ON' %}{{ m.content.endswith(tag) }}{{ m.content.split('\\n') }}", ("GO ON",)),
        ("{% if m.role == 'user' %}{{ 'said: ' + m.content }}{% endif %}", ()),
    ],
)
def test_words_are_what_messages_are_searched_for(text: str, words: tuple[str, ...]):
    assert read_source(text).words == words


@pytest.mark.parametrize(
    ("option", "switch"),
    [("enable_thinking", "enable_thinking"), ("thinking", "thinking"), ("preserve_thinking", None), ("reasoning_effort", None)],
)
def test_a_think_switch_is_known_by_its_name(option: str, switch: str | None):
    assert read_source(f"{{{{ {option} }}}}").think_switch == switch


def test_the_day_is_the_same_on_any_day_in_every_format_and_inside_macros():
    """A run that is resumed tomorrow must go on with the prompts of today."""
    text = "\n{% macro m() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}{{ m() }} {{ strftime_now(\"%Y-%m-%d\") }}"
    source = read_source(text)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["strftime_now"] = "not to be called"
    assert source.writes_day
    assert environment.from_string(source.text).render() == f"\n{DAY:%d %b %Y} {DAY:%Y-%m-%d}"
    assert not read_source("{{ messages }}").writes_day
    assert read_source("{{ messages }}").text == "{{ messages }}"


def test_tools_are_taken_by_those_who_look_at_them():
    assert read_source("{% if tools %}{{ tools }}{% endif %}").takes_tools
    assert not read_source("{{ messages }}").takes_tools


def test_what_is_no_template_is_refused():
    with pytest.raises(TemplateSyntaxError):
        read_source("{% if %}")
