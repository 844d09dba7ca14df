"""The number that an answer states, or None if it does not state exactly one. Exact: fractions, no floating point."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_LENGTH = 200  # characters: an answer is a number and perhaps a unit, not an essay

# In front of the number: "The final answer is", "x =", "####". Behind it: a unit of a few words. A unit of one letter is taken
# for a variable, but for the commonest.
_STATEMENT = re.compile(
    r"""(?:(?:(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*[:=]?|[a-z]\s*=|=|\#+)\s*)?
    (?P<sign>[-+]?)\s*(?:[$€£]\s*)?
    (?P<whole>\d{1,3}(?:,\d{3})+|\d*)(?:\.(?P<decimals>\d*))?
    (?:\s*/\s*(?P<denominator>\d+))?
    (?:\s*[%°$€£])?\s*(?P<unit>(?:(?:[a-z]{2,}|[ghlms])(?:[ ./'-]+|$|(?=\.$)))*)\.?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_CHANGES_VALUE = re.compile(
    r"\b(?:dozen|factorial|hal(?:f|ves)|hundreds?|thousands?|millions?|billions?|pi|percent\s+of|times|squared|cubed)\b"
)
_WRAPPERS = re.compile(r"\\boxed\s*\{(.*)\}|\\\((.*)\\\)|\\\[(.*)\\\]|\$(.*)\$|\*\*(.*)\*\*|`(.*)`", re.DOTALL)
_REWRITES = (("\N{MINUS SIGN}", "-"), ("{,}", ","), ("\\$", "$"), ("\\%", "%"), ("\\,", ""))


def read_number(text: str) -> Fraction | None:
    """The value of "18", "-5", "1,000", "$18", "18.0", "3/4", "25%", "18 apples", "x = 18", "The answer is 18." and the like.

    A unit is ignored ("25%" is 25). None where no number or more than one is stated ("3 or 4", "3 + 4 = 7", "2^5"), where a word
    changes its value ("2 dozen"), for digits grouped wrongly ("1,00"), for exponents ("1e3"), for a fraction that is a whole
    number ("8/4": a division not carried out), and for texts above MAX_LENGTH.
    """
    if len(text) > MAX_LENGTH:
        return None
    found = _STATEMENT.fullmatch(_unwrapped(text))
    if found is None or _CHANGES_VALUE.search(found["unit"].casefold()):
        return None
    whole, decimals, denominator = (found[name] or "" for name in ("whole", "decimals", "denominator"))
    digits = whole.replace(",", "") + decimals
    if not digits or (denominator and (found["decimals"] is not None or int(denominator) == 0)):
        return None
    value = Fraction(int(digits), int(denominator) if denominator else 10 ** len(decimals))
    if denominator and value.denominator == 1:
        return None
    return -value if found["sign"] == "-" else value


def _unwrapped(text: str) -> str:
    for old, new in _REWRITES:
        text = text.replace(old, new)
    text = text.strip()
    while wrapped := _WRAPPERS.fullmatch(text):
        text = next(group for group in wrapped.groups() if group is not None).strip()
    return text
