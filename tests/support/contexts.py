"""Whole conversations through the context manager alone: scripted replies in, the environment's answers in, tokens out.

`assert_exact` compares all of it with what the chat template itself writes: nothing of the package's own slicing is used for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from unittest.mock import patch

from transformers import PreTrainedTokenizerFast

from ragen.engines.scripted import Request, Script, ScriptedEngine
from ragen.models.chat import ChatTemplate
from ragen.records import EndReason, EpisodeKey, Observation, Sampling, Split, Trajectory, Turn
from ragen.rollout import history
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.layout import SUMMARY_REQUEST
from ragen.rollout.memory import Exchange, Message
from tests.support.conversations import Conversation, encode, pieces, rendered, with_bos
from tests.support.invariants import assert_token_invariants, written
from tests.support.tokenizers import CHATML, Kind, make_tokenizer

KEY = EpisodeKey(split=Split.TRAIN, step=0, group=0, member=0, environment="corridor", task_seed=2, dynamics_seed=4)
NAMES = ("Left", "Right")
FIRST = Observation(text="P _ G", instruction="Walk to G.", actions_left=10)
RESERVE = 40


class LastActions:
    """A memory of one's own: one message, with all actions so far."""

    def recall(self, exchanges: Sequence[Exchange]) -> list[Message]:
        done = ", ".join(action for each in exchanges[:-1] for action in each.actions)
        return [{"role": "user", "content": exchanges[-1].opening(f"Actions so far: {done}" if done else "")}]


class FirstAndLast:
    """Another: the first turn and the last one, as a chat of two turns."""

    def recall(self, exchanges: Sequence[Exchange]) -> list[Message]:
        first, *_, last = exchanges[0], exchanges[-1]
        opening = [{"role": "user", "content": first.opening()}, {"role": "assistant", "content": first.reply or ""}]
        return [*opening, {"role": "user", "content": last.message}] if len(exchanges) > 1 else opening[:1]


def all_actions(exchanges: Sequence[Exchange]) -> str:
    """A summary of one's own: the one before, and what was done since."""
    return f"{exchanges[0].notes[-200:]} {len(exchanges)} turns: {[action for each in exchanges for action in each.actions]}"


LAST_ACTIONS, FIRST_AND_LAST = (f"{__name__}:{each.__name__}" for each in (LastActions, FirstAndLast))
ALL_ACTIONS = f"{__name__}:{all_actions.__name__}"


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of a conversation."""

    context: ContextManager
    template: ChatTemplate
    tokenizer: PreTrainedTokenizerFast
    trajectory: Trajectory
    requests: Sequence[Request]
    views: Sequence[Sequence[Message] | None]  # per request: the messages of its prompt; None for a request of a summary


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A tokenizer and what was found about its template."""

    tokenizer: PreTrainedTokenizerFast
    chat: ChatTemplate


@functools.cache
def subject(kind: Kind = "plain", template: str = CHATML) -> Subject:
    """One of the odd tokenizers with one of the odd templates."""
    tokenizer = make_tokenizer(kind, template)
    return Subject(tokenizer=tokenizer, chat=ChatTemplate(tokenizer))


def play(
    script: Script,
    observations: Sequence[Observation],
    over: Subject | None = None,
    *,
    first: Observation = FIRST,
    reserve: int = RESERVE,
    **config: object,
) -> Played:
    """Reset, then replies and `observations` in turn, and summaries where they are asked for, until either side has no more."""
    over = over or subject()
    context = make_context(over.chat, len(observations) + 1, reserve=reserve, **config)
    engine = ScriptedEngine(script)
    views: list[Sequence[Message] | None] = []

    async def run() -> None:
        answers = iter(observations)
        with recalled() as seen:
            context.observe(first)
            while context.has_room:
                views.append(None if context.wants_summary else seen[-1])
                sampling = context.sampling(Sampling(max_new_tokens=reserve), KEY)
                completion = await engine.generate(context.prompt_ids, sampling)
                if context.wants_summary:
                    context.summarise(completion)
                elif (answer := next(answers, None)) is not None:
                    context.reply(completion)
                    context.observe(answer)
                else:
                    context.reply(completion)
                    return

    asyncio.run(run())
    end = EndReason.TURN_LIMIT if context.has_room else EndReason.CONTEXT_LIMIT
    trajectory = context.trajectory(key=KEY, end_reason=end, success=False)
    return Played(
        context=context,
        template=over.chat,
        tokenizer=over.tokenizer,
        trajectory=trajectory,
        requests=engine.requests,
        views=views,
    )


def make_context(chat: ChatTemplate, max_turns: int, *, reserve: int = RESERVE, **config: object) -> ContextManager:
    """A context manager of the corridor; any text up to the last turn is answered."""
    settings = ContextConfig(**{"max_context_tokens": 100_000, **config})  # type: ignore[arg-type]
    settings.check()
    env = EnvironmentConfig(name="corridor", max_turns=max_turns, max_actions=10, max_actions_per_turn=3)
    return ContextManager(chat, settings, env, NAMES, -0.1, reserve, 3)


@contextmanager
def recalled() -> Iterator[list[list[Message]]]:
    """What memories recall meanwhile, whichever they are."""
    seen: list[list[Message]] = []
    checked: Callable[[object, str], list[Message]] = history.checked

    def spy(messages: object, where: str) -> list[Message]:
        seen.append(checked(messages, where))
        return seen[-1]

    with patch.object(history, "checked", spy):
        yield seen


def assert_sound(played: Played) -> None:
    """What holds whatever is said: the token invariants, room for every completion, a stream of its own for each."""
    assert_token_invariants(played.trajectory, played.requests)
    for request in played.requests:
        assert len(request.prompt_ids) + request.sampling.max_new_tokens <= played.context.config.max_context_tokens
    seeds = [request.sampling.seed for request in played.requests]
    assert len(set(seeds)) == len(seeds)
    assert len(played.requests) == len(written(played.trajectory))


def assert_exact(played: Played) -> None:
    """The ids of every prompt are the template's own. Where nothing that is said spells a control token.

    The first prompt of a segment is the template's rendering of the messages that the memory recalled. From there on it is
    compared piece by piece: what stands between two completions is what the template writes between two replies.
    """
    parts = written(played.trajectory)
    for index, segment in enumerate(played.trajectory.segments):
        places = [place for place, part in enumerate(parts) if part.segment == index]
        first = parts[places[0]]
        assert segment.ids[: first.start].tolist() == _rendered(played, places[0])
        if len(places) == 1:
            continue
        texts = [asked(played, place)[-1]["content"] for place in places]
        conversation = Conversation(system="s", user="u", texts=(*texts[1:], "end"), thoughts=played.context.config.think)
        between = pieces(played.template, played.tokenizer, conversation)[1:-1]
        for (before, after), piece in zip(pairwise(places), between, strict=True):
            assert _goes_on(played, before, after)
            start, stop = parts[before].stop, parts[after].start
            expected = _encoded(played, piece, after)
            last = segment.ids[start - 1] if start > parts[before].start else None
            if last is not None and last == played.template.end_of_turn_id:
                expected = expected[expected.index(last) + 1 :]
            assert segment.ids[start:stop].tolist() == expected


def asked(played: Played, place: int) -> Sequence[Message]:
    """The chat that a completion answers, without system message. The request for a summary follows the reply before it."""
    view = played.views[place]
    if view is not None:
        return view
    reply = next(turn for turn in reversed(played.trajectory.turns) if turn in written(played.trajectory)[:place])
    before = played.views[place - 1]
    assert before is not None
    return [*before, _said(reply), {"role": "user", "content": SUMMARY_REQUEST}]


def _goes_on(played: Played, before: int, after: int) -> bool:
    """Whether the memory shows the first prompt, its reply, and one message more. A request for a summary always does."""
    view, part = played.views[after], written(played.trajectory)[before]
    return view is None or (isinstance(part, Turn) and view[:-1] == [*asked(played, before), _said(part)])


def _said(turn: Turn) -> Message:
    return {"role": "assistant", "content": turn.reply.text}


def _rendered(played: Played, place: int) -> list[int]:
    chat = [{"role": "system", "content": played.context.format.system}, *asked(played, place)]
    text = rendered(played.template, played.tokenizer, chat) + played.template.layout.header  # of T_HEADER: what every reply has
    return with_bos(played.tokenizer, _encoded(played, text, place))


def _encoded(played: Played, text: str, place: int) -> list[int]:
    """With what the prompt already says of the reply; nothing of a summary."""
    prefix = played.context.format.prefix if played.views[place] is not None else ""
    return encode(played.tokenizer, text if prefix and text.rstrip().endswith(prefix) else text + prefix)
