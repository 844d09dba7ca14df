"""An evaluation that is stopped keeps what it has finished, and goes on without playing, or paying for, it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragen.engines.server_config import ServerConfig
from ragen.errors import BudgetSpent, ConfigError, RagenError, ServerError, StorageError, TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.journal import Journal, place_of
from ragen.evaluation.results import EvaluationResult
from ragen.evaluation.target import evaluate_and_keep, find_target
from ragen.models.config import ModelConfig
from ragen.records import Trajectory
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.environment_config import EnvironmentConfig
from tests.support.corridor import Corridor
from tests.support.finished import Episode
from tests.support.servers import Response, Server, chat, error, serving

WALK = {"walk": EnvironmentConfig(name="corridor", options={"start": 2}, max_turns=3, max_actions=6)}
ROLLOUT = RolloutConfig(sampling=SamplingConfig(max_new_tokens=40), max_failed_frac=0.3, max_replacements_frac=0.0)
RIGHT = "<think>go</think><answer>Right</answer>"


def healthy(number: int, fields: Mapping[str, Any]) -> Response:
    return chat(RIGHT)


def run(folder: Path, server: Server, *, resume: bool = False, **evaluation: Any) -> tuple[EvaluationResult, Path]:
    return evaluate_and_keep(
        find_target("openai:m", ModelConfig(), output_dir=folder),
        WALK,
        EvaluationConfig(**{"num_episodes": 6, **evaluation}),
        ROLLOUT,
        server=ServerConfig(base_url=server.base_url, concurrency=1, max_retries=0),
        resume=resume,
    )


def stopped(folder: Path, server: Server) -> str:
    """Run until the server, which dies in the fourth episode, has stopped the evaluation; the error."""
    server.script = lambda number, fields: chat(RIGHT) if number < 7 else error(502)
    with pytest.raises(TrainingError) as caught:
        run(folder, server)
    return str(caught.value)


def test_a_server_that_dies_in_the_middle_costs_nothing_twice(tmp_path: Path) -> None:
    """Three episodes of two replies are finished. The other three are played in full, six replies, and no more."""
    with serving(healthy) as server:
        whole, _ = run(tmp_path / "whole", server)
        server.requests.clear()
        said = stopped(tmp_path, server)
        assert said.endswith("--resume goes on with the others")
        assert "3 finished episodes are kept in" in said
        server.script, before = healthy, len(server.requests)
        resumed, path = run(tmp_path, server, resume=True)
    assert len(server.requests) - before == 6
    assert (resumed.seeds, resumed.success) == (whole.seeds, whole.success)
    assert resumed.environments["walk"].episodes == whole.environments["walk"].episodes
    assert resumed.num_failed == 2  # the two that the dying server lost are counted all the same
    assert resumed.usage["num_requests"] == 13  # 12, and the one that came before the fourth episode was lost
    assert path.exists()
    assert list(path.parent.glob("*.partial.jsonl")) == []


def test_an_evaluation_that_was_ended_is_read_and_not_played_again(tmp_path: Path) -> None:
    with serving(healthy) as server:
        first, path = run(tmp_path, server)
        num_requests = len(server.requests)
        again, found = run(tmp_path, server, resume=True)
    assert len(server.requests) == num_requests
    assert (again, found) == (first, path)


def test_other_settings_are_another_evaluation_and_the_difference_is_named(tmp_path: Path) -> None:
    with serving(healthy) as server:
        stopped(tmp_path, server)
        with pytest.raises(StorageError, match=r"differs in settings\.temperature; evaluate without --resume"):
            run(tmp_path, server, resume=True, temperature=0.25)


def test_without_resume_a_new_evaluation_leaves_the_stopped_one_alone(tmp_path: Path) -> None:
    with serving(healthy) as server:
        stopped(tmp_path, server)
        server.script = healthy
        run(tmp_path, server)
    (kept,) = (tmp_path / "openai-m" / "eval").glob("*.partial.jsonl")
    assert len(kept.read_text().splitlines()) == 1 + 7 + 5  # the header, replies, three episodes, and the two lost


PRICES: dict[str, Any] = {
    "price_per_million_prompt_tokens": 1e6,
    "price_per_million_sampled_tokens": 1e6,
}  # a reply of 50 + 7 tokens costs 57


def bounded(folder: Path, server: Server, max_cost: float, *, resume: bool = False) -> tuple[EvaluationResult, Path]:
    """Six episodes of two replies: 684 in all."""
    config = ServerConfig(base_url=server.base_url, concurrency=1, max_retries=0, max_cost=max_cost, **PRICES)
    target = find_target("openai:m", ModelConfig(), output_dir=folder)
    return evaluate_and_keep(target, WALK, EvaluationConfig(num_episodes=6), ROLLOUT, server=config, resume=resume)


def reserve(server: Server, number: int) -> int:
    """What the request may cost: a token a byte of the prompt, 64 + 16 a message for the template, and 40 sampled ones."""
    texts = server.texts(number)
    return sum(len(text.encode()) for text in texts) + 64 + 16 * len(texts) + 40


def test_an_evaluation_stops_before_it_costs_more_than_it_may_and_goes_on_with_more(tmp_path: Path) -> None:
    """One reply more than ten would fit if it were a second one, with its longer prompt: the sixth episode begins and no more."""
    with serving(healthy) as server:
        whole, _ = run(tmp_path / "whole", server)
        max_cost = 10 * 57 + reserve(server, 11)
        server.requests.clear()
        with pytest.raises(BudgetSpent) as caught:
            bounded(tmp_path, server, max_cost)
        assert str(caught.value).startswith(f"server.max_cost={max_cost}: 627 is spent and the next reply may cost ")
        assert "raise it to go on; 5 finished episodes are kept in " in str(caught.value)
        assert len(server.requests) == 11
        result, _ = bounded(tmp_path, server, max_cost + 2000, resume=True)
    assert len(server.requests) == 13  # both replies of the sixth episode: it begins anew
    assert result.environments["walk"].episodes == whole.environments["walk"].episodes
    assert result.usage["num_requests"] == 13  # the one of the episode given up was paid as well
    assert result.usage["cost"] == 13 * 57


def test_what_was_paid_before_counts_against_the_bound(tmp_path: Path) -> None:
    with serving(healthy) as server:
        run(tmp_path / "whole", server)
        max_cost = 10 * 57 + reserve(server, 11)
        server.requests.clear()
        with pytest.raises(BudgetSpent, match="627 is spent"):
            bounded(tmp_path, server, max_cost)
        with pytest.raises(BudgetSpent, match="684 is spent"):
            bounded(tmp_path, server, max_cost, resume=True)
    assert len(server.requests) == 12


def test_an_evaluation_that_is_estimated_to_cost_more_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    with (
        serving(healthy) as server,
        pytest.raises(ConfigError, match=r"server\.max_cost=60: the evaluation is estimated to cost"),
    ):
        bounded(tmp_path, server, 60)
    assert server.requests == []
    assert list(tmp_path.iterdir()) == []


def test_a_refused_key_stops_before_anything_is_spent_and_leaves_no_journal(tmp_path: Path) -> None:
    with (
        serving(lambda number, fields: error(401, "wrong key")) as server,
        pytest.raises(ServerError, match=r"^HTTP 401: wrong key$"),
    ):
        run(tmp_path, server)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_key_gets_into_anything_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "sk-canary-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    with serving(lambda number, fields: chat(f"{RIGHT} {canary}") if number < 7 else error(502, canary)) as server:
        with pytest.raises(TrainingError) as caught:
            run(tmp_path, server)
        assert canary not in str(caught.value)
        server.script = lambda number, fields: chat(f"<think>{canary}</think><answer>Right</answer>")
        run(tmp_path, server, resume=True)
    assert server.keys[0] == f"Bearer {canary}"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert all(canary.encode() not in path.read_bytes() for path in written)


@pytest.fixture
def trajectories() -> list[Trajectory]:
    made = [Episode(seed=seed, success=seed == 1).made() for seed in (1, 3)]
    return [replace(each, key=replace(each.key, group=group)) for group, each in enumerate(made)]


def same(left: Trajectory, right: Trajectory) -> bool:
    """Equal in every field; arrays have no plain equality."""
    arrays = [
        all(getattr(a, name).tolist() == getattr(b, name).tolist() for name in ("ids", "mask", "logprobs"))
        and a.prompt == b.prompt
        for a, b in zip(left.segments, right.segments, strict=True)
    ]
    fields = ("key", "turns", "summaries", "final_observation", "end_reason", "success", "truncated", "error")
    return all(arrays) and all(getattr(left, name) == getattr(right, name) for name in fields)


def journal_of(folder: Path, about: Mapping[str, Any], *trajectories: Trajectory) -> Path:
    """The journal of an evaluation that was stopped."""
    journal = Journal(folder, "s", about)
    journal.begin()
    for trajectory in trajectories:
        journal.write([trajectory])
    journal.release()
    return journal.path


@contextmanager
def resumed(folder: Path, about: Mapping[str, Any]) -> Iterator[Journal]:
    journal = Journal.resume(folder, "s", about)
    assert journal is not None
    try:
        yield journal
    finally:
        journal.release()


def test_a_journal_gives_back_trajectories_as_they_were(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    journal_of(tmp_path, {"model": "m"}, *trajectories)
    with resumed(tmp_path, {"model": "m"}) as found:
        for trajectory in trajectories:
            (read,) = found.finished[place_of(trajectory.key)]
            assert same(read, trajectory)


def test_half_a_line_at_the_end_is_cut_without_a_word_and_written_again(
    tmp_path: Path, trajectories: list[Trajectory], caplog: pytest.LogCaptureFixture
) -> None:
    """What a kill -9 in the middle of a write leaves."""
    path = journal_of(tmp_path, {}, *trajectories)
    content = path.read_bytes()
    path.write_bytes(content[:-50])
    with resumed(tmp_path, {}) as found:
        assert list(found.attempts) == [place_of(trajectories[0].key)]
        found.write([trajectories[1]])
    assert path.read_bytes() == content
    assert caplog.messages == []


@pytest.mark.parametrize("damage", [b"\x00\x00\x00", b'[{"key": 1}]', b"[]", b"7"])
def test_a_damaged_line_costs_its_own_episode_and_none_behind_it(
    tmp_path: Path, trajectories: list[Trajectory], caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    path = journal_of(tmp_path, {}, *trajectories)
    header, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + damage + b"\n" + b'{"paid": 3}\n' + last)
    with resumed(tmp_path, {}) as found:
        assert list(found.attempts) == [place_of(trajectories[1].key)]
    assert caplog.messages == [f"{path}: damaged lines are passed over: 1 episodes will be played again, 1 bills are not counted"]


def test_a_journal_of_another_evaluation_is_not_touched(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    """A resume that was refused cut the damaged journals of every other evaluation in the folder."""
    path = journal_of(tmp_path, {"model": "other"}, *trajectories)
    header, first, last = path.read_bytes().splitlines(keepends=True)
    content = header + b"damaged\n" + first + last[:-9]
    path.write_bytes(content)
    assert Journal.resume(tmp_path, "s", {"model": "m"}) is None
    assert Journal.differences(tmp_path, "s", {"model": "m"}) == "; s.partial.jsonl differs in model"
    assert path.read_bytes() == content


@pytest.mark.parametrize("torn", [b"", b'{"format": 2, "mod'])
def test_a_kill_in_the_moment_that_a_journal_is_made_blocks_nothing(
    tmp_path: Path, trajectories: list[Trajectory], torn: bytes
) -> None:
    good = journal_of(tmp_path, {}, *trajectories)
    newer = tmp_path / "s-2.partial.jsonl"
    newer.write_bytes(torn)
    os.utime(newer, (2e9, 2e9))
    with resumed(tmp_path, {}) as found:
        assert (found.path, len(found.finished)) == (good, 2)
    good.unlink()
    assert Journal.resume(tmp_path, "s", {}) is None
    assert Journal.differences(tmp_path, "s", {}) == ""


def test_what_is_no_journal_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "s.partial.jsonl").write_text("not json\n")
    with pytest.raises(StorageError, match=r"s\.partial\.jsonl: not a journal"):
        Journal.resume(tmp_path, "s", {})


def test_a_journal_is_plain_json_that_a_person_can_read(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    path = journal_of(tmp_path, {"model": "m"}, trajectories[0])
    header, episode = map(json.loads, path.read_text().splitlines())
    assert header == {"format": 2, "model": "m"}
    assert episode[0]["turns"][0]["reply"]["text"] == trajectories[0].turns[0].reply.text


def test_a_journal_that_somebody_writes_is_not_gone_on_with(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    path = journal_of(tmp_path, {}, trajectories[0])
    with resumed(tmp_path, {}) as found:
        found.write([trajectories[1]])
        with pytest.raises(StorageError, match=r"s\.partial\.jsonl: another process is writing this evaluation; wait for it"):
            Journal.resume(tmp_path, "s", {})
    with resumed(tmp_path, {}) as again:
        assert (again.path, len(again.finished)) == (path, 2)


def test_two_that_begin_at_the_same_moment_have_journals_of_their_own(tmp_path: Path) -> None:
    """Both have looked for a free name before either has made its file: the name is claimed by making it, not by looking."""
    journals = [Journal(tmp_path / "eval", "s", {"number": number}) for number in range(4)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(Journal.begin, journals))
    headers = [json.loads(journal.path.read_text()) for journal in journals]
    assert [header["number"] for header in headers] == [0, 1, 2, 3]
    for journal in journals:
        journal.release()


def test_a_killed_process_keeps_nobody_from_going_on(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    """The child dies without releasing anything, as by kill -9, after this process has been refused."""
    path = journal_of(tmp_path, {}, trajectories[0])
    holder = (
        "import sys, time; from ragen.evaluation.locks import take; file = open(sys.argv[1], 'r+b');"
        "print(take(file.fileno()), flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        try:
            with pytest.raises(StorageError, match="another process is writing this evaluation"):
                Journal.resume(tmp_path, "s", {})
        finally:
            child.kill()
    with resumed(tmp_path, {}) as found:
        assert len(found.finished) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("scripted:no-such-file", "cannot read"),
        ("scripted:math:no_such_function", "cannot be imported"),
        ("oracle", "has no oracle"),
    ],
)
def test_a_policy_that_cannot_play_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    """Neither one that does not open nor one that opens and is refused by its first episode."""
    monkeypatch.setattr(Corridor, "oracle_action", lambda self: None)
    found = find_target(target, ModelConfig(), output_dir=tmp_path / "runs")
    with pytest.raises(RagenError, match=said):
        evaluate_and_keep(found, WALK, EvaluationConfig(num_episodes=2), ROLLOUT, server=ServerConfig())
    assert list(tmp_path.iterdir()) == []


def test_the_journal_of_an_ended_evaluation_is_let_go_and_gone(tmp_path: Path) -> None:
    """Also where another one was going on beside it: each has its own journal and its own result."""
    other = Journal(tmp_path / "random" / "eval", "step-000000-eval", {"model": "another"})
    other.begin()
    target = find_target("random", ModelConfig(), output_dir=tmp_path)
    _, path = evaluate_and_keep(target, WALK, EvaluationConfig(num_episodes=2), ROLLOUT, server=ServerConfig())
    other.release()
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "step-000000-eval.json",
        "step-000000-eval.parquet",
        "step-000000-eval.partial.jsonl",
    ]
