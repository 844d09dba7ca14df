"""An engine whose replies come from a server: messages out, text in. For evaluation alone, since nobody knows the ids.

What the server's protocol is, a `Client` knows (openai_client.py, anthropic_client.py); what its failures mean is said here once.
"""

from __future__ import annotations

import email.utils
import logging
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ragen.engines.budget import Budget, most_tokens
from ragen.engines.patience import Patience, TransientFault
from ragen.engines.server_config import ServerConfig
from ragen.errors import ConfigError, PromptTooLong, RagenError, ServerError
from ragen.models.text_chat import TextChat, whole_characters
from ragen.records import ChatMessage, Completion, Counted, FinishReason, Sampling

MAX_REPLY_CHARS = 500_000  # more than any model is asked to write: a server that sends it is broken

logger = logging.getLogger(__name__)

# What no retry mends although its status is one that others retry, and what says that a prompt is too long.
_SPENT = ("insufficient_quota", "insufficient balance", "billing")
_TOO_LONG = ("context_length", "context length", "context window", "context size", "prompt is too long", "maximum context")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server replied."""

    text: str
    finish_reason: FinishReason
    counted: Counted | None  # None if it does not count


class Client(Protocol):
    """One protocol. `ask` raises TransientFault, PromptTooLong or ServerError for whatever is not an answer."""

    async def ask(self, messages: Sequence[ChatMessage], sampling: Sampling) -> Answer: ...

    async def close(self) -> None: ...


class ServerEngine:
    """Plays the part of an engine for prompts of a `TextChat`."""

    policy_version = 0

    def __init__(self, client: Client, chat: TextChat, patience: Patience, budget: Budget) -> None:
        self._client = client
        self._chat = chat
        self._patience = patience
        self._budget = budget
        self._has_warned = False

    @property
    def num_retries(self) -> int:
        """Requests that were sent once more."""
        return self._patience.num_retries

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The reply up to its stop text. Raises EngineFailure, PromptTooLong, ServerError or BudgetSpent."""
        *messages, beginning = self._chat.messages(prompt_ids)
        sent = [*messages, beginning] if beginning.content else messages
        async with self._budget.room_for(most_tokens(sent, sampling.max_new_tokens)):
            answer = await self._patience.ask(lambda: self._client.ask(sent, sampling))
            text, finish = _up_to_stop(answer, sampling.stop_texts)
            ids = tuple(self._chat.encode_text(text))
            counted = answer.counted or Counted(num_prompt=len(prompt_ids), num_sampled=len(ids))
            self._budget.pay(counted)
        if answer.counted is None and not self._has_warned:
            self._has_warned = True
            logger.warning("the server does not count tokens: they are estimated, and so is the cost")
        return Completion(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            finish_reason=finish,
            policy_version=self.policy_version,
            counted=counted,
        )

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """End the connections. Says how often an answer had to be asked for again."""
        if self.num_retries:
            times = "once" if self.num_retries == 1 else f"{self.num_retries} times"
            logger.warning("an answer did not come and was asked for again %s", times)
        await self._client.close()


def key_from_environment(config: ServerConfig, usual: str) -> str:
    """The key that the environment holds; empty if there is none and a server of one's own is asked. Raises ConfigError."""
    name = config.api_key_variable or usual
    key = os.environ.get(name, "").strip()
    if not key and (config.api_key_variable or not config.base_url):
        raise ConfigError(
            f"{name}: not set in the environment; export the key there (it is never a setting), or choose --base-url"
        )
    return key


def failure_of(status: int, message: str, code: str, headers: Mapping[str, str]) -> RagenError:
    """What an HTTP status means: a fault that may pass, a prompt that is too long, or a refusal that no retry changes."""
    message = " ".join(whole_characters(message).split())
    said = re.sub(r"^Error code: \d+ - ", "", message)[:300] or "no message"  # which the clients put in front
    reason = f"HTTP {status}: {said}"
    lowered = f"{code} {said}".lower()
    if status == 400 and any(sign in lowered for sign in _TOO_LONG):
        return PromptTooLong(reason)
    is_spent = status == 429 and any(sign in lowered for sign in _SPENT)
    may_pass = status in (408, 409, 429) or status >= 500
    if may_pass and not is_spent and headers.get("x-should-retry") != "false":
        return TransientFault(reason, retry_after_s(headers))
    return ServerError(reason)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks to wait, written as a number or as a date; None if it asks for nothing that can be read."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
        if parsed is None:
            return None
        seconds = email.utils.mktime_tz(parsed) - time.time()
    return None if math.isnan(seconds) else max(0.0, seconds)


def seed_of(sampling: Sampling) -> int:
    """The request's random stream as one number of 31 bits, which every server takes."""
    return int(np.random.SeedSequence(sampling.seed).generate_state(1, np.uint32)[0] >> 1)


def count_of(value: Any) -> int:
    """A number of tokens as a server says it. Raises ValueError or TypeError for what is none: below 0 it would be money back."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{value} is no number of tokens")
    return int(value)


def redacted(text: str, key: str) -> str:
    """The text without the key, should a server repeat it."""
    return text.replace(key, "***") if key else text


def _up_to_stop(answer: Answer, stop_texts: Sequence[str]) -> tuple[str, FinishReason]:
    """The reply as our own engine would have ended it: behind the first stop text. Of megabytes, the beginning is kept."""
    text = answer.text[:MAX_REPLY_CHARS]
    ends = [text.find(stop) + len(stop) for stop in stop_texts if stop in text]
    return (text[: min(ends)], FinishReason.STOP) if ends else (text, answer.finish_reason)
