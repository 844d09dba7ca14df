"""The past of one episode and the prompt that is made of it.

Where what the memory shows goes on from the last prompt and its reply, ids are appended. Where it does not, because something is
forgotten or because the chat template rewrites earlier turns, a new segment begins with the whole prompt. A prompt that leaves no
room for the reply is never sampled from and never cut: whole turns are forgotten as `overflow` says, or the episode ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragen.errors import ConfigError, boundary
from ragen.models.text_chat import TextChat
from ragen.records import ChatMessage, Completion, Observation
from ragen.rollout.context_config import MODEL, ContextConfig
from ragen.rollout.layout import SUMMARY_REQUEST, Layout
from ragen.rollout.memory import Exchange, Message, chat, checked, is_text, load_memory, load_summariser
from ragen.rollout.replies import ReplyFormat
from ragen.rollout.transcript import Span, Transcript

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate


class History:
    """Exchanges in, tokens out: `ask`, then `answer` and `played`; `sum_up` in between where `wants_summary`.

    `reserve_tokens` is the longest reply.
    """

    def __init__(
        self,
        template: ChatTemplate | TextChat,
        config: ContextConfig,
        format_: ReplyFormat,
        layout: Layout,
        reserve_tokens: int,
    ) -> None:
        self.transcript = Transcript()
        self.wants_summary = False  # the prompt asks for one, and `sum_up` is to take it
        self.num_lacking = 0  # tokens by which the next reply would not fit, whatever is forgotten; then there is no prompt
        self._template = template
        self._config = config
        self._format = format_
        self._layout = layout
        self._appends = template.appends(config.think)
        self._memory = load_memory(config.mode, config.window)
        self._exchanges: list[Exchange] = []
        self._first = 0  # of the exchanges that are not forgotten
        self._view: list[Message] = []  # the messages of the last prompt
        self.needed = reserve_tokens + (self._summary_room() if config.asks_for_summaries else 0)  # free behind a prompt

    def ask(self, exchange: Exchange) -> None:
        """Make the prompt of the reply to this exchange, or of the summary that has to come first."""
        self._exchanges.append(exchange)
        every = self._config.summarise_every
        if every and len(self._remembered) > every:
            self._forget()
        else:
            self._show()

    @property
    def message(self) -> str:
        """The message that the next reply answers."""
        return self._view[-1]["content"]

    @property
    def state(self) -> str:
        """What the environment shows in it."""
        return self._exchanges[-1].observation

    def answer(self, completion: Completion, text: str) -> Span:
        """Take a reply and its text. Gives the reply's place."""
        self._exchanges[-1] = replace(self._exchanges[-1], reply=text)
        return self.transcript.sampled(completion)

    def played(self, observation: Observation) -> None:
        """Take what came of the last reply's actions."""
        self._exchanges[-1] = self._layout.played(self._exchanges[-1], observation)

    def sum_up(self, completion: Completion, text: str) -> Span:
        """Take the model's summary; the history goes on from it."""
        span = self.transcript.sampled(completion)
        self.wants_summary = False
        self._go_on_from(text)
        return span

    def render(self, messages: Sequence[Message], prefix: str = "") -> list[int]:
        """Ids of a whole prompt."""
        return self._template.prompt([self._system, *messages], reply_prefix=prefix)

    @property
    def _system(self) -> Message:
        return {"role": "system", "content": self._format.system}

    @property
    def _remembered(self) -> tuple[Exchange, ...]:
        return tuple(self._exchanges[self._first :])

    def _show(self) -> None:
        """The prompt of the next reply. Where there is no room, each round forgets a turn at least."""
        view = self._recall()
        while lacking := self._try(view):
            if self._config.overflow == "end" or len(self._remembered) == 1:
                self.num_lacking = lacking
                return
            if self._config.overflow == "summarise":
                self._forget()
                return
            too_long = view
            while view == too_long and len(self._remembered) > 1:  # a window may not have shown the oldest anyway
                self._first += 1
                view = self._recall()
        self._view = view

    def _try(self, view: list[Message]) -> int:
        """Go on with `view`, or begin anew with it. How many tokens a reply behind it would lack; then nothing is done."""
        goes_on = self._goes_on(view)
        if goes_on:
            last_id = self.transcript.last_sampled_id
            ids = self._template.append_user(view[-1]["content"], last_id=last_id, reply_prefix=self._format.prefix)
        else:
            ids = self.render(view, self._format.prefix)
        length = len(ids) + (self.transcript.length if goes_on else 0)
        lacking = max(0, length + self.needed - self._config.max_context_tokens)
        if not lacking and goes_on:
            self.transcript.read(ids)
        elif not lacking:
            self._restart(ids, view)
        return lacking

    def _restart(self, ids: Sequence[int], messages: Sequence[Message]) -> None:
        self.transcript.restart(ids, [ChatMessage(**message) for message in (self._system, *messages)])

    def _goes_on(self, view: list[Message]) -> bool:
        """Whether `view` is the last prompt, the reply to it, and one message more, and may be appended."""
        if not self._appends or len(self._exchanges) == 1:
            return False
        return view[:-1] == [*self._view, {"role": "assistant", "content": self._exchanges[-2].reply}]

    def _recall(self) -> list[Message]:
        where = f"rollout.context.mode={self._config.mode!r}"
        with boundary(ConfigError, where):
            return checked(self._memory.recall(self._remembered), where)

    def _forget(self) -> None:
        """Replace the turns before this one by a summary: the model's, for which the prompt now asks, or that of a function."""
        *past, _ = self._remembered
        if self._config.summariser != MODEL:
            self._go_on_from(self._summary_of(past))
        elif self._appends:  # there is room: it was kept free behind the last prompt
            self.transcript.read(self._template.append_user(SUMMARY_REQUEST, last_id=self.transcript.last_sampled_id))
            self.wants_summary = True
        else:
            messages = [*chat(past), _REQUEST]
            prompt = self.render(messages)
            self.num_lacking = max(0, len(prompt) + self._config.summary_tokens - self._config.max_context_tokens)
            self.wants_summary = not self.num_lacking
            if self.wants_summary:
                self._restart(prompt, messages)

    def _summary_of(self, past: Sequence[Exchange]) -> str:
        where = f"rollout.context.summariser={self._config.summariser!r}"
        with boundary(ConfigError, where):
            summary = load_summariser(self._config.summariser)(past)
        if not is_text(summary):
            raise ConfigError(f"{where}: must return a text that UTF-8 can hold, not {summary!r:.60}")
        return summary

    def _go_on_from(self, summary: str) -> None:
        self._exchanges[-1] = self._layout.summed_up(self._exchanges[-1], summary)
        self._first = len(self._exchanges) - 1
        self._show()

    def _summary_room(self) -> int:
        """Tokens of the request for a summary and of its answer.

        Exact where turns are appended. Elsewhere the whole chat is rendered anew for the request, and may be longer than what was
        sampled: `_forget` looks again.
        """
        if self._appends:
            request = len(self._template.append_user(SUMMARY_REQUEST, last_id=None))
        else:
            chat_ = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}, _REQUEST]
            request = len(self.render(chat_)) - len(self.render(chat_[:1]))
        return request + self._config.summary_tokens


_REQUEST = {"role": "user", "content": SUMMARY_REQUEST}
