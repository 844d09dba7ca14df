"""A trajectory as the messages of a chat, text only: what was said, in order, and what each reply earned.

An episode is told once from its beginning. Of a segment, the chat is told that its tokens render: where a context mode forgets
earlier turns, or replaces them by a summary, that is another chat than the episode's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragen.records import ChatMessage, Summary, Trajectory, Turn
from ragen.rollout.layout import SUMMARY_REQUEST


@dataclass(frozen=True, kw_only=True)
class Said:
    """One thing that the model wrote: a reply, or a summary for itself, behind the message that it answers."""

    what: Turn | Summary
    asked: str

    @property
    def text(self) -> str:
        """A reply as the parser read it, with the prefix that its prompt ends with; a summary without its thought."""
        return self.what.reply.text if isinstance(self.what, Turn) else self.what.text


def said(trajectory: Trajectory) -> list[Said]:
    """Everything that the model wrote, in the order of time."""
    things: list[Said] = []
    for number, turn in enumerate((*trajectory.turns, None)):
        things += [Said(what=each, asked=SUMMARY_REQUEST) for each in trajectory.summaries if each.num_turns == number]
        if turn is not None:
            things.append(Said(what=turn, asked=turn.observation))
    return things


def episode_chat(trajectory: Trajectory) -> list[tuple[ChatMessage, Said | None]]:
    """The whole episode as one chat; beside each of the model's messages, what it is.

    The system message is there if the trajectory recorded its prompts. Nothing follows the last reply: what the environment then
    answered is `final_observation`.
    """
    chat: list[tuple[ChatMessage, Said | None]] = [(message, None) for message in _system(trajectory)]
    for each in said(trajectory):
        chat += [(ChatMessage(role="user", content=each.asked), None), (_reply(each), each)]
    return chat


def prompted(trajectory: Trajectory) -> Iterator[tuple[tuple[ChatMessage, ...], Said]]:
    """Each thing that the model wrote, behind the whole chat that it read, whatever that had forgotten of the episode.

    Where no prompt was recorded, that chat is the episode's up to there.
    """
    things = said(trajectory)
    for index, segment in enumerate(trajectory.segments):
        here = [each for each in things if each.what.segment == index]
        chat = segment.prompt or (*_system(trajectory), *_user(here))
        for place, each in enumerate(here):
            if place:
                chat = (*chat, ChatMessage(role="user", content=each.asked))
            yield chat, each
            chat = (*chat, _reply(each))


def _system(trajectory: Trajectory) -> tuple[ChatMessage, ...]:
    first = trajectory.segments[0].prompt[:1]
    return first if first and first[0].role == "system" else ()


def _user(things: list[Said]) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(role="user", content=each.asked) for each in things[:1])


def _reply(each: Said) -> ChatMessage:
    return ChatMessage(role="assistant", content=each.text)
