"""question_answer as an environment."""

from __future__ import annotations

import importlib.util
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ragen.environments import registry
from ragen.environments.checker import check_environment
from ragen.environments.question_answer.env import EXAMPLES, QuestionAnswerConfig, QuestionAnswerEnv
from ragen.environments.question_answer.scorers import SCORERS
from ragen.errors import ConfigError
from tests.support.fresh_process import first_prompt, first_prompt_elsewhere

NAME = "ragen.environments.question_answer.env:QuestionAnswerEnv"
needs_library = pytest.mark.skipif(find_spec("math_verify") is None, reason="needs math-verify")


@pytest.fixture
def capitals(tmp_path: Path) -> str:
    """Forty questions in the fields q and a."""
    path = tmp_path / "capitals.jsonl"
    path.write_text("".join(json.dumps({"q": f"What is city {n} called?", "a": f"City {n}"}) + "\n" for n in range(40)))
    return str(path)


@needs_library
@pytest.mark.parametrize("options", [{}, {"scorer": "exact", "num_attempts": 1}])
def test_it_keeps_the_contract(options: dict[str, Any]) -> None:
    check_environment(NAME, options)


@needs_library
def test_every_example_question_is_solved_by_its_answer() -> None:
    rows = QuestionAnswerConfig().load()
    assert len(rows.train) + len(rows.validation) == len(EXAMPLES.read_text().splitlines()) == 24
    for row in (*rows.train, *rows.validation):
        assert SCORERS["math"](row.answer, row.answer).score == 1.0


def test_training_seeds_and_validation_seeds_ask_different_questions(capitals: str) -> None:
    env = QuestionAnswerEnv(QuestionAnswerConfig(path=capitals, question_field="q", answer_field="a", scorer="exact"))
    train = {env.reset(seed=seed)[0] for seed in range(0, 1000, 2)}
    validation = {env.reset(seed=seed)[0] for seed in range(1, 1000, 2)}
    assert not train & validation
    assert len(train | validation) == 40


def test_a_file_with_other_fields_is_asked_and_scored(capitals: str) -> None:
    env = QuestionAnswerEnv(QuestionAnswerConfig(path=capitals, question_field="q", answer_field="a", scorer="exact"))
    question, _ = env.reset(seed=0)
    number = question.removeprefix("What is city ").removesuffix(" called?")
    assert env.step("Paris")[:3] == ("Wrong. Attempts left: 4.", 0.0, False)
    assert env.step(f"city  {number}.")[:3] == ("Correct.", 0.5, True)


def test_gold_answers_in_the_manner_of_gsm8k(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(json.dumps({"question": "How much is left?", "answer": "20 - 2 = <<20-2=18>>18\n#### 18"}))
    config = QuestionAnswerConfig(path=str(path), answer_marker="####", validation_frac=0.0, scorer="numeric")
    env = QuestionAnswerEnv(config)
    env.reset(seed=0)
    assert env.oracle_action() == "18"
    assert env.step("$18.00")[1] == 1.0
    assert "one number" in env.instruction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "absent.jsonl", "scorer": "exact"}, "path='absent.jsonl': cannot be read: No such file or directory"),
        ({"scorer": "exakt"}, "scorer='exakt': must be one of math, exact, numeric; did you mean 'exact'?"),
        ({"scorer": "exact", "validation_frac": 1.0}, "validation_frac=1.0: must be at least 0 and below 1"),
        ({"scorer": "exact", "answer_marker": " "}, "answer_marker=' ': must hold visible text; null for none"),
        (
            {"scorer": "numeric"},
            f"path='{EXAMPLES}': row 3: field 'answer' is not one number: " + repr("\\frac{5}{6}"),
        ),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        registry.configure(NAME, options, where="env")
    assert str(error.value) == f"env.{message}"


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        registry.configure(NAME, {}, where="env")
    assert str(error.value) == "env.scorer='math': needs the package math-verify: pip install 'ragen-rl[reasoning]'"
    registry.configure(NAME, {"scorer": "exact"})  # which needs nothing


@needs_library
def test_the_first_prompt_is_the_same_in_another_process() -> None:
    assert first_prompt_elsewhere(NAME, {}, 11, hash_seed=5) == first_prompt(NAME, {}, 11)
