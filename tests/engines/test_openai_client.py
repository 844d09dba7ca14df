"""OpenAI's protocol: what is sent, what answers mean, and every way in which a server can fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from ragen.engines.budget import Budget
from ragen.engines.openai_client import OpenAIClient, request_of
from ragen.engines.patience import Patience, TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.engines.server_engine import Answer, ServerEngine, failure_of, retry_after_s, seed_of
from ragen.errors import ConfigError, EngineFailure, PromptTooLong, ServerError
from ragen.models.text_chat import TextChat
from ragen.records import ChatMessage, Completion, Counted, FinishReason, Sampling
from tests.support.servers import FakeTime, Response, Server, chat, error, in_turn, serving

MESSAGES = (ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Where to?"))
SAMPLING = Sampling(max_new_tokens=20, temperature=0.5, stop_texts=("</answer>",), seed=(1, 2))
CANARY = "sk-canary-0123456789"


def client(server: Server, **config: Any) -> OpenAIClient:
    return OpenAIClient("m", ServerConfig(base_url=server.base_url, **config))


def ask(response: Response, **config: Any) -> Answer:
    """The answer of a server that responds so to one request."""

    async def once() -> Answer:
        asked = client(server, **config)
        try:
            return await asked.ask(MESSAGES, SAMPLING)
        finally:
            await asked.close()

    with serving(in_turn([response])) as server:
        return asyncio.run(once())


def generate(responses: Sequence[Response], time: FakeTime, **config: Any) -> tuple[Completion, str, int]:
    """The completion of an engine whose server responds so in turn, its text, and how often it asked again."""

    async def once() -> tuple[Completion, str, int]:
        text = TextChat()
        patience = Patience(ServerConfig(**config), "openai:m", clock=time.clock, sleep=time.sleep, jitter=lambda: 0.0)
        engine = ServerEngine(client(server, **config), text, patience, Budget(ServerConfig()))
        try:
            prompt = text.prompt([{"role": each.role, "content": each.content} for each in MESSAGES])
            completion = await engine.generate(prompt, SAMPLING)
            return completion, text.decode(completion.ids), engine.num_retries
        finally:
            await engine.close()

    with serving(in_turn(responses)) as server:
        return asyncio.run(once())


def test_an_answer_is_its_text_and_the_tokens_that_the_server_counted() -> None:
    expected = Answer(text="Left", finish_reason=FinishReason.STOP, counted=Counted(num_prompt=50, num_sampled=7))
    assert ask(chat("Left")) == expected


def test_length_and_refusals_are_how_a_reply_ends_and_no_errors() -> None:
    assert ask(chat("I think", finish="length")).finish_reason is FinishReason.LENGTH
    assert ask(chat(None, finish="content_filter")).finish_reason is FinishReason.REFUSAL
    refused = ask(chat(None, refusal="I cannot help with that."))
    assert (refused.finish_reason, refused.text) == (FinishReason.REFUSAL, "I cannot help with that.")


def test_a_server_that_does_not_count_tokens_is_no_fault() -> None:
    assert ask(chat("Left", usage=None)).counted is None


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (error(500), "HTTP 500: no"),
        (error(503), "HTTP 503"),
        (error(408), "HTTP 408"),
        (error(409), "HTTP 409"),
        (error(429), "HTTP 429"),
        (Response(body=chat("Left").body, cut=True), "no connection"),
        (Response(body="<html>busy</html>"), "no JSON"),
        (Response(body="<html>busy</html>", headers={"Content-Type": "text/html"}), "no chat completion"),
        (Response(body='{"choices": []}'), "no chat completion"),
        (Response(body='{"choices": [{"message": null}]}'), "no chat completion"),
        (Response(body="[]"), "no chat completion"),
        (chat("Left", usage=(50, -7)), "no chat completion"),
        (chat("Left", usage=(50, math.inf)), "no chat completion"),
    ],
    ids=[
        *("500", "503", "408", "409", "429", "half an answer", "no json", "html", "no choice", "no message", "a list"),
        *("tokens below nothing", "tokens without end"),
    ],
)
def test_what_may_pass_is_a_transient_fault(response: Response, reason: str) -> None:
    with pytest.raises(TransientFault, match=reason):
        ask(response)


@pytest.mark.parametrize(
    "response",
    [
        error(400, "bad parameter"),
        error(401, "wrong key"),
        error(403, "not yours"),
        error(404, "no such model"),
        error(422, "odd"),
        error(429, "You exceeded your current quota", code="insufficient_quota"),
        error(500, "no", headers={"x-should-retry": "false"}),
    ],
    ids=["400", "401", "403", "404", "422", "no money", "told not to"],
)
def test_what_no_retry_mends_stops_the_evaluation_in_one_line(response: Response) -> None:
    with pytest.raises(ServerError, match=rf"^HTTP {response.status}: [^\n]+$"):
        ask(response)


def test_a_prompt_that_is_too_long_is_told_apart_from_a_bad_request() -> None:
    with pytest.raises(PromptTooLong):
        ask(error(400, "too many", code="context_length_exceeded"))
    with pytest.raises(PromptTooLong):
        ask(error(400, "This model's maximum context length is 2048 tokens."))


def test_faults_are_asked_again_and_the_wait_that_a_server_names_is_kept() -> None:
    time = FakeTime()
    slow = error(429, headers={"Retry-After": "9"})
    completion, _, num_retries = generate([error(500), slow, chat("<answer>Left</answer>")], time)
    assert num_retries == 2
    assert time.sleeps == [0.25, 9.0]
    assert completion.finish_reason is FinishReason.STOP
    assert completion.counted == Counted(num_prompt=50, num_sampled=7)


def test_a_server_that_hangs_is_given_up_at_the_deadline() -> None:
    with pytest.raises(ServerError, match=r"openai:m: .*nothing was answered yet"):
        generate([Response(hang=True)], FakeTime(), timeout_s=0.05, max_retries=1)


def test_a_server_that_is_not_there_is_one_line() -> None:
    async def once() -> None:
        config = ServerConfig(base_url="http://127.0.0.1:9/v1", max_retries=0)
        engine = ServerEngine(OpenAIClient("m", config), TextChat(), Patience(config, "openai:m"), Budget(config))
        try:
            await engine.generate(TextChat().prompt([]), SAMPLING)
        finally:
            await engine.close()

    with pytest.raises(ServerError, match=r"^openai:m: no connection \(\w+\) \(asked once\); nothing was answered yet"):
        asyncio.run(once())


def test_a_reply_ends_behind_its_stop_text_as_our_own_engine_would_end_it() -> None:
    completion, text, _ = generate([chat("go</think><answer>Left</answer> and so on", finish="length")], FakeTime())
    assert text == "go</think><answer>Left</answer>"
    assert completion.finish_reason is FinishReason.STOP


def test_half_a_character_of_a_reply_becomes_one_that_can_be_written() -> None:
    _, text, _ = generate([chat("\ud83d\ude00 go \ud800 on \udfff")], FakeTime())
    assert text == "\U0001f600 go \ufffd on \ufffd"


def test_of_a_reply_of_megabytes_the_beginning_is_kept() -> None:
    _, text, _ = generate([chat("Left " * 2_000_000)], FakeTime())
    assert text == "Left " * 100_000


def test_the_prompt_goes_out_as_its_messages() -> None:
    time = FakeTime()

    async def once() -> None:
        text = TextChat()
        patience = Patience(ServerConfig(), "m", clock=time.clock, sleep=time.sleep)
        engine = ServerEngine(client(server), text, patience, Budget(ServerConfig()))
        prompt = text.prompt([{"role": each.role, "content": each.content} for each in MESSAGES])
        await engine.generate(prompt, SAMPLING)
        await engine.close()

    with serving(in_turn([chat("Left")])) as server:
        asyncio.run(once())
    (sent,) = server.requests
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where to?"}]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == ("m", 0.5, 1.0, 20)
    assert sent["seed"] == seed_of(SAMPLING)
    assert "stop" not in sent


def test_dialects_differ_in_what_they_call_the_limit_and_what_they_know() -> None:
    openai_ = request_of("m", MESSAGES, SAMPLING, ServerConfig())
    assert (openai_["max_completion_tokens"], "max_tokens" in openai_) == (20, False)
    vllm = request_of("m", MESSAGES, SAMPLING, ServerConfig(base_url="http://h/v1", dialect="vllm"))
    assert vllm["stop"] == ["</answer>"]
    assert vllm["extra_body"] == {"top_k": -1, "repetition_penalty": 1.0, "include_stop_str_in_output": True}
    begun = (*MESSAGES, ChatMessage(role="assistant", content="<think>"))
    continued = request_of("m", begun, SAMPLING, ServerConfig(base_url="http://h/v1", dialect="vllm"))["extra_body"]
    assert (continued["continue_final_message"], continued["add_generation_prompt"]) == (True, False)


def test_what_llama_cpp_does_to_probabilities_by_itself_is_switched_off() -> None:
    """Its server takes top_k 40 and min_p 0.05 where a request names none; 0 is off, for both."""
    config = ServerConfig(base_url="http://h/v1", dialect="llama_cpp")
    fields = request_of("m", MESSAGES, SAMPLING, config)
    assert fields["extra_body"] == {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    assert "stop" not in fields  # it does not say whether a reply stopped at its stop text or ended by itself
    some = request_of("m", MESSAGES, Sampling(max_new_tokens=1, top_k=5), config)
    assert some["extra_body"]["top_k"] == 5


@pytest.mark.parametrize(("dialect", "read"), [("llama_cpp", "Left</think>"), ("compatible", "<think>Left</think>")])
def test_llama_cpp_s_server_gives_the_beginning_back_and_it_is_taken_off(dialect: str, read: str) -> None:
    """Seen of llama.cpp in 2026: "<think>" sent as the last message comes back as the first characters of the reply."""
    begun = (*MESSAGES, ChatMessage(role="assistant", content="<think>"))

    async def once() -> tuple[str, str]:
        asked = client(server, dialect=dialect)
        try:
            return (await asked.ask(begun, SAMPLING)).text, (await asked.ask(MESSAGES, SAMPLING)).text
        finally:
            await asked.close()

    with serving(in_turn([chat("<think>Left</think>")])) as server:
        assert asyncio.run(once()) == (read, "<think>Left</think>")  # without a beginning, nothing is taken off


def test_fields_can_be_left_out_and_added() -> None:
    config = ServerConfig(omit=["temperature", "seed"], extra={"reasoning_effort": "low"})
    fields = request_of("m", MESSAGES, SAMPLING, config)
    assert {"temperature", "seed"}.isdisjoint(fields)
    assert fields["extra_body"] == {"reasoning_effort": "low"}


def test_top_k_is_refused_where_the_protocol_has_none() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.top_k=5: not part of the OpenAI protocol"):
        request_of("m", MESSAGES, Sampling(max_new_tokens=1, top_k=5), ServerConfig())


def test_the_key_comes_from_the_environment_and_from_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^OPENAI_API_KEY: not set in the environment"):
        OpenAIClient("m", ServerConfig())
    with pytest.raises(ConfigError, match=r"^DEEPSEEK_API_KEY: not set"):
        OpenAIClient("m", ServerConfig(base_url="http://h/v1", api_key_variable="DEEPSEEK_API_KEY"))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with serving(in_turn([chat("Left")])) as server:

        async def once() -> None:
            asked = client(server)
            await asked.ask(MESSAGES, SAMPLING)
            await asked.close()

        asyncio.run(once())
    assert server.keys == [f"Bearer {CANARY}"]


def test_a_server_that_repeats_the_key_does_not_get_it_into_an_error_or_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with pytest.raises(ServerError) as caught:
        ask(error(401, f"Incorrect API key provided: {CANARY}"))
    assert str(caught.value) == "HTTP 401: Incorrect API key provided: ***"
    assert ask(chat(f"your key is {CANARY}")).text == "your key is ***"


def test_the_wait_that_is_asked_for_may_be_seconds_or_a_date() -> None:
    assert retry_after_s({"retry-after": "2.5"}) == 2.5
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0  # long past
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({}) is None
    fault = failure_of(429, "slow", "", {"retry-after": "4"})
    assert isinstance(fault, TransientFault)
    assert fault.retry_after_s == 4.0


def test_once_a_server_has_answered_later_failures_end_one_episode_each() -> None:
    async def twice() -> None:
        text, time = TextChat(), FakeTime()
        config = ServerConfig(max_retries=0)
        patience = Patience(config, "m", clock=time.clock, sleep=time.sleep)
        engine = ServerEngine(client(server), text, patience, Budget(config))
        prompt = text.prompt([{"role": "user", "content": "?"}])
        await engine.generate(prompt, SAMPLING)
        try:
            await engine.generate(prompt, SAMPLING)
        finally:
            await engine.close()

    with (
        serving(in_turn([chat("Left"), error(502)])) as server,
        pytest.raises(EngineFailure, match=r"HTTP 502: no \(asked once\)"),
    ):
        asyncio.run(twice())
