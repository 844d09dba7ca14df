"""Episodes as text for trackers: the same seeds every time, and nothing that a model says becomes markup."""

from __future__ import annotations

from ragen.records import Verdict
from ragen.training.shown import COLUMNS, as_messages, as_row, as_text, chosen
from tests.support.finished import Episode, Played

TALK = Episode(
    seed=7,
    success=True,
    turns=(
        Played(observation="# Choose", text="<think>hm</think>", reward=-0.1, verdict=Verdict.NO_ANSWER),
        Played(observation="Again", text="left\n\n**now**", reward=1.0),
    ),
).made()


def test_the_first_episodes_of_each_environment_are_shown_however_they_went() -> None:
    played = [Episode(seed=seed, tag=tag).made() for tag in ("a", "b") for seed in (1, 3, 5)]
    assert [(t.key.environment, t.key.task_seed) for t in chosen(played, 2)] == [("a", 1), ("a", 3), ("b", 1), ("b", 3)]


def test_the_text_tells_everything_in_order_with_what_was_paid() -> None:
    assert as_text(TALK) == (
        "**bandit, seed 7: solved, return +0.90**\n\nuser\n\n    # Choose\n\nassistant, reward -0.10\n\n    <think>hm</think>\n\n"
        "user\n\n    Again\n\nassistant, reward +1.00\n\n    left\n    \n    **now**"
    )


def test_a_row_has_the_columns_and_a_seed_that_no_float_rounds() -> None:
    row = dict(zip(COLUMNS, as_row(Episode(seed=2**63 - 1).made()), strict=True))
    assert row["seed"] == str(2**63 - 1)
    assert (row["environment"], row["success"], row["end"], row["return"]) == ("bandit", False, "failed", 0.0)


def test_messages_are_plain() -> None:
    assert as_messages(TALK) == [
        {"role": "user", "content": "# Choose"},
        {"role": "assistant", "content": "<think>hm</think>"},
        {"role": "user", "content": "Again"},
        {"role": "assistant", "content": "left\n\n**now**"},
    ]
