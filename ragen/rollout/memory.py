"""What a prompt shows of an episode so far: one method, from the turns to the messages of a chat.

A memory of your own is a class with that method, named by its import path (rollout.context.mode=my_module:MyMemory):

    class LastActions:
        def recall(self, exchanges):
            done = ", ".join(action for each in exchanges[:-1] for action in each.actions)
            return [{"role": "user", "content": exchanges[-1].opening(f"Actions so far: {done}")}]

Where its messages go on from those of the last prompt, ids are appended; otherwise the prompt is built anew, and the trajectory
gets another segment. Either way what is trained is what was sampled, behind what the policy saw.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragen.errors import ConfigError, boundary, near_match

Message = dict[str, str]  # {"role": "user" or "assistant", "content": text}

MODES = ("full", "window", "single_turn")
PAST = "What happened so far:"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One turn as text: what the environment said, and what the model answered."""

    number: int  # of the turn, from 1
    task: str  # the environment's instruction
    observation: str  # what it showed, alone
    state: str  # the observation as a message shows it: with turn number and budgets
    news: str  # reward of the turn before and what was wrong with its reply; empty at first
    how: str  # how to answer, with an example
    reminder: str  # the same in one line
    notes: str = ""  # summary of the turns before it, where those are forgotten
    reply: str | None = None  # as the model wrote it; None while it is awaited
    actions: tuple[str, ...] = ()  # those that were executed
    reward: float | None = None  # None while it is awaited, and where show_reward=false hides it

    def opening(self, notes: str = "") -> str:
        """The user message with which a chat begins here; `notes` about what was before stand behind the task."""
        past = lines(self.notes, notes)
        return lines(self.task, past, "Now:" if past else "", self.news, self.state, self.how)

    @property
    def message(self) -> str:
        """The user message where a reply stands before it."""
        return lines(self.news, self.state, self.reminder)


class Memory(Protocol):
    """Decides what the next prompt shows. One per trajectory, so it may keep what it likes."""

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        """Messages of user and assistant in turn, the last one the user's; `exchanges` end with the one to be answered.

        With overflow=drop it is asked again, without the oldest exchange, until a reply fits behind what it shows.
        """


class Full:
    """The whole history."""

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        return chat(exchanges)


@dataclass(frozen=True)
class Window:
    """The last turns, as a chat that begins with the first of them."""

    size: int  # >= 1, the current turn included

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        return chat(exchanges[-self.size :])


@dataclass(frozen=True)
class SingleTurn:
    """One message: the task, the turns before this one in a list, and the state."""

    size: int  # >= 1, the current turn included

    def recall(self, exchanges: Sequence[Exchange]) -> Sequence[Message]:
        *past, current = exchanges[-self.size :]
        return [_message("user", current.opening(lines(PAST, *map(_told, past)) if past else ""))]


def chat(exchanges: Sequence[Exchange]) -> list[Message]:
    """The exchanges as messages, the first one as an opening."""
    messages = []
    for place, each in enumerate(exchanges):
        messages.append(_message("user", each.message if place else each.opening()))
        if each.reply is not None:
            messages.append(_message("assistant", each.reply))
    return messages


def load_memory(mode: str, window: int) -> Memory:
    """A new memory for one trajectory. Raises ConfigError for a class that cannot be had."""
    if mode == "window":
        return Window(window)
    if mode == "single_turn":
        return SingleTurn(window)
    if mode == "full":
        return Full()
    with boundary(ConfigError, f"rollout.context.mode={mode!r}"):
        memory: Any = _load(mode, "rollout.context.mode")()
    if not callable(getattr(memory, "recall", None)):
        raise ConfigError(f"rollout.context.mode={mode!r}: must be a class with a method recall(exchanges)")
    made: Memory = memory
    return made


def load_summariser(path: str) -> Callable[[Sequence[Exchange]], str]:
    """The function from exchanges to their summary, the first one's `notes` included. Raises ConfigError if it cannot be had."""
    found: Callable[[Sequence[Exchange]], str] = _load(path, "rollout.context.summariser")
    return found


def checked(messages: Any, where: str) -> list[Message]:
    """What a memory recalled, if it is a chat that can be answered. Raises ConfigError that begins with `where`."""
    listed = list(messages)
    roles = [each.get("role") if isinstance(each, Mapping) else type(each).__name__ for each in listed]
    if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
        shown = f"{', '.join(map(str, roles)) or 'none'}"
        raise ConfigError(f"{where}: recall must return messages of user and assistant in turn, the user's last; roles: {shown}")
    for each in listed:
        if not is_text(each.get("content")):
            raise ConfigError(f"{where}: the content of a message must be text that UTF-8 can hold: {each.get('content')!r:.60}")
    return [_message(each["role"], each["content"]) for each in listed]


def is_text(value: Any) -> bool:
    """Whether it is a text that can be encoded and recorded: half a surrogate pair cannot."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def lines(*parts: str) -> str:
    """The parts that say something, one below the other."""
    return "\n".join(part for part in parts if part.strip())


def number(value: float) -> str:
    """At most three decimals, none that say nothing: -0.1 * 3 reads -0.3, not -0.30000000000000004."""
    return f"{round(value, 3) + 0.0:.15g}"


def _told(exchange: Exchange) -> str:
    did = f"You did: {', '.join(exchange.actions) or 'nothing valid'}."
    reward = "" if exchange.reward is None else f" Reward: {number(exchange.reward)}."
    return lines(f"Turn {exchange.number}:", exchange.observation, did + reward)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _load(path: str, key: str) -> Any:
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{key}={path!r}: must be 'module:name'")
    with boundary(ConfigError, f"{key}={path!r}: cannot be imported"):
        module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(f"{key}={path!r}: {module_name} has no {name!r} that can be called{near_match(name, own)}")
    return found
