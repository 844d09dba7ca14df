"""Fine-tuning data: the ids as they were sampled, their mask, and chats that say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragen.evaluation.export import find_source
from ragen.evaluation.export_sft import MESSAGES, TOKENS, message_rows, token_rows, write_sft
from ragen.records import UNKNOWN_ID, Summary, Trajectory
from tests.evaluation.test_export import LOST, WON, recorded
from tests.rollout.test_messages import MODES, played
from tests.support.contexts import Played
from tests.support.invariants import written
from tests.support.tokenizers import CHATML, T_STRIP

SUMMED = {"overflow": "summarise", "summary_tokens": 30, "summarise_every": 2}


def spans(row: dict[str, Any]) -> list[list[int]]:
    """The runs of ids under the mask."""
    found: list[list[int]] = []
    last = 0
    for i, bit in zip(np.asarray(row["input_ids"]).tolist(), np.asarray(row["assistant_masks"]).tolist(), strict=True):
        if bit and not last:
            found.append([])
        if bit:
            found[-1].append(i)
        last = bit
    return found


def decoded(episode: Played, ids: list[int]) -> str:
    return str(episode.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("template", [CHATML, T_STRIP], ids=["appends", "strips"])
@pytest.mark.parametrize("config", MODES, ids=str)
def test_the_ids_under_the_mask_are_what_the_completions_say(template: str, config: dict[str, Any]) -> None:
    """Decoded by the tokenizer alone, behind the prefix that the prompt ends with. No turn is lost or told twice."""
    episode = played(template, **config)
    sampled = [decoded(episode, ids) for row in token_rows(episode.trajectory) for ids in spans(row)]
    said = [row["completion"][0]["content"] for row in message_rows(episode.trajectory)]
    said = [text.removeprefix(episode.context.format.prefix) for text in said]
    assert len(said) == len(episode.trajectory.turns) + len(episode.trajectory.summaries)
    # An empty reply has no ids, so it is a message and no span. Of a summary, the thought before it is no part.
    pairs = [(text, part) for text, part in zip(said, written(episode.trajectory), strict=True) if text]
    for whole, (text, part) in zip(sampled, pairs, strict=True):
        assert whole.endswith(text) if isinstance(part, Summary) else whole == text


def test_a_segment_is_a_row_with_its_ids_untouched() -> None:
    episode = played(CHATML, mode="window", window=2)
    rows = list(token_rows(episode.trajectory))
    kept = [segment for segment in episode.trajectory.segments if segment.mask.any()]
    assert [row["input_ids"].tolist() for row in rows] == [segment.ids.tolist() for segment in kept]
    assert [row["assistant_masks"].astype(bool).tolist() for row in rows] == [segment.mask.tolist() for segment in kept]


def test_a_summary_that_the_run_does_not_train_is_read_and_not_learned() -> None:
    trained, untrained = (played(CHATML, **SUMMED, train_summaries=flag).trajectory for flag in (True, False))
    learned = [sum(int(row["assistant_masks"].sum()) for row in token_rows(t)) for t in (trained, untrained)]
    (summary,) = untrained.summaries
    assert learned[0] - learned[1] == summary.stop - summary.start > 0
    assert len(list(message_rows(trained))) == len(list(message_rows(untrained))) + 1


def test_a_policy_without_known_ids_gives_messages_alone() -> None:
    trajectory = played(CHATML).trajectory
    blank = tuple(replace(s, ids=np.full_like(s.ids, UNKNOWN_ID)) for s in trajectory.segments)
    unknown: Trajectory = replace(trajectory, segments=blank)
    assert list(token_rows(unknown)) == []
    assert len(list(message_rows(unknown))) == 4


def test_both_files_are_there_with_successes_only(tmp_path: Path) -> None:
    path = recorded(tmp_path / "rollouts", WON, LOST)
    written = write_sft(find_source(path, keep="successes"), tmp_path / "sft")
    assert sorted(each.name for each in written.path.iterdir()) == [MESSAGES, TOKENS]
    table = pq.read_table(written.path / TOKENS)
    assert table["input_ids"].to_pylist() == [[1, 2, 7, 7, 7, 3, 4, 5, 7, 7, 7, 3, 4, 5]]
    assert table["assistant_masks"].to_pylist() == [[0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0]]
    rows = [json.loads(line) for line in (written.path / MESSAGES).read_text(encoding="utf-8").splitlines()]
    user = {"role": "user", "content": "Choose an arm."}
    assert [row["prompt"] for row in rows] == [[user], [user, {"role": "assistant", "content": "a"}, user]]
    assert [row["completion"] for row in rows] == [[{"role": "assistant", "content": text}] for text in "ab"]
    assert (written.num_episodes, written.num_rows) == (1, 2)
