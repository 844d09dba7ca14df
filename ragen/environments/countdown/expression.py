"""Arithmetic read from a model's text: a small precedence-climbing parser with exact rational values.

Nothing is ever evaluated by Python itself, and nothing can grow: a text longer than MAX_CHARACTERS is not looked at, brackets
and signs nest at most MAX_DEPTH deep, and there are no powers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 200
MAX_DEPTH = 16
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}

_LOOK_ALIKES = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})  # noqa: RUF001
_TOKEN = re.compile(r"\s*([0-9]+|\S)")  # not \d, which would admit every script's digits
_CLAIM = re.compile(r"\s*[+-]?[0-9]+\s*")


class ExpressionError(ValueError):
    """The text is not an arithmetic expression. The message says why, in one line without anything unprintable."""


@dataclass(frozen=True, kw_only=True)
class Expression:
    """What a text says: its numbers in the order written, the operations it uses, and its value.

    `value` is None where the expression divides by zero.
    """

    numbers: tuple[int, ...]
    operations: frozenset[str]
    value: Fraction | None


def read_expression(text: str) -> Expression:
    """Read whole numbers, + - * /, brackets and signs; × and · mean *, ÷ means /, a typographic minus means -.

    A closing "= 24" is read past, whatever its number: what counts is what the expression is worth. Raises ExpressionError.
    """  # noqa: RUF002
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"it is longer than {MAX_CHARACTERS} characters")
    left, equals, claim = text.translate(_LOOK_ALIKES).partition("=")
    if equals and not _CLAIM.fullmatch(claim):
        raise ExpressionError("after '=' only a whole number may stand")
    reader = _Reader(_TOKEN.findall(left))
    value = reader.sum_or_product(weaker_than=1, depth=0)
    if reader.next_token:
        raise ExpressionError(f"{reader.next_token!r} was not expected after {reader.last_token!r}")
    return Expression(numbers=tuple(reader.numbers), operations=frozenset(reader.operations), value=value)


class _Reader:
    """The tokens of one text and how far they are read. An empty token is the end."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._position = 0
        self.numbers: list[int] = []
        self.operations: set[str] = set()

    @property
    def next_token(self) -> str:
        return self._tokens[self._position]

    @property
    def last_token(self) -> str:
        return self._tokens[self._position - 1]

    def take(self) -> str:
        token = self.next_token
        self._position += bool(token)
        return token

    def sum_or_product(self, *, weaker_than: int, depth: int) -> Fraction | None:
        """An operand and all operations after it that bind at least as strongly as `weaker_than`, from left to right."""
        value = self.operand(depth=depth)
        while (strength := PRECEDENCE.get(self.next_token, 0)) >= weaker_than:
            operation = self.take()
            self.operations.add(operation)
            value = _apply(operation, value, self.sum_or_product(weaker_than=strength + 1, depth=depth))
        return value

    def operand(self, *, depth: int) -> Fraction | None:
        """A number, a signed operand, or an expression in brackets."""
        if depth > MAX_DEPTH:
            raise ExpressionError(f"brackets and signs are nested more than {MAX_DEPTH} deep")
        token = self.take()
        if token.isascii() and token.isdigit():
            self.numbers.append(int(token))
            return Fraction(self.numbers[-1])
        if token in ("+", "-"):
            self.operations.add(token)
            return _apply(token, Fraction(0), self.operand(depth=depth + 1))
        if token == "(":
            value = self.sum_or_product(weaker_than=1, depth=depth + 1)
            if self.take() != ")":
                raise ExpressionError("a ')' is missing")
            return value
        raise ExpressionError(f"{token!r} stands where a number is needed" if token else "a number is missing at the end")


def _apply(operation: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return None
    match operation:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right if right else None
