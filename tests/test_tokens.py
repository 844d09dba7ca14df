"""An episode token by token: what is shown is what is trained, in every context mode."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tests.support.episodes  # noqa: F401  (registers "corridor" and "ticket")
from ragen.config.load import load
from ragen.config.schema import Config
from ragen.errors import ConfigError, EnvironmentFailure, TrainingError
from ragen.models.tokenizer import load_tokenizer
from ragen.models.traced_template import Origin
from ragen.records import FinishReason, Summary, Turn, Verdict
from ragen.rollout import transcript
from ragen.tokens import SUMMARY, Author, Passage, TokenTrace, trace_episode
from tests.support.models import tiny_llama
from tests.support.tokenizers import T_STRIP

ROOM = ("rollout.context.max_context_tokens=100000", "rollout.sampling.max_new_tokens=200")
LEFT = "go</think><answer>Left</answer>"
SUMMARISING = ("rollout.context.overflow=summarise", "rollout.context.summarise_every=1")
MODES = {
    "full": (),
    "window": ("rollout.context.mode=window", "rollout.context.window=2"),
    "single_turn": ("rollout.context.mode=single_turn",),
    "summaries trained": SUMMARISING,
    "summaries not trained": (*SUMMARISING, "rollout.context.train_summaries=false"),
    "no room for more than two turns": ("rollout.context.max_context_tokens=560", "rollout.context.overflow=drop"),
}


def config(*overrides: str, env: str = "corridor", model: Path | None = None) -> Config:
    limits = [f"environments.{env}.max_turns=4", f"environments.{env}.max_actions=6"]
    return load("bandit_tiny", [f"env={env}", f"model.name={model or tiny_llama()}", *limits, *ROOM, *overrides])


def traced(*overrides: str, env: str = "corridor", model: Path | None = None, **options: Any) -> TokenTrace:
    return trace_episode(config(*overrides, env=env, model=model), env, **{"author": None, "seed": 3, **options})


def said(passage: Passage) -> str:
    return "".join(token.text for token in passage.tokens)


@pytest.mark.parametrize("mode", MODES)
def test_every_token_of_every_segment_is_shown_once_and_in_order(mode: str) -> None:
    trace = traced(*MODES[mode], author=Author.SCRIPT, replies=[LEFT])
    for index, segment in enumerate(trace.trajectory.segments):
        shown = [token for passage in trace.passages if passage.segment == index for token in passage.tokens]
        assert [token.id for token in shown] == segment.ids.tolist()
        assert [token.origin is Origin.SAMPLED for token in shown] == segment.mask.tolist()
    assert sum(trace.counts.values()) == sum(len(segment.ids) for segment in trace.trajectory.segments)


@pytest.mark.parametrize("mode", MODES)
def test_trained_are_the_completions_but_for_summaries_that_are_not_to_be(mode: str) -> None:
    trace = traced(*MODES[mode], author=Author.SCRIPT, replies=[LEFT])
    for passage in trace.passages:
        expected = passage.is_completion and (isinstance(passage.completion, Turn) or mode == "summaries trained")
        assert all(token.trained is expected for token in passage.tokens)
        if isinstance(passage.completion, Summary) and passage.is_completion:
            assert said(passage) == f"{SUMMARY}<|im_end|>"
        elif passage.is_completion:
            assert said(passage) == LEFT


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("full", "no room for more than two turns")])
def test_a_mode_that_forgets_has_several_segments(mode: str) -> None:
    assert len(traced(*MODES[mode], author=Author.SCRIPT, replies=[LEFT]).trajectory.segments) == 3 + (mode[0] == "s")


def test_prompts_that_were_made_but_found_too_long_are_passed_over() -> None:
    trace = traced(*MODES["no room for more than two turns"], author=Author.SCRIPT, replies=[LEFT])
    assert len(trace.trajectory.segments) > 1
    assert len(trace.trajectory.turns) == 4


def test_earlier_replies_are_told_again_where_a_prompt_is_built_anew() -> None:
    trace = traced(*MODES["window"], author=Author.SCRIPT, replies=[LEFT])
    retold = ["".join(t.text for t in p.tokens if t.origin is Origin.RETOLD) for p in trace.passages if not p.is_completion]
    assert retold == ["", "", f"<think>{LEFT}", f"<think>{LEFT}"]


def test_a_template_that_drops_thoughts_tells_replies_without_them(tmp_path: Path) -> None:
    """bug-log row 5: a thought of an earlier turn is not in the later prompt, and is trained where it was sampled."""
    tokenizer = load_tokenizer(tiny_llama())
    for file in tiny_llama().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer.chat_template = T_STRIP
    tokenizer.save_pretrained(tmp_path)
    trace = traced(model=tmp_path, author=Author.SCRIPT, replies=[LEFT], num_turns=2)
    first, second = (passage for passage in trace.passages if not passage.is_completion)
    assert "".join(token.text for token in second.tokens if token.origin is Origin.RETOLD) == "<answer>Left</answer>"
    assert len(trace.trajectory.segments) == 2
    assert Origin.RETOLD not in {token.origin for token in first.tokens}


def test_a_prompt_ends_with_the_forced_prefix_and_holds_the_observation() -> None:
    trace = traced(num_turns=1)
    prompt = trace.passages[0]
    assert "".join(token.text for token in prompt.tokens if token.origin is Origin.PREFIX) == "<think>"
    environment = "".join(token.text for token in prompt.tokens if token.origin is Origin.ENVIRONMENT)
    assert "Walk to G. Actions: Left, Right." in environment
    assert "<|im_start|>" not in environment


def test_the_oracle_plays_where_there_is_one_and_chance_elsewhere() -> None:
    oracle, chance = traced(), traced(env="ticket")
    assert (oracle.author, oracle.trajectory.success) == (Author.ORACLE, True)
    assert chance.author is Author.CHANCE
    with pytest.raises(ConfigError, match=r"^--oracle: environment 'ticket' has no oracle"):
        traced(env="ticket", author=Author.ORACLE)


def test_a_script_says_its_replies_in_order_and_the_last_one_again() -> None:
    trace = traced(author=Author.SCRIPT, replies=["no tags", LEFT])
    assert [said(passage) for passage in trace.passages if passage.is_completion] == ["no tags<|im_end|>", LEFT, LEFT, LEFT]


def test_a_reply_that_is_too_long_is_cut_as_a_model_s_would_be() -> None:
    trace = traced("rollout.sampling.max_new_tokens=5", author=Author.SCRIPT, replies=[LEFT], num_turns=1)
    (turn,) = trace.trajectory.turns
    assert (turn.finish_reason, turn.reply.verdict) == (FinishReason.LENGTH, Verdict.TRUNCATED)
    assert [len(passage.tokens) for passage in trace.passages if passage.is_completion] == [5]


def test_only_so_many_turns_are_shown_and_the_prompts_stay_as_they_are() -> None:
    part, whole = (traced(author=Author.SCRIPT, replies=[LEFT], num_turns=n) for n in (2, None))
    assert [passage.tokens for passage in part.passages] == [passage.tokens for passage in whole.passages[:4]]
    assert (part.is_cut, whole.is_cut) == (True, False)
    assert part.to_json()["end_reason"] is None
    assert whole.to_json()["end_reason"] == "turn_limit"


def test_log_probs_are_shown_where_the_model_sampled() -> None:
    room = ("rollout.sampling.max_new_tokens=6", "rollout.context.max_context_tokens=1000")
    trace = traced(*room, author=Author.MODEL, num_turns=1)
    read, sampled = (passage.tokens for passage in trace.passages)
    segment = trace.trajectory.segments[0]
    assert [token.logprob for token in sampled] == segment.logprobs[segment.mask].tolist()
    assert all(token.logprob < 0 for token in sampled if token.logprob is not None)
    assert {token.logprob for token in read} == {None}


def test_without_a_model_s_reply_there_is_no_log_prob() -> None:
    assert {token.logprob for token in traced().tokens} == {None}


def test_everything_goes_into_json() -> None:
    trace = traced(*MODES["summaries trained"], author=Author.SCRIPT, replies=[LEFT])
    data = json.loads(json.dumps(trace.to_json(), allow_nan=False))
    first, *_, last = data["segments"][0]
    assert first == {
        "id": 1,
        "text": "<|im_start|>",
        "origin": "template",
        "merged": False,
        "trained": False,
        "logprob": None,
        "turn": 1,
        "summary": None,
    }
    assert (last["turn"], last["summary"], last["trained"]) == (None, 1, True)
    tokens = [token for segment in data["segments"] for token in segment]
    assert data["counts"] == Counter(token["origin"] for token in tokens)
    assert data["num_trained"] == sum(token["trained"] for token in tokens) == data["counts"]["sampled"]
    assert {finding["topic"] for finding in data["findings"]} >= {"several turns", "stops"}


def test_a_trajectory_that_is_not_what_was_sampled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "digest_of", lambda ids, logprobs: "0" * 16)
    with pytest.raises(TrainingError, match="turn 1: the digest"):
        traced(num_turns=1)


def test_an_environment_that_breaks_off_is_an_error() -> None:
    with pytest.raises(EnvironmentFailure, match="Broken: step 2"):
        traced("environments.corridor.options.raise_at_step=2", author=Author.SCRIPT, replies=[LEFT])
