"""The messages of Anthropic's API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import anthropic

from ragen.engines.patience import TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.engines.server_engine import Answer, count_of, failure_of, key_from_environment, redacted
from ragen.records import ChatMessage, Counted, FinishReason, Sampling

ADDRESS = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
_NO_KEY = "none"
_EMPTY = "(no reply)"  # the API takes no empty message

_FINISHED = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
}


class AnthropicClient:
    """Asks one model."""

    def __init__(self, model: str, config: ServerConfig) -> None:
        """Raises ConfigError where a key is needed and the environment has none."""
        self._model = model
        self._config = config
        self._key = key_from_environment(config, KEY_VARIABLE)
        self._client = anthropic.AsyncAnthropic(
            api_key=self._key or _NO_KEY, base_url=config.base_url or ADDRESS, timeout=config.timeout_s, max_retries=0
        )

    async def ask(self, messages: Sequence[ChatMessage], sampling: Sampling) -> Answer:
        fields = request_of(self._model, messages, sampling, self._config)
        try:
            message: Any = await self._client.messages.create(**fields)
        except anthropic.APIStatusError as error:
            said = redacted(_said(error), self._key)
            raise failure_of(error.status_code, said, str(error.type or ""), error.response.headers) from None
        except anthropic.APIConnectionError as error:
            raise TransientFault(f"no connection ({type(error.__cause__ or error).__name__})") from None
        except (anthropic.APIError, ValueError) as error:
            raise TransientFault(f"an answer that is no JSON ({type(error).__name__})") from None
        return self._read(message)

    async def close(self) -> None:
        await self._client.close()

    def _read(self, message: Any) -> Answer:
        try:
            text = "".join(block.text for block in message.content if block.type == "text")
            usage = message.usage
            read = (usage.input_tokens, usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0)
            counted = Counted(num_prompt=sum(map(count_of, read)), num_sampled=count_of(usage.output_tokens))
            stop = (message.stop_sequence or "") if message.stop_reason == "stop_sequence" else ""
        except (AttributeError, TypeError, ValueError):
            raise TransientFault("an answer that is no message") from None
        finish = _FINISHED.get(message.stop_reason, FinishReason.STOP)
        return Answer(text=redacted(text + stop, self._key), finish_reason=finish, counted=counted)


def request_of(model: str, messages: Sequence[ChatMessage], sampling: Sampling, config: ServerConfig) -> dict[str, Any]:
    """The fields of a request. Only what differs from the API's defaults is sent of top_p and top_k; it takes no seed.

    How to sample goes into the body as it is: newer models take no temperature, and newer clients have no argument for it.
    The API leaves the stop text out of the reply but says which one it was, so it can be put back.
    """
    turns = [asdict(message) for message in messages if message.role != "system"]
    fields: dict[str, Any] = {
        "model": model,
        "system": "\n\n".join(message.content for message in messages if message.role == "system"),
        "messages": [{**turn, "content": turn["content"] if turn["content"].strip() else _EMPTY} for turn in turns],
        "max_tokens": sampling.max_new_tokens,
    }
    if sampling.stop_texts:
        fields["stop_sequences"] = list(sampling.stop_texts)
    body: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    for name in config.omit:
        body.pop(name, None)
    body |= config.extra
    return fields | ({"extra_body": body} if body else {})


def _said(error: anthropic.APIStatusError) -> str:
    """What the server said, out of the JSON around it where there is some."""
    body: Any = error.body
    inner = body.get("error") if isinstance(body, dict) else None
    return str(inner["message"]) if isinstance(inner, dict) and "message" in inner else str(error.message)
