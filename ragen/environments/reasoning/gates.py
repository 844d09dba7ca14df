"""What an answer must be before a scorer of reasoning-gym sees it.

Some scorers hand the answer to `eval`, directly or through sympy, some take unbounded time on short texts, and some give the full
score to answers that solve nothing. A gate refuses those; every other answer goes to the scorer unchanged.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Item = Mapping[str, Any]  # a problem of reasoning-gym: "question", "answer", "metadata"
Gate = Callable[[str, Item], bool]

_FUNCTIONS = frozenset({"acos", "asin", "atan", "cos", "cosh", "exp", "log", "sin", "sinh", "sqrt", "tan", "tanh"})
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)
_MAX_EXPRESSION = 1_000  # characters
_MAX_EXPONENT = 100  # product of the exponents above one another


def is_plain_expression(text: str) -> bool:
    """Whether `text` is arithmetic over numbers, single letters and elementary functions, with small constant exponents.

    Such a text cannot name anything else of Python, nor describe a number too large to compute.
    """
    if len(text) > _MAX_EXPRESSION:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _is_plain(tree.body, exponent=1.0)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # what ast.parse raises for texts that are no expression
        return False


def _is_plain(node: ast.expr, *, exponent: float) -> bool:
    """`exponent` is the product of the exponents around the node."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
        case ast.Name(id=name):
            return len(name) == 1
        case ast.UnaryOp(op=op, operand=operand):
            return isinstance(op, _OPERATORS) and _is_plain(operand, exponent=exponent)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return name in _FUNCTIONS and _is_plain(argument, exponent=exponent)
        case ast.BinOp(left=ast.Name(id="E"), op=ast.Pow(), right=right):  # E**(2*x), the other spelling of exp(2*x)
            return _is_plain(right, exponent=exponent)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            raised = exponent * max(1.0, abs(_constant(right)))
            return raised <= _MAX_EXPONENT and _is_plain(left, exponent=raised) and _is_plain(right, exponent=exponent)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, _OPERATORS) and all(_is_plain(side, exponent=exponent) for side in (left, right))
    return False


def _constant(node: ast.expr) -> float:
    """The value of a number, a negated number or a ratio of two; infinity for anything else."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_constant(operand)
        case ast.BinOp(left=ast.Constant(value=int() as above), op=ast.Div(), right=ast.Constant(value=int() as below)) if below:
            return above / below
    return math.inf


def _expression(answer: str, item: Item) -> bool:
    return is_plain_expression(answer)


def _expression_of_its_numbers(answer: str, item: Item) -> bool:
    # The scorer accepts any four numbers within its range, such as 24 + 1 - 1 * 1 for every problem.
    used = sorted(int(digits) for digits in re.findall(r"\d+", answer)) if is_plain_expression(answer) else None
    return used == sorted(item["metadata"]["numbers"])


def _truth_value(answer: str, item: Item) -> bool:
    return answer.strip().casefold() in ("true", "false")  # the scorer takes every other text for "False"


def _finite(answer: str, item: Item) -> bool:
    return re.search("nan|inf", answer, re.IGNORECASE) is None  # a distance of NaN counts as none


def _short_number(answer: str, item: Item) -> bool:
    return re.fullmatch(r"\s*[\d./ ]{1,50}\s*", answer, re.ASCII) is not None  # "1e999999999" would be written out in full


def _short(answer: str, item: Item) -> bool:
    return len(answer) <= 200  # the parser's time grows with the nesting, the check's with the number of letters


GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "coin_flip": _short_number,
        "complex_arithmetic": _finite,
        "countdown": _expression,
        "game_of_life_halting": _truth_value,
        "intermediate_integration": _expression,
        "polynomial_multiplication": _expression,
        "propositional_logic": _short,
        "puzzle24": _expression_of_its_numbers,
        "simple_integration": _expression,
    }
)
