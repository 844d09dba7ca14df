"""reasoning-gym behind its helper process: problems follow from the seed, and no answer hangs it or is run as code."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ragen.environments.answers.child import Child
from ragen.environments.reasoning import library
from ragen.environments.reasoning.library import Source, check, make, score

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="needs reasoning-gym")

# Plain ones; those that draw from or seed global generators (pool_matrix, list_functions, codeio); those whose problems follow
# Python's hash seed (isomorphic_strings, ransom_note, word_ladder, polynomial_multiplication); those whose scorers evaluate text.
SAMPLE = (
    "chain_sum",
    "leg_counting",
    "pool_matrix",
    "list_functions",
    "isomorphic_strings",
    "ransom_note",
    "word_ladder",
    "polynomial_multiplication",
    "binary_matrix",
    "n_queens",
    "spiral_matrix",
    "string_insertion",
    "simple_integration",
    "countdown",
    "puzzle24",
)
EVALUATING = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion", "simple_integration", "countdown", "puzzle24")
UNKNOWN_ANSWER = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")


def source(dataset: str, *, seed: int = 7, config: str = "{}", level: int | None = None) -> Source:
    return Source(dataset=dataset, config=config, level=level, seed=seed)


def test_a_problem_follows_from_its_seed_in_any_process_and_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [source(dataset, seed=seed) for dataset in SAMPLE for seed in (3, 4)]
    here = [make(which) for which in sources]
    other = Child("ragen.environments.reasoning.gym_child")
    monkeypatch.setattr(library, "_child", other)
    elsewhere = [make.__wrapped__(which) for which in reversed(sources)]
    other.close()
    assert elsewhere[::-1] == here
    assert all(a.question != b.question for a, b in zip(here[::2], here[1::2], strict=True))


def test_no_global_generator_of_this_process_is_touched() -> None:
    before = random.getstate(), repr(np.random.get_state())
    for dataset in SAMPLE:
        make(source(dataset, seed=5))
    assert (random.getstate(), repr(np.random.get_state())) == before


@pytest.mark.parametrize("dataset", SAMPLE)
def test_the_known_answer_earns_the_full_score(dataset: str) -> None:
    problem = make(source(dataset))
    assert problem.answer is not None
    assert score(source(dataset), problem.answer).score == 1.0


@pytest.mark.parametrize("dataset", UNKNOWN_ANSWER)
def test_an_answer_that_its_own_scorer_rejects_is_no_known_answer(dataset: str) -> None:
    assert make(source(dataset)).answer is None


def test_a_known_answer_elsewhere_scores_what_the_scorer_says() -> None:
    # Scorers as documented by the library: 0.01 for an unreadable countdown, 0.05 for one with other numbers.
    assert score(source("countdown"), "1 + 1").score == 0.05
    assert score(source("chain_sum"), "no number").score == 0.0


def test_a_list_is_still_read_where_the_scorer_evaluates_it() -> None:
    """spiral_matrix gives 0.1 for the right numbers written as a Python list."""
    answer = make(source("spiral_matrix")).answer
    assert answer is not None
    assert score(source("spiral_matrix"), f"[{', '.join(answer.split())}]").score == 0.1


@pytest.mark.parametrize("dataset", EVALUATING)
def test_an_answer_is_never_run_as_code(dataset: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for text in (
        f"open({str(mark)!r}, 'w')",
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"[open({str(mark)!r}, 'w')]",
    ):
        assert score(source(dataset), text).score <= 0.05
    assert not mark.exists()


@pytest.mark.parametrize("dataset", [*EVALUATING, "coin_flip", "complex_arithmetic", "propositional_logic", "boxnet"])
def test_hostile_answers_earn_next_to_nothing(dataset: str) -> None:
    for text in (
        "9**9**9",
        "1e999999999",
        "nan",
        "[" * 15000,
        "¬" * 15000,
        "\x00",
        "\ud800",
        "9" * 20000,
        "null",
        "factorial(9**9)",
    ):
        assert score(source(dataset), text).score <= 0.05


def test_a_scorer_that_overruns_its_limit_scores_nothing_and_the_next_answer_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "SCORE_LIMIT_S", 0.5)
    slow = "sin(" * 60 + "x" + ")" * 60  # its derivative is simplified without end
    assert score(source("simple_integration"), slow).problem == "Your answer could not be read."
    monkeypatch.undo()
    answer = make(source("chain_sum")).answer
    assert answer is not None
    assert score(source("chain_sum"), answer).score == 1.0


def test_settings_and_levels_reach_the_generator() -> None:
    two_terms = make(source("chain_sum", config='{"max_terms": 2, "max_digits": 1, "min_digits": 1}')).question
    assert two_terms.count("+") + two_terms.count(" - ") == 1
    easy = [make(source("chain_sum", level=0, seed=seed)).question for seed in range(20)]
    hard = [make(source("chain_sum", level=3, seed=seed)).question for seed in range(20)]
    assert {len(re.findall(r"\d+", question)) for question in easy} == {2}
    assert {len(digits) for question in easy for digits in re.findall(r"\d+", question)} == {1}
    assert {len(digits) for question in hard for digits in re.findall(r"\d+", question)} >= {1, 4}  # easier ones stay in


def test_settings_override_those_of_a_level() -> None:
    question = make(source("chain_sum", level=3, config='{"min_terms": 2, "max_terms": 2}')).question
    assert question.count("+") + question.count(" - ") == 1


def test_the_check_is_made_once_per_settings() -> None:
    check("chain_sum", "{}", ())
    before = check.cache_info().hits
    check("chain_sum", "{}", ())
    assert check.cache_info().hits == before + 1
