"""The three benchmarks on the tiny model: our own side really works, in this process, peers answer what they are told."""

from __future__ import annotations

import json

import pytest

from ragen.benchmark import ceilings, suite
from ragen.benchmark.flops import PackedGroup
from ragen.benchmark.sides import AnyWork, Side
from ragen.benchmark.sizes import QUICK
from ragen.benchmark.suite import Options, bench_rollout, bench_step, bench_update
from ragen.benchmark.tasks import bandit_prompts, sokoban_conversations
from ragen.benchmark.work import Answer, StepWork
from ragen.errors import ConfigError
from ragen.models.tokenizer import load_tokenizer
from tests.support.benchmarks import InThisProcess

OPTIONS = Options(model="tiny", threads=1, rounds=1, repeats=1, sizes=QUICK)
HOUR = 3600.0


class Slow(Side):
    """A peer that takes an hour and eight GiB for everything, and keeps what it was asked."""

    asked: list[AnyWork] = []  # noqa: RUF012  (emptied by the fixture)

    def ask(self, work: AnyWork) -> Answer:
        self.asked.append(work)
        return Answer(package=f"{self.name} 9", seconds=(HOUR,), num_tokens=1, peak_bytes=8 * 2**30)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AnyWork]:
    """No process is started; every peer but trl is there."""

    def find(name: str, kind: str, given: dict[str, str]) -> Side | str:
        return f"{name}: no environment" if name in given else Slow(name=name, command=())

    monkeypatch.setattr(suite, "own_side", InThisProcess)
    monkeypatch.setattr(suite, "find_peer", find)
    monkeypatch.setattr(suite, "environment_ratios", lambda: ([], {}))
    monkeypatch.setattr(Slow, "asked", [])
    monkeypatch.setattr(ceilings, "SQUARE", 64)
    monkeypatch.setattr(ceilings, "COPIED_BYTES", 2**20)
    return Slow.asked


def test_rollouts_are_compared_on_the_same_prompts_and_token_counts(asked: list[AnyWork]) -> None:
    report = bench_rollout(OPTIONS, lambda line: None)
    assert [result.name for result in report.results] == ["groups", "sokoban"]
    own = [result.timings[0] for result in report.results]
    assert own[0].num_tokens == QUICK.num_prompts * QUICK.num_samples * QUICK.new_tokens
    assert [work.kind for work in asked] == ["rollout"] * 3  # both peers, then vLLM alone
    assert asked[0] == asked[1] != asked[2]
    assert report.ratios["vllm"].keys() == {"groups", "sokoban"}
    assert report.ratios["transformers"] == {"groups": pytest.approx(HOUR / own[0].median_s)}
    assert all(share.value > 0 for share in report.shares)
    json.dumps(report.to_json(), allow_nan=False)


def test_a_step_is_compared_in_seconds_and_in_memory(asked: list[AnyWork]) -> None:
    report = bench_step(OPTIONS, lambda line: None)
    (work,) = asked
    assert isinstance(work, StepWork)
    assert len(work.prompts) == QUICK.num_prompts * 2  # one step that is timed, one that is not
    own = report.results[0].timings[0]
    assert own.num_tokens == QUICK.num_prompts * QUICK.num_samples * QUICK.step_tokens  # nobody stops early
    assert report.ratios["trl"] == {
        "step": pytest.approx(HOUR / own.median_s),
        "step_peak_memory": pytest.approx(8 * 2**30 / own.peak_bytes),
    }
    (details,) = (answer.details for answer in own.answers)
    assert own.median_s == pytest.approx(details["rollout_s"][0] + details["update_s"][0])


def test_an_update_is_set_against_the_matrix_rate_and_grows_with_the_group() -> None:
    report = bench_update(OPTIONS, lambda line: None)
    assert [result.name for result in report.results] == ["update", "group_of_2", "group_of_4"]
    fed = [row["num_trained"] for row in report.figures["growth"]]
    assert fed == [2 * QUICK.step_tokens, 4 * QUICK.step_tokens]
    (share,) = report.shares
    assert share.measured == pytest.approx(report.figures["update_flops"]["total"] / report.results[0].timings[0].median_s)
    assert share.ceiling == report.ceilings["flops_per_s"]
    groups = [PackedGroup(**group) for group in report.results[1].timings[0].answers[0].details["groups"]]
    assert [group.continuations for group in groups] == [(QUICK.step_tokens - 1,) * 2]  # the last token is never fed


def test_an_absent_peer_is_skipped_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(model="tiny", threads=1, rounds=1, repeats=1, sizes=QUICK, peers={"trl": "absent"})
    report = bench_step(options, lambda line: None)
    assert report.skipped == {"trl": "trl: no environment"}
    assert report.ratios["trl"] == {}


@pytest.mark.parametrize("name", ["threads", "rounds", "repeats"])
def test_a_count_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name} 0: must be at least 1"):
        bench_step(Options(**{"model": "tiny", name: 0}), lambda line: None)  # type: ignore[arg-type]


def test_recorded_conversations_are_those_of_the_agent_loop() -> None:
    """Members of a room share what they read first; every later turn reads an observation behind the reply before it."""
    tokenizer = load_tokenizer("tiny")
    talks = sokoban_conversations(tokenizer, QUICK)
    assert len(talks) == QUICK.num_rooms * QUICK.num_members
    assert talks[0][0].observed == talks[1][0].observed != talks[2][0].observed
    assert "Sokoban" in tokenizer.decode(talks[0][0].observed)
    later = [turn for talk in talks for turn in talk[1:]]
    assert later
    assert all("<|im_start|>user" in tokenizer.decode(turn.observed) for turn in later)
    assert all(turn.num_new > 2 for talk in talks for turn in talk)
    assert talks == sokoban_conversations(tokenizer, QUICK)  # the same whenever they are recorded


def test_the_bandit_s_prompts_read_as_the_template_renders_them() -> None:
    work = StepWork(**OPTIONS.of_work(), num_groups=2, group_size=4, new_tokens=4, lora_rank=2)
    prompts = bandit_prompts(work)
    assert len(prompts) == 4
    assert all(prompt.startswith("<|im_start|>system") and prompt.endswith("assistant\n<think>") for prompt in prompts)
