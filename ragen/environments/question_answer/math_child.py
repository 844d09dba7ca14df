"""The side of math-verify: a helper process that compares two formulas. Run by scorers.py, never by hand.

math-verify bounds its own time by an alarm signal, which works on a main thread only, and its work runs through sympy, which
evaluates text. Here its time-outs are off and the helper's own limit applies; formulas are read by the LaTeX grammar alone, since
the other reader hands text to sympy's parser; and sympy's evaluator takes nothing but single numbers and names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ragen.environments.answers.child import Handlers, serve

_SINGLE = re.compile(r"[A-Za-z]\w*\s*|(?:Integer|Float|Symbol)\s*\((?:\d+|'[\w.]+')\s*\)\s*", re.ASCII)
_WRAPPERS = (
    re.compile(r"\$+(.*?)\$+", re.DOTALL),
    re.compile(r"\\\((.*)\\\)", re.DOTALL),
    re.compile(r"\\\[(.*)\\\]", re.DOTALL),
)


def verify(gold: str, answer: str) -> bool:
    """Whether math-verify holds the two equal. Not symmetric: what the right answer leaves open, the given one may leave open."""
    from math_verify import verify as equal

    return bool(equal(list(_parsed(gold)), list(_parsed(answer)), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    from math_verify import LatexExtractionConfig, parse

    text = text.strip()
    for wrapper in _WRAPPERS:
        if whole := wrapper.fullmatch(text):
            text = whole[1]
    return tuple(
        parse(f"${text}$", extraction_config=[LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    )


def _load() -> Handlers:
    import math_verify  # noqa: F401
    from sympy.parsing import sympy_parser

    evaluate = sympy_parser.eval_expr

    def evaluate_single(code: str, local_dict: Any, global_dict: Any) -> Any:
        if not _SINGLE.fullmatch(code):
            raise ValueError(f"{code[:50]!r}: only a single number or name is evaluated")
        return evaluate(code, local_dict, global_dict)

    sympy_parser.eval_expr = evaluate_single
    return {"verify": verify}


if __name__ == "__main__":
    serve(_load)
