"""The reply format, once: the text that explains it to the model, the examples it shows, and the parser that reads it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragen.environments.spaces import resolve
from ragen.records import Reply, Verdict
from ragen.rollout.replies.feedback import feedback
from ragen.rollout.replies.grammar import Envelope, Fields, Grammar, Ruling, read_fields, ruling
from ragen.rollout.replies.lookalikes import looks_like
from ragen.rollout.replies.own_parser import OwnParser, load_parser
from ragen.rollout.replies.readers import ActionNames, Reader, Separated
from ragen.rollout.replies.tags import Tags
from ragen.rollout.replies.tool_calls import ACT, TOOL_FORMATS, ToolCalls

# One thought for every example: a small model copies, and a thought that stands beside one answer only would bring that answer
# along. The choice would follow the order in which the actions are named, whatever they are called.
_EXAMPLE_THOUGHT = "I guess which choice is better."


@dataclass(frozen=True, kw_only=True)
class ReplyFormat:
    """How a model has to answer: by default `<think>..</think><answer>..</answer>`, or the answer block alone.

    The grammar tells thought and answer apart; the answer is read as actions with `action_separator` between them, as tool calls
    (`tools`: a name in TOOL_FORMATS) or by a parser of one's own ("module:function"). With `reply_prefix` the prompt ends inside
    the first tag. What can be combined is `ReplyConfig.check`'s to say. Raises ConfigError for a parser that cannot be imported.
    """

    think: bool = True
    action_separator: str = "||"
    reply_prefix: bool = True
    max_actions: int = 1
    grammar: str = Grammar.STRICT
    think_tag: str = "think"
    answer_tag: str = "answer"
    tools: str = ""
    parser: str = ""

    def __post_init__(self) -> None:
        assert not (self.think and self.grammar == Grammar.RAW), "a raw reply has no tags, so no thought either"
        _ = self._reader  # a parser that cannot be imported is refused now

    @property
    def opening(self) -> str:
        """What a reply starts with; "" if nothing is fixed."""
        if self.think:
            return self._tags.spelt("t")
        return self._tags.spelt("a") if self._has_blocks else self._reader.marker

    @property
    def prefix(self) -> str:
        """What the prompt already says of the reply; no white space at its end, which would change how a reply is tokenised."""
        return self.opening if self.reply_prefix else ""

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that complete a reply."""
        one = self._envelope is Envelope.BLOCK or (self._envelope is Envelope.BLOCKS and self.max_actions == 1)
        return (self._tags.spelt("A"),) if one else ()

    @property
    def system(self) -> str:
        """System message: the format in one sentence."""
        words = self._words
        answer = f"your answer between {words['answer']} and {words['answer_end']}" if self._has_blocks else "your answer"
        if self.think:
            return (
                "You are a helpful assistant. You always reply by first putting your thoughts between"
                f" {words['think']} and {words['think_end']}, then {answer}."
            )
        return f"You are a helpful assistant. You always reply with {answer}, and nothing else."

    @property
    def reminder(self) -> str:
        """One line for the later turns."""
        return "Answer again with the answer alone." if self._shape == "..." else f"Answer again as {self._shape}."

    def instructions(self, action_names: ActionNames) -> str:
        """How to write the answer, with complete example replies that a small model can copy.

        What the actions mean, and which there are, is the environment's to say. `action_names` None: any text is an action.
        """
        said = self._reader.explain(self.max_actions, action_names)
        if isinstance(self._reader, OwnParser):
            return said
        examples = " or ".join(self._examples(list(action_names or ()), action_names))
        return f"{said} Example answer format: {examples}".lstrip()

    def render(self, thought: str, actions: Sequence[str], action_names: ActionNames = None) -> str:
        """The reply that `parse` reads as this thought and these actions. The names matter to tool calls only."""
        return self._wrap(thought, self._reader.write(actions, action_names))

    def parse(self, text: str, action_names: ActionNames = None, *, finished: bool = True) -> Reply:
        """Read a whole reply, prefix included; `finished` False if it was cut off before its end.

        A reply that the grammar refuses has no actions. Known names come out as the environment spells them (case does not
        matter), unknown ones as they are: the environment rejects those and plays the others. Of too many actions the first
        `max_actions` are kept. Only a parser of one's own can make this raise: ConfigError.
        """
        fields = self._fields(text, finished=finished)
        if self.ruling(fields.verdict) is Ruling.REFUSED:
            return Reply(text=text, thought="", actions=(), verdict=fields.verdict)
        parsed = self._reader.read(fields.answers, action_names)
        verdict = self._graver(fields.verdict, self._judge_answer(parsed.actions, parsed.verdict, finished=finished))
        refused = self.ruling(verdict) is Ruling.REFUSED
        kept = () if refused else tuple(resolve(a, action_names) or a for a in parsed.actions[: self.max_actions])
        if not refused:
            verdict = self._graver(verdict, self._judge_actions(parsed.actions, kept, action_names))
        return Reply(
            text=text,
            thought="" if refused else parsed.thought or fields.thought,
            actions=kept,
            verdict=verdict,
            feedback=parsed.feedback,
        )

    def ruling(self, verdict: Verdict) -> Ruling:
        """Whether a reply with this verdict is played, and whether it costs the format penalty."""
        return ruling(Grammar(self.grammar), verdict)

    def is_valid(self, verdict: Verdict) -> bool:
        """True if a reply with this verdict costs no format penalty."""
        return self.ruling(verdict) is Ruling.FREE

    def feedback(self, verdict: Verdict, unknown: Sequence[str]) -> str:
        """What the next message tells the model about a reply that was not valid; empty for a valid one."""
        if self.is_valid(verdict):
            return ""
        refused = self.ruling(verdict) is Ruling.REFUSED
        return feedback(verdict, refused=refused, words=self._words, max_actions=self.max_actions, unknown=unknown)

    def _fields(self, text: str, *, finished: bool) -> Fields:
        if text.strip() in ("", self.opening):
            return Fields(thought="", answers=(), verdict=Verdict.EMPTY)
        if self._envelope is Envelope.WHOLE:
            return Fields(thought="", answers=(text,), verdict=Verdict.VALID if finished else Verdict.TRUNCATED)
        return read_fields(self._tags.scan(text), think=self.think, envelope=self._envelope, finished=finished)

    def _judge_answer(self, actions: Sequence[str], verdict: Verdict, *, finished: bool) -> Verdict:
        """What is wrong with the answer as a whole."""
        if not finished and self._envelope is Envelope.REST and verdict in _UNFINISHED:
            return Verdict.TRUNCATED
        if self.ruling(verdict) is Ruling.REFUSED:
            return verdict
        spelt_out = self.tools and self._envelope is not Envelope.WHOLE
        if spelt_out and any(self._tags.scan(action).order for action in actions):
            return Verdict.NESTED  # JSON can spell a tag so that the reply does not show it
        return verdict if actions else Verdict.EMPTY

    def _judge_actions(self, actions: Sequence[str], kept: Sequence[str], names: ActionNames) -> Verdict:
        if len(actions) > self.max_actions:
            return Verdict.TOO_MANY_ACTIONS
        unknown = [action for action in kept if resolve(action, names) is None]
        if not unknown:
            return Verdict.VALID
        similar = all(any(looks_like(action, name) for name in names or ()) for action in unknown)
        return Verdict.LOOKALIKE_ACTION if similar else Verdict.UNKNOWN_ACTION

    def _graver(self, first: Verdict, second: Verdict) -> Verdict:
        """What is refused before what costs, that before what is forgiven; the first of two that weigh the same."""
        return max(first, second, key=lambda verdict: (_WEIGHT[self.ruling(verdict)], verdict is not Verdict.VALID))

    def _wrap(self, thought: str, answers: Sequence[str]) -> str:
        if self._has_blocks:
            answers = [f"{self._tags.spelt('a')}{answer}{self._tags.spelt('A')}" for answer in answers]
        before = f"{self._tags.spelt('t')}{thought}{self._tags.spelt('T')}" if self.think else ""
        return before + "\n".join(answers)

    @cached_property
    def _reader(self) -> Reader:
        if self.parser:
            where = f"rollout.context.parser={self.parser!r}"
            return load_parser(self.parser, where=where, separator=self.action_separator)
        return ToolCalls(TOOL_FORMATS[self.tools]) if self.tools else Separated(self.action_separator, self.max_actions)

    @cached_property
    def _envelope(self) -> Envelope:
        return Envelope.WHOLE if self.grammar == Grammar.RAW else self._reader.envelope

    @property
    def _has_blocks(self) -> bool:
        return self._envelope in (Envelope.BLOCK, Envelope.BLOCKS)

    @cached_property
    def _tags(self) -> Tags:
        return Tags(thought=self.think_tag, answer=self._reader.block or self.answer_tag if self._has_blocks else "")

    @cached_property
    def _shape(self) -> str:
        return self._wrap("...", [self._reader.shape])

    @cached_property
    def _words(self) -> Mapping[str, str]:
        """The words of prompt and feedback."""
        think, think_end = self._tags.spelt("t"), self._tags.spelt("T")
        answer, answer_end = (self._tags.spelt(letter) for letter in "aA") if self._has_blocks else ("", "")
        return {
            "think": think,
            "think_end": think_end,
            "answer": answer,
            "answer_end": answer_end,
            "answer_block": f"{answer} block" if self._has_blocks else "tool call",
            "behind": f" behind {think_end}" if self.think else "",
            "blocks": "the blocks" if self._has_blocks else "the tool call",
            "shape": self._shape,
            "answer_shape": self._reader.shape,
            "tool": ACT,
        }

    def _examples(self, names: Sequence[str], action_names: ActionNames) -> list[str]:
        if not names:
            return [self.render(_EXAMPLE_THOUGHT, ["my answer"], action_names)]
        answers = [[name] for name in names[:2]]
        if self.max_actions > 1:
            answers[-1] = [*reversed(names[:2])] if len(names) > 1 else [names[0]] * 2
        return [self.render(_EXAMPLE_THOUGHT, answer, action_names) for answer in answers]


# What calls that no tag closes may look like when they are cut off.
_UNFINISHED = (Verdict.NOT_JSON, Verdict.NO_ANSWER, Verdict.TEXT_AROUND)
_WEIGHT = {Ruling.FREE: 0, Ruling.COSTLY: 1, Ruling.REFUSED: 2}
