"""The reply format, once: the text that explains it to the model, the examples it shows, and the parser that reads it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragen.environments.spaces import resolve
from ragen.records import Reply, Verdict

THINK, THINK_END = "<think>", "</think>"
ANSWER, ANSWER_END = "<answer>", "</answer>"
# Anything that reads as a tag, also misspelt: only the exact spelling counts as one, and no other may stand anywhere.
_TAG_LIKE = re.compile(r"<\s*/?\s*(?:think|answer)\s*>", re.IGNORECASE)
# One thought for every example: a small model copies, and a thought that stands beside one answer only would bring that answer
# along. The choice would follow the order in which the actions are named, whatever they are called.
_EXAMPLE_THOUGHT = "I guess which choice is better."
_MAX_QUOTED, _MAX_QUOTED_NAMES = 40, 3  # characters and number of a model's own words shown back to it


@dataclass(frozen=True, kw_only=True)
class ReplyFormat:
    """How a model has to answer: `<think>..</think><answer>..</answer>`, or the answer block alone.

    Several actions in one answer are separated by `action_separator`. With `reply_prefix` the prompt ends inside the first tag.
    """

    think: bool = True
    action_separator: str = "||"
    reply_prefix: bool = True
    max_actions: int = 1

    @property
    def opening(self) -> str:
        """The tag that a reply starts with."""
        return THINK if self.think else ANSWER

    @property
    def prefix(self) -> str:
        """What the prompt already says of the reply; no white space at its end, which would change how a reply is tokenised."""
        return self.opening if self.reply_prefix else ""

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that complete a reply."""
        return (ANSWER_END,)

    @property
    def system(self) -> str:
        """System message: the format in one sentence."""
        if self.think:
            return (
                f"You are a helpful assistant. You always reply by first putting your thoughts between {THINK} and {THINK_END},"
                f" then your answer between {ANSWER} and {ANSWER_END}."
            )
        return (
            f"You are a helpful assistant. You always reply with your answer between {ANSWER} and {ANSWER_END}, and nothing else."
        )

    @property
    def reminder(self) -> str:
        """One line for the later turns."""
        return f"Answer again as {self.render('...', ['...'])}."

    def instructions(self, action_names: Sequence[str] | None) -> str:
        """How to write the answer, with complete example replies that a small model can copy.

        What the actions mean, and which there are, is the environment's to say. `action_names` None: any text is an action.
        """
        several = f"An answer may hold up to {self.max_actions} actions, separated by {self.action_separator}. "
        examples = " or ".join(self._examples(list(action_names or ())))
        return f"{several if self.max_actions > 1 else ''}Example answer format: {examples}"

    def render(self, thought: str, actions: Sequence[str]) -> str:
        """The reply that `parse` reads as this thought and these actions."""
        answer = f"{ANSWER}{f' {self.action_separator} '.join(actions)}{ANSWER_END}"
        return f"{THINK}{thought}{THINK_END}{answer}" if self.think else answer

    def parse(self, text: str, action_names: Sequence[str] | None = None) -> Reply:
        """Read a whole reply, prefix included. Nothing but white space may stand outside the blocks.

        A reply that cannot be read has no actions. Known names come out as the environment spells them (case does not matter),
        unknown ones as they are: the environment rejects those and plays the others. Of too many actions the first `max_actions`
        are kept. Both cost the format penalty.
        """
        fields = self._fields(text)
        if isinstance(fields, Verdict):
            return Reply(text=text, thought="", actions=(), verdict=fields)
        thought, answer = fields
        actions = self._split(answer, action_names)
        kept = tuple(resolve(action, action_names) or action for action in actions[: self.max_actions])
        verdict = Verdict.VALID
        if not actions:
            verdict = Verdict.EMPTY
        elif len(actions) > self.max_actions:
            verdict = Verdict.TOO_MANY_ACTIONS
        elif any(resolve(action, action_names) is None for action in kept):
            verdict = Verdict.UNKNOWN_ACTION
        return Reply(text=text, thought=thought.strip(), actions=kept, verdict=verdict)

    def feedback(self, verdict: Verdict, unknown: Sequence[str]) -> str:
        """What the next message tells the model about a reply that was not valid; empty for a valid one."""
        match verdict:
            case Verdict.VALID:
                return ""
            case Verdict.NO_ANSWER | Verdict.MALFORMED:
                return "Your reply was not in the answer format: nothing was done."
            case Verdict.EMPTY:
                return "Your reply held no action: nothing was done."
            case Verdict.TOO_MANY_ACTIONS:
                return f"Your reply held too many actions: only the first {self.max_actions} counted."
            case Verdict.UNKNOWN_ACTION:
                quoted = (" ".join(name[:_MAX_QUOTED].split()) for name in unknown[:_MAX_QUOTED_NAMES])
                return f"Not an action: {', '.join(quoted)}."

    def _fields(self, text: str) -> tuple[str, str] | Verdict:
        """Thought and answer, or why there are none."""
        if text.strip() in ("", self.opening):
            return Verdict.EMPTY
        tags = _TAG_LIKE.findall(text)
        outside_and_fields = _TAG_LIKE.split(text)
        wanted = [THINK, THINK_END, ANSWER, ANSWER_END] if self.think else [ANSWER, ANSWER_END]
        if tags == wanted:
            if any(part.strip() for part in outside_and_fields[::2]):
                return Verdict.MALFORMED
            fields = outside_and_fields[1::2]
            return (fields[0], fields[1]) if self.think else ("", fields[0])
        answered = ANSWER in tags and ANSWER_END in tags[tags.index(ANSWER) :]
        return Verdict.MALFORMED if answered else Verdict.NO_ANSWER

    def _split(self, answer: str, action_names: Sequence[str] | None) -> list[str]:
        """Free text of which one piece is wanted is not split: an expression may hold the separator."""
        whole = action_names is None and self.max_actions == 1
        pieces = [answer] if whole else answer.split(self.action_separator.strip())
        return [piece.strip() for piece in pieces if piece.strip()]

    def _examples(self, names: Sequence[str]) -> list[str]:
        if not names:
            return [self.render(_EXAMPLE_THOUGHT, ["my answer"])]
        answers = [[name] for name in names[:2]]
        if self.max_actions > 1:
            answers[-1] = [*reversed(names[:2])] if len(names) > 1 else [names[0]] * 2
        return [self.render(_EXAMPLE_THOUGHT, answer) for answer in answers]
