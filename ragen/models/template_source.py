"""What the source of a chat template tells: its options, the words it looks for in messages, whether it writes the day.

Read from the syntax tree, not by rendering: a rendering shows what a template does with one chat, the source what it could do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

DAY = date(2025, 1, 1)
"""The day that templates write which ask for today's: a run that goes on tomorrow must go on with the same prompts."""

# What every template is given; whatever else it asks for is an option of its own.
_GIVEN = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"}
_SEARCHES = {
    *("split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix"),
    *("find", "rfind", "index", "rindex", "count", "replace"),
}
_GENERATION = re.compile(r"{%[-+]?\s*(?:end)?generation\s*[-+]?%}")  # marks trained text; an extension of transformers
_SWITCH = re.compile(r"(enable_)?(thinking|reasoning)")


@dataclass(frozen=True, kw_only=True)
class TemplateSource:
    """A chat template, read."""

    text: str  # to be rendered; today is `DAY`
    options: tuple[str, ...]  # variables that a caller may set
    words: tuple[str, ...]  # texts it looks for in messages, such as "</think>", longest first
    writes_day: bool  # today's date stands in the prompt
    takes_tools: bool  # it looks at `tools`

    @property
    def think_switch(self) -> str | None:
        """The option that turns thinking on and off, true or false; None if there is none."""
        return next((name for name in self.options if _SWITCH.fullmatch(name)), None)


def read_source(text: str) -> TemplateSource:
    """Raises jinja2.TemplateSyntaxError if `text` is no template."""
    environment = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"])
    tree = environment.parse(_GENERATION.sub("", text))
    undeclared = meta.find_undeclared_variables(tree)
    formats = [call.args[0] for call in tree.find_all(nodes.Call) if _calls(call, "strftime_now") and call.args]
    words = {word for word in _sought(tree) if word.strip()}
    return TemplateSource(
        text=_on_a_fixed_day(text, [node.value for node in formats if isinstance(node, nodes.Const)]),
        options=tuple(sorted(_options(tree, undeclared))),
        words=tuple(sorted(words, key=lambda word: (-len(word), word))),
        writes_day=bool(formats),
        takes_tools="tools" in undeclared,
    )


def _options(tree: nodes.Template, undeclared: set[str]) -> set[str]:
    """Variables that the template only reads, or sets only after it has asked whether the caller did."""
    own = set(_own(tree, frozenset()))
    return {name for name in undeclared - _GIVEN - own if not name.endswith("_token")}


def _own(node: nodes.Node, asked: frozenset[str]) -> Iterator[str]:
    """Names that are set although nobody `asked` for their definition, as in `if x is not defined` or `x | default(1)`."""
    if isinstance(node, nodes.Assign):
        asked |= _asked(node.node)
    for name in node.find_all(nodes.Name) if isinstance(node, nodes.Assign | nodes.For) else ():
        if name.ctx == "store" and name.name not in asked:
            yield name.name
    if isinstance(node, nodes.If):
        asked |= _asked(node.test)
    for child in node.iter_child_nodes():
        yield from _own(child, asked)


def _asked(node: nodes.Node) -> set[str]:
    tests = [test.node for test in (node, *node.find_all(nodes.Test)) if isinstance(test, nodes.Test) and "defined" in test.name]
    defaults = [
        f.node for f in (node, *node.find_all(nodes.Filter)) if isinstance(f, nodes.Filter) and f.name in ("default", "d")
    ]
    return {name.name for name in (*tests, *defaults) if isinstance(name, nodes.Name)}


def _sought(tree: nodes.Template) -> Iterator[str]:
    """Constants that texts are searched for, split at, or compared with at one end."""
    constants = {
        node.target.name: node.node
        for node in tree.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name) and isinstance(node.node, nodes.Const)
    }
    sought: list[nodes.Node] = []
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in _SEARCHES:
            sought += call.args[:1]
    for filter_ in tree.find_all(nodes.Filter):
        if filter_.name == "replace":
            sought += filter_.args[:1]
    for comparison in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in comparison.ops):
            sought.append(comparison.expr)
    for node in sought:
        constant = constants.get(node.name) if isinstance(node, nodes.Name) else node
        if isinstance(constant, nodes.Const) and isinstance(constant.value, str):
            yield constant.value


def _calls(call: nodes.Call, name: str) -> bool:
    return isinstance(call.node, nodes.Name) and call.node.name == name


def _on_a_fixed_day(text: str, formats: list[str]) -> str:
    """`text` with an answer of its own for every format in which it asks for the day."""
    if not formats:
        return text
    answers = {format_: DAY.strftime(format_) for format_ in formats}
    # The empty output at the end keeps jinja from eating a newline with which the template may begin.
    return f"{{%- macro strftime_now(format) -%}}{{{{ {answers!r}[format] }}}}{{%- endmacro %}}{{{{ '' }}}}{text}"
