"""The actions of an outside environment by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ragen.environments.spaces import AnyText, NamedActions
from ragen.errors import ConfigError

MAX_ACTIONS = 2000  # all are named in the prompt; thousands of names leave no room for anything else
_DEFAULT_CHARACTERS = spaces.Text(1).character_set  # letters and digits: whoever leaves it so means text, spaces included
_SHOWN_CHARACTERS = 200


def action_table(outside: gymnasium.Env[Any, Any], names: Sequence[str] | None, title: str) -> dict[str, Any] | None:
    """Name of each action -> what the outside environment's step takes; None where any text is an action.

    `names` goes before the environment's own attribute `action_names`. Raises ConfigError for a space that is neither discrete
    nor text, for too many actions, for names that are none, or if their number is not that of the actions.
    """
    space = getattr(outside, "action_space", None)
    if isinstance(space, NamedActions):
        return {name: name for name in names or space.names}
    own = getattr(outside.unwrapped, "action_names", None)
    chosen = names if names is not None else own
    given = None if chosen is None else read_names(chosen)
    if isinstance(space, spaces.Discrete):
        if space.n > MAX_ACTIONS:
            raise ConfigError(
                f"action_space=Discrete({space.n}) of {title}: must have at most {MAX_ACTIONS} actions, since the prompt names "
                "each; wrap it so that it has fewer, or give it a Text space and read the action from the text"
            )
        numbers = range(int(space.start), int(space.start + space.n))
        given = given if given is not None else tuple(map(str, numbers))
        if len(given) != len(numbers):
            raise ConfigError(f"action_names={_shown(list(given))}: must be {len(numbers)} names, one for each action of {title}")
        return dict(zip(given, numbers, strict=True))
    if isinstance(space, (spaces.Text, AnyText)):
        return None if given is None else {name: name for name in given}
    raise ConfigError(f"action_space={_shown(space, plain=True)} of {title}: must be Discrete, or Text for free text")


def read_names(names: Any) -> tuple[str, ...]:
    """`names` as a tuple of plain texts. Raises ConfigError unless it is a list, tuple or array of different, non-empty ones."""
    items = names.tolist() if isinstance(names, np.ndarray) else names
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"action_names={_shown(names)}: must be a list of texts, one for each action, or None")
    if len(items) > MAX_ACTIONS:
        raise ConfigError(f"action_names={_shown(names)}: must be at most {MAX_ACTIONS} names, not {len(items)}")
    found = tuple(map(str, items))
    try:
        NamedActions(found)
    except ValueError as error:
        reason = str(error).rpartition(", got ")[0]
        raise ConfigError(f"action_names={_shown(list(found))}: {reason}") from None
    return found


def text_problem(space: gymnasium.Space[Any], text: str) -> str | None:
    """One line for the agent if its text lies outside a Text space; None if it may be played.

    A Text space that was left with Gymnasium's default characters (letters and digits) admits every character.
    """
    if not isinstance(space, spaces.Text):
        return None
    if not space.min_length <= len(text) <= space.max_length:
        return f"An action must have {space.min_length} to {space.max_length} characters, not {len(text)}."
    if space.character_set == _DEFAULT_CHARACTERS:
        return None
    stranger = next((character for character in text if character not in space.character_set), None)
    return None if stranger is None else f"The character {stranger!r} cannot be part of an action."


@lru_cache(maxsize=64)  # asked at every reset, and the same again at most of them
def mentions_all(text: str, names: tuple[str, ...]) -> bool:
    """Whether every name stands in the text as words of its own. Single words are looked up; only others are searched for."""
    words = set(re.findall(r"\w+", text))
    return all(
        name in words if re.fullmatch(r"\w+", name) else re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names
    )


def _shown(value: Any, *, plain: bool = False) -> str:
    line = " ".join((str(value) if plain else repr(value)).split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."
