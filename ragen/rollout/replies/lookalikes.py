"""Characters that only look like others. Used to name a fault, never to forgive one."""

from __future__ import annotations

import re
import unicodedata

INVISIBLE = "\u200b"  # stands for every character that shows nothing

# Letters of other scripts that are drawn like Latin ones, and brackets like '<', '/' and '>'. What Unicode itself calls a
# variant of a Latin letter (full width, bold, accented) needs no entry.
_DRAWN_ALIKE = {
    "a": "\u0430\u0251\u03b1",
    "b": "\u042c\u0432",
    "c": "\u0441\u03f2",
    "d": "\u0501\u0257",
    "e": "\u0435\u0454\u04bd",
    "f": "\u0493",
    "g": "\u0261\u0581",
    "h": "\u04bb\u0570\u043d",
    "i": "\u0456\u0131\u0269\u03b9",
    "j": "\u0458\u03f3",
    "k": "\u043a\u03ba\u049d",
    "l": "\u04cf\u217c",
    "m": "\u043c\u03fb",
    "n": "\u043f\u0578\u03b7",
    "o": "\u043e\u03bf\u0585",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0566",
    "r": "\u0433\u027e",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4",
    "u": "\u03c5\u057d",
    "v": "\u03bd\u0475",
    "w": "\u051d\u0448\u03c9",
    "x": "\u0445\u03c7",
    "y": "\u0443\u03b3\u04af",
    "z": "\u1d22",
    "<": "\u2039\u3008\u27e8\u02c2\u276e\u1438",
    ">": "\u203a\u3009\u27e9\u02c3\u276f\u1433",
    "/": "\u2044\u2215\u29f8\u2571",
}
_DRAWN_AS = {ord(other): plain for plain, others in _DRAWN_ALIKE.items() for other in others}
# Capitals that are drawn like a Latin one although their small letters are not: Greek, then Cyrillic.
_CAPITALS = "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0412\u041d\u0423"
_DRAWN_AS |= {ord(other): plain for other, plain in zip(_CAPITALS, "abezhikmnoptyxbhy", strict=True)}
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")
_UNSEEN = {"Cc", "Cf", "Mn", "Me", "Cs"}  # control and format characters, marks on top of others, half characters


class _Skeleton(dict[int, str]):
    """A table for `str.translate` that fills itself, one character for one."""

    def __missing__(self, code: int) -> str:
        self[code] = drawn = _drawn(chr(code))
        return drawn


def _drawn(character: str) -> str:
    if character.isspace():
        return character
    if unicodedata.category(character) in _UNSEEN or "\ufe00" <= character <= "\ufe0f":
        return INVISIBLE
    plain = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
    plain = plain if len(plain) == 1 else character
    return _DRAWN_AS.get(ord(plain)) or _DRAWN_AS.get(ord(plain.lower()[0])) or plain


_TABLE = _Skeleton()


def skeleton(text: str) -> str:
    """`text` as it is drawn, in plain characters where there are any; the same length, so that positions stay.

    White space stays, and what shows nothing becomes INVISIBLE.
    """
    return text if text.isascii() and not _CONTROL.search(text) else text.translate(_TABLE)


def looks_like(text: str, other: str) -> bool:
    """True if a person could take one for the other, letter case aside."""
    return _shape(text) == _shape(other)


def _shape(text: str) -> str:
    return skeleton(unicodedata.normalize("NFKC", text)).replace(INVISIBLE, "").strip().casefold()
