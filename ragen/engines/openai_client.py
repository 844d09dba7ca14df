"""The chat completions of OpenAI's API, which many servers speak: DeepSeek, Together, vLLM, llama.cpp, Ollama."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import openai

from ragen.engines.patience import TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.engines.server_engine import Answer, count_of, failure_of, key_from_environment, redacted, seed_of
from ragen.errors import ConfigError
from ragen.records import ChatMessage, Counted, FinishReason, Sampling

ADDRESS = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
_NO_KEY = "none"  # a server of one's own asks for no key, the client for any


class OpenAIClient:
    """Asks one model."""

    def __init__(self, model: str, config: ServerConfig) -> None:
        """Raises ConfigError where a key is needed and the environment has none."""
        self._model = model
        self._config = config
        self._key = key_from_environment(config, KEY_VARIABLE)
        self._client = openai.AsyncOpenAI(
            api_key=self._key or _NO_KEY, base_url=config.base_url or ADDRESS, timeout=config.timeout_s, max_retries=0
        )

    async def ask(self, messages: Sequence[ChatMessage], sampling: Sampling) -> Answer:
        fields = request_of(self._model, messages, sampling, self._config)
        try:
            completion: Any = await self._client.chat.completions.create(**fields)
        except openai.APIStatusError as error:
            message = redacted(str(error.message), self._key)
            raise failure_of(error.status_code, message, str(error.code or ""), error.response.headers) from None
        except openai.APIConnectionError as error:
            raise TransientFault(f"no connection ({_cause(error)})") from None
        except (openai.APIError, ValueError) as error:
            raise TransientFault(f"an answer that is no JSON ({type(error).__name__})") from None
        answer = self._read(completion)
        if self._config.speaks == "llama_cpp" and messages[-1].role == "assistant":
            # llama.cpp's server gives the beginning that it went on from back as a part of the reply.
            return replace(answer, text=answer.text.removeprefix(messages[-1].content))
        return answer

    async def close(self) -> None:
        await self._client.close()

    def _read(self, completion: Any) -> Answer:
        try:
            (choice, *_) = completion.choices
            message, usage = choice.message, completion.usage
            counted = (
                Counted(num_prompt=count_of(usage.prompt_tokens), num_sampled=count_of(usage.completion_tokens))
                if usage
                else None
            )
            text, refusal = message.content or "", getattr(message, "refusal", None)
            if not isinstance(text, str):
                raise TypeError
        except (AttributeError, TypeError, ValueError):
            raise TransientFault("an answer that is no chat completion") from None
        finish = FinishReason.STOP
        if choice.finish_reason == "content_filter" or refusal:
            finish = FinishReason.REFUSAL
        elif choice.finish_reason == "length":
            finish = FinishReason.LENGTH
        return Answer(text=redacted(text or refusal or "", self._key), finish_reason=finish, counted=counted)


def request_of(model: str, messages: Sequence[ChatMessage], sampling: Sampling, config: ServerConfig) -> dict[str, Any]:
    """The fields of a request. Raises ConfigError for sampling that this dialect cannot ask for.

    Stop texts go to vLLM alone, which leaves the one it found in the reply; elsewhere a reply that stopped could not be told from
    one that ended without its last tag, so the reply is cut when it is there. What a server of one's own does to probabilities
    unless it is told otherwise (llama.cpp: top_k 40, min_p 0.05) is switched off.
    """
    dialect = config.speaks
    extra: dict[str, Any] = dict(config.extra)
    fields: dict[str, Any] = {
        "model": model,
        "messages": [asdict(message) for message in messages],
        "max_completion_tokens" if dialect == "openai" else "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed_of(sampling),
    }
    for name in config.omit:
        del fields[name]
    if dialect == "vllm":
        extra = {"top_k": sampling.top_k or -1, "repetition_penalty": 1.0, **extra}
        if sampling.stop_texts:
            fields["stop"] = list(sampling.stop_texts)
            extra["include_stop_str_in_output"] = True
        if messages[-1].role == "assistant":
            extra |= {"continue_final_message": True, "add_generation_prompt": False}
    elif dialect == "llama_cpp":
        extra = {"top_k": sampling.top_k, "min_p": 0.0, "repeat_penalty": 1.0, **extra}
    elif sampling.top_k:
        raise ConfigError(
            f"evaluation.top_k={sampling.top_k}: not part of the OpenAI protocol; set it to 0, or server.dialect to vllm or"
            " llama_cpp if the server is one of these"
        )
    return fields | ({"extra_body": extra} if extra else {})


def _cause(error: openai.APIConnectionError) -> str:
    """What happened, in the words of the cause's class: its message may hold addresses."""
    return type(error.__cause__ or error).__name__
