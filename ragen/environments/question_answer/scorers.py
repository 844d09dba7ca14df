"""How an answer is compared with the right one: as text, as a number, or as mathematics."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from ragen.environments.answers.child import Child
from ragen.environments.answers.env import Verdict
from ragen.environments.answers.numbers import read_number
from ragen.errors import ConfigError, EnvironmentFailure

VERIFY_LIMIT_S = 5.0  # math-verify takes 1 to 400 ms
MAX_FORMULA = 500  # characters
MAX_NESTING = 20  # brackets within brackets

Scorer = Callable[[str, str], Verdict]  # right answer, given answer

_RIGHT = Verdict(score=1.0)
_WRONG = Verdict(score=0.0)

# Short texts that mean numbers too large to compute: a power of a power, an exponent or a factorial of five digits.
_EXPLOSIVE = re.compile(
    r"\^\s*[{(][^{}()]*\d\s*\^|\^\s*(?:\w+|\{[^{}]*\}|\([^()]*\))\s*\^|(?:\^|\*\*)\s*[({]*\s*-?\d{5}|\d{5}\s*!|!\s*!|\d{100}"
)
# A calculation left for the checker: a sum, product, power, root, factorial or pair of numbers. Scientific notation is a number.
_UNFINISHED = re.compile(
    r"[\w)}]\s*(?:[-+*:!^\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{DIVISION SIGN}]|\\times|\\cdot|\\div)"
    r"|\\(?:sqrt|sum|prod|int|binom|lim|log|ln|exp|sin|cos|tan)(?![a-z])|\b(?:sqrt|log|ln|exp|sin|cos|tan)\b|\d\s+\d"
)
_SCIENTIFIC = re.compile(
    r"-?\d(?:\.\d+)?\s*(?:\\times|\\cdot|\N{MULTIPLICATION SIGN}|\N{MIDDLE DOT}|\*)\s*10\s*\^\s*(?:-?\d|\{\s*-?\d{1,3}\s*\})"
)
_FRACTION = re.compile(r"/|\\[dt]?frac")
_PROSE = re.compile(r"[A-Za-z .,'-]*[A-Za-z]{3}[A-Za-z .,'-]*")

_child = Child("ragen.environments.question_answer.math_child")


def require_math(option: str) -> None:
    """Raise ConfigError, naming the option that needs it, if math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(f"{option}: needs the package math-verify: pip install 'ragen-rl[reasoning]'")


def exact_verdict(gold: str, answer: str) -> Verdict:
    """Equal texts, apart from case, white space and a final full stop."""
    return _RIGHT if _normal(gold) == _normal(answer) else _WRONG


def numeric_verdict(gold: str, answer: str) -> Verdict:
    """Equal values, however written; see numbers.read_number. `gold` must be readable."""
    value = read_number(answer)
    if value is None:
        return Verdict(score=0.0, problem="Your answer is not one number.")
    return _RIGHT if value == read_number(gold) else _WRONG


def math_verdict(gold: str, answer: str) -> Verdict:
    """Equal as mathematics: numbers, fractions, roots, polynomials, sets, intervals, matrices, in plain or LaTeX notation.

    A right answer that is a plain word is compared as text, one that is a plain number admits no unfinished arithmetic ("3 + 4"
    is not an answer where "7" is right). What remains is judged by math-verify, which rounds decimals to six places.
    """
    if exact_verdict(gold, answer) is _RIGHT:
        return _RIGHT
    gold_value, value = _plain_number(gold), read_number(answer)
    if value is not None and gold_value is not None:
        if value == gold_value:
            return _RIGHT
        if value.denominator == gold_value.denominator == 1:
            return _WRONG
    if problem := _refusal(answer):
        return Verdict(score=0.0, problem=problem)
    if gold_value is not None and _leaves_arithmetic(answer, whole=gold_value.denominator == 1):
        return Verdict(score=0.0, problem="Your answer leaves arithmetic undone.")
    if _PROSE.fullmatch(gold):  # to math-verify a word is a product of its letters, equal to any anagram
        return _WRONG
    return _verified(gold, answer)


SCORERS: Mapping[str, Scorer] = MappingProxyType({"math": math_verdict, "exact": exact_verdict, "numeric": numeric_verdict})


def _normal(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".")


def _plain_number(gold: str) -> Fraction | None:
    """The right answer's value if it is a number and nothing else: in "2x" or "5 m" a letter may be a variable."""
    return None if any(character.isalpha() for character in gold) else read_number(gold)


def _leaves_arithmetic(answer: str, *, whole: bool) -> bool:
    """Whether the answer is a calculation rather than a result. Where the result is `whole`, a fraction is one too."""
    return _UNFINISHED.search(_SCIENTIFIC.sub("", answer)) is not None or (whole and _FRACTION.search(answer) is not None)


def _refusal(answer: str) -> str:
    """Why math-verify shall not see this answer, in one line; empty if it may."""
    if len(answer) > MAX_FORMULA:
        return f"Your answer is too long: {len(answer)} characters, at most {MAX_FORMULA}."
    depth = deepest = 0
    for character in answer:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        return "Your answer has too many brackets within brackets."
    return "Your answer is a number too large to check." if _EXPLOSIVE.search(answer) else ""


@lru_cache(maxsize=4096)  # members of a group give the same answers
def _verified(gold: str, answer: str) -> Verdict:
    try:
        equal = _child.ask("verify", {"gold": gold, "answer": answer}, limit_s=VERIFY_LIMIT_S)
    except EnvironmentFailure:
        return Verdict(score=0.0, problem="Your answer could not be checked.")
    return _RIGHT if equal else _WRONG
