"""Which characters of a rendered chat came from a message, and which from the template.

Contents are marked before they are rendered, with characters that Unicode reserves for a program's own use. A template that
drops, moves or trims parts of a message takes the marks along, so that the rendered text falls apart into the template's own and
what it was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, zip_longest

_BEGIN, _END, _BREAK = "\ufdd0", "\ufdd1", "\ufdd2"  # noncharacters: no text that is exchanged may hold them
_MARKS = re.compile(f"([{_BEGIN}{_END}{_BREAK}])")
_UNMARK = str.maketrans(dict.fromkeys((_BEGIN, _END, _BREAK), "\ufffd"))


class Marker:
    """Marks contents. `words`: what the template looks for in them, which stays readable. `controls`: what it must not find.

    White space at the ends stays outside the marks, so that the template can still trim it.
    """

    def __init__(self, *, words: Iterable[str] = (), controls: Iterable[str] = ()) -> None:
        self._controls = _any_of(word for word in controls if len(word) > 1)
        self._words = _any_of(words)

    def mark(self, content: str) -> str:
        """`content` with every part between two words marked, and a break behind the first character of a control."""
        clean = content.translate(_UNMARK)
        broken = self._controls.sub(lambda found: found[0][0] + _BREAK + found[0][1:], clean)
        parts = self._words.split(broken)  # part, word, part, word, ..., part
        return "".join(part if i % 2 else _mark(part) for i, part in enumerate(parts))


def take_apart(rendered: str) -> tuple[list[str], list[str]]:
    """(own, given): the template's own texts and the message texts between them, own[0], given[0], own[1], ...

    Raises ValueError if a message was cut in the middle, at a place that is none of the `words`.
    """
    own, given = [""], list[str]()
    inside = False
    for part in _MARKS.split(rendered):
        if part == _BEGIN and not inside:
            given.append("")
            inside = True
        elif part == _END and inside:
            own.append("")
            inside = False
        elif part == _BREAK:
            if not inside:
                own.append("")
                given.append("")
        elif part in (_BEGIN, _END):
            break
        elif inside:
            given[-1] += part
        else:
            own[-1] += part
    else:
        if not inside:
            return own, given
    raise ValueError("cuts a message in the middle")


def join(own: Iterable[str], given: Iterable[str]) -> str:
    """The text that `take_apart` took apart, without marks."""
    return "".join(chain.from_iterable(zip_longest(own, given, fillvalue="")))


def _mark(part: str) -> str:
    core = part.strip()
    if not core:
        return part
    before, _, behind = part.partition(core)
    return f"{before}{_BEGIN}{core}{_END}{behind}"


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")  # (?!) is found nowhere
