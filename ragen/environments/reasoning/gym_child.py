"""The side of reasoning-gym: a helper process that makes problems and scores answers. Run by library.py, never by hand.

The library runs apart from the trainer because it takes long to import, some of its generators draw from (and seed) the global
random generators or follow Python's hash seed, and some of its scorers evaluate the answer as Python code. Here global generators
are seeded before each problem, the hash seed is fixed, and no scorer gets an answer that it could execute: gates.py refuses
what sympy must not see, and in the scorer itself `eval` means `ast.literal_eval`.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import random
from collections.abc import Sequence
from functools import cache, lru_cache
from random import Random
from types import FunctionType
from typing import Any

import numpy as np

from ragen.environments.answers.child import Handlers, serve
from ragen.environments.reasoning.gates import GATES, Item
from ragen.errors import ConfigError, boundary, near_match

_RESERVED = ("seed", "size")  # the environment sets these
_EVALUATORS = frozenset({"exec", "compile", "parse_expr", "sympify"})
_MAX_DRAWS = 500  # word problems drawn until one has the wanted number of steps


def check(dataset: str, config: str, levels: list[int]) -> None:
    """Raise ConfigError unless the generator exists, takes these settings at each of these levels, and can make a problem."""
    from reasoning_gym.factory import CURRICULA, DATASETS

    names = set(DATASETS) - {"composite"}
    if dataset == "composite":
        raise ConfigError("dataset='composite': is a mixture of generators; give each its own environment instead")
    if dataset not in names:
        raise ConfigError(f"dataset={dataset!r}: reasoning-gym has no such generator{near_match(dataset, names)}")
    dataset_class, config_class = DATASETS[dataset]
    if _EVALUATORS & set(dataset_class.score_answer.__code__.co_names) and dataset not in GATES:
        raise ConfigError(f"dataset={dataset!r}: its scorer evaluates answers as code, which is not allowed here")
    known = [field.name for field in dataclasses.fields(config_class) if field.name not in _RESERVED]
    for key in json.loads(config):
        if key not in known:
            listing = ", ".join(known)
            raise ConfigError(
                f"dataset_config.{key}: {dataset} has no such setting{near_match(key, known)} (settings: {listing})"
            )
    if levels and dataset not in CURRICULA:
        raise ConfigError(f"levels={levels}: {dataset} has no curriculum")
    top = _top_level(dataset) if levels else 0
    for wanted in levels:
        if not 0 <= wanted <= top:
            raise ConfigError(f"levels={levels}: the curriculum of {dataset} has levels 0..{top}")
    choices: Sequence[int | None] = levels or [None]
    for level in choices:
        where = f"dataset_config: {dataset}" if level is None else f"levels={levels}: level {level} of {dataset}"
        with boundary(ConfigError, f"{where} refuses its settings"):
            make(dataset, config, level, seed=0)


def make(dataset: str, config: str, level: int | None, seed: int) -> dict[str, Any]:
    """A problem: its question, and its answer if that is known and earns the full score, else None."""
    _, item = _problem(dataset, config, level, seed)
    answer = item["answer"]
    solves = isinstance(answer, str) and score(dataset, config, level, seed, answer) == 1.0
    return {"question": item["question"], "answer": answer if solves else None}


def score(dataset: str, config: str, level: int | None, seed: int, answer: str) -> float:
    """What the generator's own scorer gives for the answer, 0 to 1, or raises on it."""
    source, item = _problem(dataset, config, level, seed)
    gate = GATES.get(dataset)
    if gate is not None and not gate(answer, item):
        return 0.0
    scored = float(_scorer(type(source).score_answer)(source, answer, item))
    return min(max(scored, 0.0), 1.0) if scored == scored else 0.0  # NaN scores nothing


def word_problem(min_steps: int, max_steps: int, seed: int) -> dict[str, Any]:
    """The first word problem whose worked solution has that many lines, among those of a sequence of seeds begun by `seed`."""
    draw = Random(seed)
    for _ in range(_MAX_DRAWS):
        _, item = _problem("gsm_symbolic", "{}", None, seed)
        lines = [line for line in item["metadata"]["answer_cot"].splitlines() if line.strip() and not line.startswith("####")]
        if min_steps <= len(lines) <= max_steps:
            return {"question": item["question"], "answer": item["answer"]}
        seed = 2 * draw.getrandbits(31) + seed % 2  # as even or odd as the first, which keeps the splits apart
    raise ConfigError(f"min_steps={min_steps}: no word problem was found with {min_steps} to {max_steps} steps")


def _top_level(dataset: str) -> int:
    from reasoning_gym.factory import create_curriculum

    return max(len(attribute.levels) for attribute in create_curriculum(dataset).attributes.values()) - 1


@lru_cache(maxsize=4096)  # the members of a group get the same problem, and each answer needs it again
def _problem(dataset: str, config: str, level: int | None, seed: int) -> tuple[Any, Item]:
    """The generator, seeded, and its first item: a function of the arguments alone."""
    from reasoning_gym.factory import DATASETS, create_curriculum

    random.seed(seed)
    np.random.seed(seed)
    dataset_class, config_class = DATASETS[dataset]
    settings = {"size": 1} | json.loads(config) | {"seed": seed}
    if level is not None:
        curriculum = create_curriculum(dataset)
        curriculum.set_global_level(level)
        at_level = vars(curriculum.generate_configuration())
        settings = at_level | settings
    source = dataset_class(config=config_class(**settings))
    return source, source[0]


@cache
def _scorer(original: FunctionType) -> FunctionType:
    """The scorer, a copy in which `eval` reads literals and runs nothing."""
    names = original.__globals__ | {"eval": ast.literal_eval}
    return FunctionType(original.__code__, names, original.__name__, original.__defaults__, original.__closure__)


def _load() -> Handlers:
    import reasoning_gym  # noqa: F401  fills the registry of generators

    return {"check": check, "make": make, "score": score, "word_problem": word_problem}


if __name__ == "__main__":
    serve(_load)
