"""Anthropic's protocol: what is sent, and what answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ragen.engines.anthropic_client import AnthropicClient, request_of
from ragen.engines.patience import TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.engines.server_engine import Answer
from ragen.errors import ConfigError, PromptTooLong, ServerError
from ragen.records import ChatMessage, Counted, FinishReason, Sampling
from tests.support.servers import Response, Server, error, in_turn, message, serving

SYSTEM = ChatMessage(role="system", content="Be brief.")
USER = ChatMessage(role="user", content="Where to?")
SAMPLING = Sampling(max_new_tokens=20, temperature=0.5, stop_texts=("</answer>",))
CANARY = "sk-ant-canary-0123456789"


def ask(response: Response, messages: Sequence[ChatMessage] = (SYSTEM, USER)) -> tuple[Answer, Server]:
    async def once() -> Answer:
        asked = AnthropicClient("m", ServerConfig(base_url=server.base_url.removesuffix("/v1")))
        try:
            return await asked.ask(messages, SAMPLING)
        finally:
            await asked.close()

    with serving(in_turn([response])) as server:
        return asyncio.run(once()), server


def test_the_system_message_stands_apart_and_tokens_of_a_cache_count_as_read() -> None:
    answer, server = ask(message("Left", cached=30))
    assert answer == Answer(text="Left", finish_reason=FinishReason.STOP, counted=Counted(num_prompt=80, num_sampled=7))
    (sent,) = server.requests
    assert (sent["system"], sent["messages"]) == ("Be brief.", [{"role": "user", "content": "Where to?"}])
    assert (sent["max_tokens"], sent["temperature"], sent["stop_sequences"]) == (20, 0.5, ["</answer>"])
    assert {"top_p", "top_k", "seed"}.isdisjoint(sent)


def test_the_stop_text_that_the_api_leaves_out_is_put_back() -> None:
    answer, _ = ask(message("<answer>Left", stop="stop_sequence", sequence="</answer>"))
    assert answer.text == "<answer>Left</answer>"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("end_turn", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("refusal", FinishReason.REFUSAL),
        ("model_context_window_exceeded", FinishReason.LENGTH),
    ],
)
def test_how_a_message_ended(stop: str, expected: FinishReason) -> None:
    assert ask(message("", stop=stop))[0].finish_reason is expected


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (error(529, "overloaded"), TransientFault),
        (error(429, "slow down"), TransientFault),
        (Response(body=message("Left").body, cut=True), TransientFault),
        (Response(body="{}"), TransientFault),
        (Response(body="not json"), TransientFault),
        (error(400, "prompt is too long: 9 tokens > 8 maximum"), PromptTooLong),
        (error(401, "invalid x-api-key"), ServerError),
        (error(404, "model: m"), ServerError),
    ],
    ids=["529", "429", "half an answer", "no message", "no json", "too long", "401", "404"],
)
def test_what_failures_mean(response: Response, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ask(response)


def test_a_message_without_text_is_never_sent() -> None:
    """The API refuses one."""
    empty = ChatMessage(role="assistant", content="")
    _, server = ask(message("Left"), (SYSTEM, USER, empty, USER))
    assert [each["content"] for each in server.requests[0]["messages"]] == ["Where to?", "(no reply)", "Where to?"]


def test_only_what_differs_from_the_defaults_is_sent_of_top_p_and_top_k() -> None:
    sampling = Sampling(max_new_tokens=1, top_p=0.9, top_k=5)
    fields: dict[str, Any] = request_of("m", (USER,), sampling, ServerConfig(omit=["temperature"], extra={"tier": "low"}))
    assert fields["extra_body"] == {"top_p": 0.9, "top_k": 5, "tier": "low"}
    assert "extra_body" not in request_of("m", (USER,), Sampling(max_new_tokens=1), ServerConfig(omit=["temperature"]))


def test_the_key_is_needed_sent_and_never_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^ANTHROPIC_API_KEY: not set"):
        AnthropicClient("m", ServerConfig())
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    (sent,) = ask(message("Left"))[1].keys
    assert sent.removeprefix("Bearer ") == CANARY
    with pytest.raises(ServerError) as caught:
        ask(error(401, f"bad key {CANARY}"))
    assert str(caught.value) == "HTTP 401: bad key ***"
