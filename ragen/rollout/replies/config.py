"""What a person may set about replies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragen.errors import ConfigError, near_match
from ragen.rollout.replies.format import ReplyFormat
from ragen.rollout.replies.grammar import Envelope, Grammar
from ragen.rollout.replies.tool_calls import TOOL_FORMATS

_TAG_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_OFF = "none"


@dataclass(kw_only=True)
class ReplyConfig:
    """How the model has to answer."""

    think: bool = True  # replies are <think>..</think><answer>..</answer>; false: the answer block alone
    reply_prefix: bool = True  # the prompt ends inside the first tag, so that a reply starts with the thought itself
    action_separator: str = "||"  # between the actions of one answer
    grammar: str = "strict"  # strict, lenient (plays what leaves no doubt) or raw (no tags, the whole reply is the answer)
    tools: str = _OFF  # actions as tool calls: json (in the answer block), or as hermes, llama3 or mistral write them
    parser: str = ""  # "module:function" that reads the answer, in place of separator and tools
    think_tag: str = "think"  # the word in the thought's tags
    answer_tag: str = "answer"  # the word in the answer's tags

    def check_replies(self, where: str) -> None:
        """Raise ConfigError, beginning with `where` and a field, for a value out of range or without effect."""
        separator = self.action_separator
        if not separator.strip() or not separator.isprintable() or "<" in separator or ">" in separator:
            raise ConfigError(f"{where}.action_separator={separator!r}: must be visible text without '<' and '>'")
        for key, known in (("grammar", tuple(map(str, Grammar))), ("tools", (_OFF, *TOOL_FORMATS))):
            value = getattr(self, key)
            if value not in known:
                raise ConfigError(f"{where}.{key}={value!r}: must be one of {', '.join(known)}{near_match(value, known)}")
        self._check_tags(where)
        if self.grammar == Grammar.RAW and self.think:
            raise ConfigError(f"{where}.think=true: {where}.grammar=raw has no tags, so no thoughts; set {where}.think=false")
        if self.parser and self.tools != _OFF:
            raise ConfigError(f"{where}.parser={self.parser!r}: has no effect beside {where}.tools={self.tools}; set one of them")
        if self.grammar == Grammar.RAW and self.tools not in (_OFF, "json"):
            raise ConfigError(
                f"{where}.grammar=raw: {where}.tools={self.tools} has marks of its own; set {where}.grammar=strict or lenient"
            )
        self.reply_format(max_actions=1)

    def reply_format(self, max_actions: int) -> ReplyFormat:
        """The format that these settings describe. Raises ConfigError for a parser that cannot be used."""
        return ReplyFormat(
            think=self.think,
            action_separator=self.action_separator,
            reply_prefix=self.reply_prefix,
            max_actions=max_actions,
            grammar=self.grammar,
            think_tag=self.think_tag,
            answer_tag=self.answer_tag,
            tools="" if self.tools == _OFF else self.tools,
            parser=self.parser,
        )

    def _check_tags(self, where: str) -> None:
        for key in ("think_tag", "answer_tag"):
            if not _TAG_NAME.fullmatch(getattr(self, key)):
                raise ConfigError(
                    f"{where}.{key}={getattr(self, key)!r}: must be small letters, digits, '_' and '-', and begin with a letter"
                )
        native = self.tools != _OFF and TOOL_FORMATS[self.tools].envelope is not Envelope.BLOCK
        if self.answer_tag != "answer" and (native or self.grammar == Grammar.RAW):
            setting = f"tools={self.tools}" if native else "grammar=raw"
            raise ConfigError(f"{where}.answer_tag={self.answer_tag!r}: has no effect beside {where}.{setting}")
        if self.think_tag != "think" and self.grammar == Grammar.RAW:
            raise ConfigError(f"{where}.think_tag={self.think_tag!r}: has no effect beside {where}.grammar=raw")
        block = TOOL_FORMATS[self.tools].block if native else self.answer_tag
        if self.think_tag == block:
            raise ConfigError(f"{where}.think_tag={self.think_tag!r}: must differ from the tag of the answer")
