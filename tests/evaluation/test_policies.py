"""Every kind of policy through the same coroutine: servers, the oracle, chance, scripts, a person."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragen.engines.config import EngineConfig
from ragen.engines.scripted import ScriptedEngine
from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError, TrainingError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.kinds import Kind, kind_of
from ragen.evaluation.results import EvaluationResult, from_json, to_json
from ragen.evaluation.target import Person, Target, check_effect, evaluate_target, find_target
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.records import UNKNOWN_ID, ChatMessage
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.environment_config import EnvironmentConfig
from tests.support import corridor as _registered  # noqa: F401 - registers the environment
from tests.support.servers import Response, chat, error, in_turn, serving
from tests.support.tokenizers import make_tokenizer

WALK = {"walk": EnvironmentConfig(name="corridor", options={"start": 2}, max_turns=3, max_actions=6)}
ROLLOUT = RolloutConfig(sampling=SamplingConfig(max_new_tokens=40))
RIGHT = "<think>go</think><answer>Right</answer>"


def target(name: str) -> Target:
    return find_target(name, ModelConfig(), output_dir=Path("runs"))


def measured(name: str, episodes: int = 2, rollout: RolloutConfig = ROLLOUT, **options: Any) -> EvaluationResult:
    environments = options.pop("environments", WALK)
    return evaluate_target(target(name), environments, EvaluationConfig(num_episodes=episodes), rollout, **options)


def right(messages: Sequence[ChatMessage], names: Sequence[str] | None) -> str:
    """A script: sees the chat and the actions."""
    assert messages[0].role == "system"
    assert names == ("Left", "Right")
    return "Right"


def broken(messages: Sequence[ChatMessage], names: Sequence[str] | None) -> str:
    raise RuntimeError("lost")


def test_what_a_target_names() -> None:
    assert kind_of("openai:org/model:free") == (Kind.OPENAI, "org/model:free")
    assert kind_of("anthropic:m") == (Kind.ANTHROPIC, "m")
    assert kind_of("scripted:a.txt") == (Kind.SCRIPTED, "a.txt")
    assert kind_of("oracle") == (Kind.ORACLE, "oracle")
    assert kind_of("HuggingFaceTB/SmolLM2") == (Kind.MODEL, "HuggingFaceTB/SmolLM2")
    with pytest.raises(ConfigError, match=r"opanai:m: 'opanai' must be one of .*; did you mean 'openai'\?"):
        kind_of("opanai:m")
    with pytest.raises(ConfigError, match="openai: names nothing; write openai:MODEL"):
        kind_of("openai:")


def test_the_oracle_walks_to_the_goal_and_chance_plays_the_same_again() -> None:
    """From cell 2, Right twice: -0.1 + 1."""
    oracle = measured("oracle")
    assert (oracle.model, oracle.success.mean, oracle.environments["walk"].return_.mean) == ("oracle", 1.0, 0.9)
    chance = [measured("random", episodes=5) for _ in range(2)]
    assert chance[0].environments == chance[1].environments
    assert len({tuple(turn.executed for turn in t.turns) for t in chance[0].trajectories}) > 1


def test_a_script_is_a_file_of_answers_or_a_function_of_the_chat(tmp_path: Path) -> None:
    """From cell 2: Left, Right, Right, then again Right; three turns do not suffice. The function always says Right."""
    script = tmp_path / "script.txt"
    script.write_text("Left\nRight\n", encoding="utf-8")
    lines = measured(f"scripted:{script}", episodes=1)
    assert [turn.executed for turn in lines.trajectories[0].turns] == [("Left",), ("Right",), ("Right",)]
    assert measured(f"scripted:{__name__}:right").success.mean == 1.0


def test_a_script_that_cannot_be_had_or_that_raises_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scripted:no_such_module:f: cannot be imported"):
        measured("scripted:no_such_module:f")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(ConfigError, match="holds no line"):
        measured(f"scripted:{empty}")
    with pytest.raises(TrainingError, match=r"broken: RuntimeError: lost"):
        measured(f"scripted:{__name__}:broken")


def test_a_person_plays_one_episode_after_the_other() -> None:
    """What is shown of each: the whole chat first, then each new message."""
    shown: list[str] = []
    person = Person(stream=io.StringIO("Right\nRight\nLeft\nRight\nRight\n"), show=shown.append)
    result = measured("human", person=person)
    assert [trajectory.success for trajectory in result.trajectories] == [True, False]
    assert [turn.executed for turn in result.trajectories[1].turns] == [("Left",), ("Right",), ("Right",)]
    assert ["Walk to G" in text for text in shown] == [True, False, True, False, False]


def test_a_server_reads_the_messages_of_training_and_its_tokens_are_counted_but_unknown() -> None:
    """Two turns from cell 2; 50 + 7 tokens each, as the server says."""
    with serving(in_turn([chat(RIGHT)])) as server:
        result = measured("openai:m", episodes=1, server=ServerConfig(base_url=server.base_url))
    (trajectory,) = result.trajectories
    assert result.model == "openai:m"
    assert trajectory.success
    assert [segment.has_ids for segment in trajectory.segments] == [False, False]
    assert {int(each) for segment in trajectory.segments for each in segment.ids} == {UNKNOWN_ID}
    assert [(turn.start, turn.stop) for turn in trajectory.turns] == [(50, 57), (50, 57)]
    assert trajectory.num_sampled == 14
    assert dict(result.usage) == {"num_requests": 2, "num_prompt_tokens": 100, "num_sampled_tokens": 14, "cost": None}
    first, second = server.texts(0), server.texts(1)
    assert [message["role"] for message in server.requests[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert second[:3] == [*first, RIGHT]
    assert "Walk to G" in first[1]
    assert [message.content for message in trajectory.segments[1].prompt] == second
    assert from_json(to_json(result)) == result


def test_what_a_server_is_told_is_what_a_model_reads_in_training() -> None:
    """The chat that the tokens of a model's prompt render, as the trajectory of the token path recorded it."""
    template = ChatTemplate(make_tokenizer())
    engine = ScriptedEngine.from_texts(["go</think><answer>Right</answer>"] * 2, template.encode_text)
    evaluation = EvaluationConfig(num_episodes=1)
    of_model = asyncio.run(evaluate(engine, template, WALK, evaluation, ROLLOUT, model="m", step=0)).trajectories[0]
    with serving(in_turn([chat(RIGHT)])) as server:
        of_server = measured("openai:m", episodes=1, server=ServerConfig(base_url=server.base_url)).trajectories[0]
    assert server.texts(0) == [message.content for message in of_model.segments[0].prompt]
    assert server.texts(1)[-1] == of_model.turns[1].observation
    assert [turn.reply for turn in of_server.turns] == [turn.reply for turn in of_model.turns]
    assert (of_server.return_, of_server.end_reason) == (of_model.return_, of_model.end_reason)


def test_with_prefill_the_reply_begins_with_the_tag_that_was_sent() -> None:
    with serving(in_turn([chat("go</think><answer>Right</answer>")])) as server:
        result = measured("openai:m", episodes=1, server=ServerConfig(base_url=server.base_url, prefill=True))
    assert result.success.mean == 1.0
    assert server.requests[0]["messages"][-1] == {"role": "assistant", "content": "<think>"}


def test_a_refusal_ends_its_episode_as_an_outcome() -> None:
    refusal = chat(None, refusal="I will not walk.")
    with serving(in_turn([chat(RIGHT), refusal, chat(RIGHT)])) as server:
        result = measured("openai:m", server=ServerConfig(base_url=server.base_url, concurrency=1))
    assert [trajectory.end_reason.value for trajectory in result.trajectories] == ["refused", "solved"]
    assert (result.num_failed, result.success.mean) == (0, 0.5)
    assert result.trajectories[0].turns[-1].reply.text == "I will not walk."


def test_a_reply_that_is_cut_costs_the_format_penalty_and_goes_on() -> None:
    with serving(in_turn([chat("<think>well", finish="length"), chat(RIGHT)])) as server:
        result = measured("openai:m", episodes=1, server=ServerConfig(base_url=server.base_url))
    (trajectory,) = result.trajectories
    assert [turn.finish_reason.value for turn in trajectory.turns] == ["length", "stop", "stop"]
    assert [turn.reply.verdict.value for turn in trajectory.turns] == ["truncated", "valid", "valid"]


def test_a_window_that_is_full_ends_its_episode_as_an_outcome() -> None:
    with serving(in_turn([chat(RIGHT), error(400, "prompt is too long")])) as server:
        result = measured("openai:m", episodes=1, server=ServerConfig(base_url=server.base_url))
    assert result.environments["walk"].end_reasons == {"context_limit": 1}


def test_no_more_episodes_than_allowed_are_played_at_the_same_time() -> None:
    """With one at a time, an episode is ended before the next begins."""
    with serving(in_turn([chat(RIGHT)])) as server:
        measured("openai:m", episodes=3, server=ServerConfig(base_url=server.base_url, concurrency=1))
    assert [len(request["messages"]) for request in server.requests] == [2, 4, 2, 4, 2, 4]


def test_summaries_are_asked_of_a_server_too() -> None:
    context = ContextConfig(overflow="summarise", summarise_every=1)

    def script(number: int, fields: Mapping[str, Any]) -> Response:
        asked = fields["messages"][-1]["content"]
        return chat("I was in cell 3.") if "about to be deleted" in asked else chat(RIGHT)

    with serving(script) as server:
        rollout = RolloutConfig(context=context, sampling=SamplingConfig(max_new_tokens=40))
        result = measured("openai:m", episodes=1, rollout=rollout, server=ServerConfig(base_url=server.base_url))
    (trajectory,) = result.trajectories
    assert trajectory.success
    assert [summary.text for summary in trajectory.summaries] == ["I was in cell 3."]
    assert result.usage["num_requests"] == 3
    assert "I was in cell 3." in server.texts(2)[-1]


@pytest.mark.parametrize(
    ("name", "server", "model", "expected"),
    [
        ("oracle", ServerConfig(concurrency=3), ModelConfig(), r"server\.concurrency: has no effect, oracle is no server"),
        ("tiny", ServerConfig(prefill=True), ModelConfig(), r"server\.prefill: has no effect, tiny is no server"),
        ("openai:m", ServerConfig(), ModelConfig(dtype="float32"), r"model\.dtype: has no effect, openai:m loads no model"),
        ("anthropic:m", ServerConfig(dialect="vllm"), ModelConfig(), r"server\.dialect=vllm: has no effect, anthropic:m speaks"),
        ("openai:m", ServerConfig(prefill=True), ModelConfig(), r"server\.prefill=true: OpenAI's own models"),
    ],
)
def test_a_setting_without_effect_is_refused(name: str, server: ServerConfig, model: ModelConfig, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_effect(find_target(name, model, output_dir=Path("runs")), ROLLOUT, server)


def test_an_engine_that_is_not_used_is_refused_its_settings() -> None:
    target = find_target("openai:m", ModelConfig(), output_dir=Path("runs"), engine=EngineConfig(max_rows=3))
    with pytest.raises(ConfigError, match=r"engine\.max_rows: has no effect, openai:m loads no model"):
        check_effect(target, ROLLOUT, ServerConfig())
