"""Reading question files and holding questions out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.environments.question_answer.rows import Format, Row, divide, load, read
from ragen.errors import ConfigError

RECORDS = [{"question": "1 + 1?", "answer": "2"}, {"question": "2 + 2?", "answer": 4}]
ROWS = (Row(number=1, question="1 + 1?", answer="2"), Row(number=2, question="2 + 2?", answer="4"))


def write(path: Path, records: list[Any]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        path.write_text(json.dumps(records))
    return path


def numbered(count: int) -> tuple[Row, ...]:
    return tuple(Row(number=n, question=f"What is {n} + {n}?", answer=str(2 * n)) for n in range(count))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_files_are_read(tmp_path: Path, suffix: str) -> None:
    assert read(write(tmp_path / f"file{suffix}", RECORDS), Format()) == ROWS


def test_parquet_files_are_read(tmp_path: Path) -> None:
    records = [{"id": 1, "prompt": "1 + 1?", "gold": 2.0}, {"id": 2, "prompt": "2 + 2?", "gold": 4.0}]
    form = Format(question_field="prompt", answer_field="gold")
    assert [(row.question, row.answer) for row in read(write(tmp_path / "file.parquet", records), form)] == [
        ("1 + 1?", "2.0"),
        ("2 + 2?", "4.0"),
    ]


def test_blank_lines_are_skipped_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text('\n{"question": "a", "answer": "b"}\n\n{"question": "c", "answer": "d"}\n')
    assert [row.number for row in read(path, Format())] == [2, 4]


@pytest.mark.parametrize(
    ("answer", "marker", "expected"),
    [
        ("He has 9 + 9 = 18 left.\n#### 18", "####", "18"),
        ("#### is a marker. #### 7 ", "####", "7"),
        ("So x = 3. The answer is: \\frac{3}{4}", "The answer is:", "\\frac{3}{4}"),
    ],
)
def test_the_answer_is_what_follows_the_last_marker(tmp_path: Path, answer: str, marker: str, expected: str) -> None:
    path = write(tmp_path / "file.jsonl", [{"question": "q", "answer": answer}])
    assert read(path, Format(answer_marker=marker))[0].answer == expected


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        ('{"question": "a", "answer": "b"}\n{"question": ', Format(), "row 2: is not JSON: "),
        (
            '{"question": "a", "anwser": "b"}',
            Format(),
            "row 1: has no field 'answer'; did you mean 'anwser'? (fields: question, anwser)",
        ),
        ('["a", "b"]', Format(), "row 1: must be an object with fields, not list"),
        ('{"question": "a", "answer": null}', Format(), "row 1: field 'answer' must be a text or a number, not 'None'"),
        ('{"question": "a", "answer": NaN}', Format(), "row 1: field 'answer' must be a text or a number, not 'nan'"),
        ('{"question": "a", "answer": true}', Format(), "row 1: field 'answer' must be a text or a number, not 'True'"),
        ('{"question": " ", "answer": "b"}', Format(), "row 1: field 'question' must be a text or a number, not ' '"),
        (
            '{"question": "a", "answer": "18"}',
            Format(answer_marker="####"),
            "row 1: field 'answer' has nothing after the marker '####'",
        ),
        (
            '{"question": "a", "answer": "18 ####"}',
            Format(answer_marker="####"),
            "row 1: field 'answer' has nothing after the marker '####'",
        ),
        ('{"question": "a", "answer": "two"}', Format(numeric=True), "row 1: field 'answer' is not one number: 'two'"),
        ("", Format(), "holds no rows"),
        ("[" * 100_000, Format(), "row 1: is not JSON: "),
    ],
)
def test_a_bad_row_is_named_in_one_line(tmp_path: Path, content: str, form: Format, message: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        read(path, form)
    assert str(error.value).startswith(f"path='{path}': {message}")
    assert "\n" not in str(error.value)


def test_a_misspelt_field_of_a_parquet_file_has_a_near_match(tmp_path: Path) -> None:
    path = write(tmp_path / "file.parquet", [{"question": "a", "anwser": "b"}])
    with pytest.raises(ConfigError, match=r"row 1: has no field 'answer'; did you mean 'anwser'\?"):
        read(path, Format())


@pytest.mark.parametrize("name", ["file.json", "file.jsonl", "file.parquet"])
def test_a_file_of_another_kind_than_it_says_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe\x00 not such a file")
    with pytest.raises(ConfigError, match="cannot be read") as error:
        read(path, Format())
    assert "\n" not in str(error.value)


def test_a_json_file_must_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"data": []}')
    with pytest.raises(ConfigError, match="must be a list of objects, not dict"):
        read(path, Format())


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent.jsonl", "cannot be read: No such file"), ("table.csv", "must end in one of .json, .jsonl, .parquet")],
)
def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / name, None, form=Format(), validation_frac=0.1)


@given(st.permutations(range(60)), st.sampled_from([0.1, 0.3, 0.5]))
def test_no_question_is_in_both_parts_whatever_the_order_and_repetition(order: list[int], frac: float) -> None:
    rows = numbered(60)
    parts = divide(tuple(rows[n] for n in order) + rows, frac)
    train, validation = ({row.question for row in part} for part in (parts.train, parts.validation))
    assert not train & validation
    assert train | validation == {row.question for row in rows}
    assert validation == {row.question for row in divide(rows, frac).validation}


def test_case_and_spacing_do_not_carry_a_question_across() -> None:
    rows = tuple(
        Row(number=n, question=text, answer="1") for n, text in enumerate(("What is  it?", "what is it? ", "WHAT IS IT?"))
    )
    for frac in (0.1, 0.5, 0.9):
        parts = divide(rows, frac)
        assert {len(parts.train), len(parts.validation)} == {0, 3}


def test_about_the_wanted_share_is_held_out() -> None:
    # Five standard deviations of a Bernoulli(0.1) share of 4000: 5 * sqrt(0.1 * 0.9 / 4000) = 0.024.
    assert abs(len(divide(numbered(4000), 0.1).validation) / 4000 - 0.1) < 0.024


def test_without_a_validation_part_both_splits_use_every_row() -> None:
    parts = divide(numbered(3), 0.0)
    assert parts.train == parts.validation == numbered(3)


def test_a_part_without_rows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "file.jsonl", RECORDS[:1])
    with pytest.raises(ConfigError, match=r"^validation_frac=0.5: leaves no (training|validation) row of the 1 in '"):
        load(path, None, form=Format(), validation_frac=0.5)


def test_a_validation_file_may_not_repeat_a_training_question(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", RECORDS)
    other = write(tmp_path / "other.jsonl", [{"question": "3 + 3?", "answer": 6}])
    parts = load(path, other, form=Format(), validation_frac=0.1)
    assert (len(parts.train), [row.question for row in parts.validation]) == (2, ["3 + 3?"])
    leak = write(tmp_path / "leak.jsonl", [{"question": "3 + 3?", "answer": 6}, {"question": "2 +  2?", "answer": 4}])
    with pytest.raises(ConfigError, match=r"^validation_path='.*leak.jsonl': row 2 asks what row 2 of '.*train.jsonl' asks$"):
        load(path, leak, form=Format(), validation_frac=0.1)


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "file.jsonl", RECORDS)
    first = load(path, None, form=Format(), validation_frac=0.0)
    assert load(path, None, form=Format(), validation_frac=0.0) is first
    write(path, [*RECORDS, {"question": "5 + 5?", "answer": 10}])
    os.utime(path, ns=(1, 1))
    assert len(load(path, None, form=Format(), validation_frac=0.0).train) == 3
