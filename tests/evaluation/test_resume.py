"""An evaluation that is stopped keeps what it has finished, and goes on without playing, or paying for, it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragen.engines.server_config import ServerConfig
from ragen.errors import BudgetSpent, ConfigError, ServerError, StorageError, TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.journal import Journal, place_of
from ragen.evaluation.results import EvaluationResult
from ragen.evaluation.target import evaluate_and_keep, find_target
from ragen.models.config import ModelConfig
from ragen.records import Trajectory
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.environment_config import EnvironmentConfig
from tests.support import corridor as _registered  # noqa: F401 - registers the environment
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
    assert list((tmp_path / "openai-m" / "eval").iterdir()) == []


def test_a_refused_key_stops_before_anything_is_spent_and_leaves_no_journal(tmp_path: Path) -> None:
    with (
        serving(lambda number, fields: error(401, "wrong key")) as server,
        pytest.raises(ServerError, match=r"^HTTP 401: wrong key$"),
    ):
        run(tmp_path, server)
    assert len(server.requests) == 1
    assert list((tmp_path / "openai-m" / "eval").iterdir()) == []


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


def test_a_journal_gives_back_trajectories_as_they_were(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    journal = Journal.begin(tmp_path, "step-000000-eval", {"model": "m"})
    for trajectory in trajectories:
        journal.write([trajectory])
    found = Journal.resume(tmp_path, "step-000000-eval", {"model": "m"})
    assert found is not None
    for trajectory in trajectories:
        (read,) = found.finished[place_of(trajectory.key)]
        assert same(read, trajectory)


def test_half_a_line_at_the_end_is_passed_over_and_written_over(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    """What a kill -9 in the middle of a write leaves."""
    journal = Journal.begin(tmp_path, "s", {})
    journal.write([trajectories[0]])
    size = journal.path.stat().st_size
    journal.write([trajectories[1]])
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[: size + (len(content) - size) // 2])
    found = Journal.resume(tmp_path, "s", {})
    assert found is not None
    assert list(found.attempts) == [place_of(trajectories[0].key)]
    found.write([trajectories[1]])
    assert journal.path.read_bytes() == content


def test_what_is_no_journal_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "s.partial.jsonl").write_text("not json\n")
    with pytest.raises(StorageError, match=r"s\.partial\.jsonl: not a journal"):
        Journal.resume(tmp_path, "s", {})


def test_a_journal_is_plain_json_that_a_person_can_read(tmp_path: Path, trajectories: list[Trajectory]) -> None:
    journal = Journal.begin(tmp_path, "s", {"model": "m"})
    journal.write([trajectories[0]])
    header, episode = map(json.loads, journal.path.read_text().splitlines())
    assert header == {"format": 2, "model": "m"}
    assert episode[0]["turns"][0]["reply"]["text"] == trajectories[0].turns[0].reply.text
