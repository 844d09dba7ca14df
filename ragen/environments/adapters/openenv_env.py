"""A remote environment that speaks the OpenEnv WebSocket protocol. Described in docs/environments/openenv.md."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ragen.environments.adapters import openenv_wire as wire
from ragen.environments.adapters.actions import read_names
from ragen.environments.adapters.base import Adapter, SuccessRule, plain_numbers
from ragen.environments.adapters.texts import as_text
from ragen.environments.text_env import StepAnswer, TextEnvConfig, option
from ragen.errors import ConfigError, EnvironmentFailure, near_match

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

ACTION_FORMATS = ("text", "index", "json")
_TOLD_ONCE = ("instruction", "action_names", "metadata")  # parts of an observation that are no text for the agent


@dataclass(kw_only=True)
class OpenEnvConfig(TextEnvConfig):
    url: str = field(metadata={"doc": "where the server is, e.g. ws://127.0.0.1:8000"})
    timeout_s: float = option(30.0, "seconds that connecting, and each reply, may take")
    token_env: str | None = option(None, "name of the environment variable that holds the token which the server demands")
    instruction: str | None = option(None, "what the agent is told; null: what the server says")
    action_names: list[str] | None = option(None, "names of the actions; null: what the server says, else any text")
    action_field: str = option("action", "the key under which the server expects the action")
    action_format: str = option("text", "text, index (the action's place in action_names), json (the agent writes the object)")
    observation_field: str | None = option(None, "the part of the observation that is shown; null: text if there, else all of it")
    success_key: str | None = option(
        None, "name in metadata or observation that says solved; null: success or is_success if there"
    )
    success_threshold: float | None = option(None, "an ended episode is solved if its return reaches this")

    def check(self) -> None:
        if find_spec("websockets") is None:
            raise ConfigError(f"url={self.url!r}: needs the package websockets: {wire.INSTALL}")
        if urlsplit(self.url).scheme not in ("ws", "wss", "http", "https") or not urlsplit(self.url).hostname:
            raise ConfigError(f"url={self.url!r}: must be ws://host:port or wss://host:port")
        if not 0 < self.timeout_s <= 3600:
            raise ConfigError(f"timeout_s={self.timeout_s:g}: must be above 0 and at most 3600")
        if self.token_env is not None and not os.environ.get(self.token_env):
            raise ConfigError(f"token_env={self.token_env!r}: that environment variable is not set")
        if self.success_key is not None and self.success_threshold is not None:
            raise ConfigError(f"success_threshold={self.success_threshold:g}: cannot stand beside success_key; give one of them")
        self._check_actions()

    def _check_actions(self) -> None:
        if self.action_format not in ACTION_FORMATS:
            near = near_match(self.action_format, ACTION_FORMATS)
            raise ConfigError(f"action_format={self.action_format!r}: must be one of {', '.join(ACTION_FORMATS)}{near}")
        if self.action_format == "index" and self.action_names is None:
            raise ConfigError("action_format='index': needs action_names")
        if self.action_format == "json" and self.action_names is not None:
            raise ConfigError("action_format='json': the agent writes the object itself; leave out action_names")
        if self.action_names is not None:
            read_names(self.action_names)

    @property
    def endpoint(self) -> str:
        """The address of the WebSocket: always ws or wss, always ending in /ws."""
        parts = urlsplit(self.url)
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        path = parts.path.rstrip("/")
        return urlunsplit((scheme, parts.netloc, path if path.endswith("/ws") else f"{path}/ws", parts.query, ""))


class OpenEnvEnv(Adapter):
    """An environment on a server; each episode has a connection of its own.

    A copy, or an instance that was pickled, has no connection: with its first step it opens one and plays the episode again up to
    where it was. What cannot be reached, answers too late or answers nonsense raises EnvironmentFailure.
    """

    Config = OpenEnvConfig
    config: OpenEnvConfig

    def __init__(self, config: OpenEnvConfig, *, render_mode: str | None = None) -> None:
        super().__init__(config, render_mode=render_mode)
        self._connection: ClientConnection | None = None
        self._held = ExitStack()  # websockets gives connections out to `with` alone; this is the one that lasts an episode
        self._success_rule = SuccessRule(key=config.success_key, threshold=config.success_threshold)

    def _begin(self) -> str:
        dynamics_seed = int(self.dynamics_random.integers(2**31))
        self._reset_data = {"seed": self._draw_start_seed(), "dynamics_seed": dynamics_seed}
        self._sent: list[dict[str, Any]] = []
        self._return, self._solved = 0.0, False
        data = self._open_episode()
        told = data["observation"]
        names = self.config.action_names or told.get("action_names")
        try:
            self.action_names = None if names is None or names == [] else read_names(names)
        except ConfigError as error:
            self._disconnect()
            raise self._failure(str(error)) from error
        said = self.config.instruction or told.get("instruction")
        self.instruction = said if isinstance(said, str) and said.strip() else "You act in an environment. Reply with an action."
        self._text = self._show(told)
        return self._text

    def _play(self, action: str) -> StepAnswer:
        if self._connection is None:
            self._take_up_again()
        try:
            payload = self._payload(action)
        except ValueError as error:
            return self._refusal(f"The action is not a JSON object: {error}.")
        data = self._ask("step", payload)
        if "code" in data:
            return self._refusal(f"The environment refused the action: {_reasons(data)}")
        self._sent.append(payload)
        return self._read_answer(data)

    def close(self) -> None:
        super().close()
        self._disconnect()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None, "_held": ExitStack()}

    def _payload(self, action: str) -> dict[str, Any]:
        """What a step sends. Raises ValueError if the agent should have written a JSON object and did not."""
        if self.config.action_format == "json":
            return wire.parse_object(action)
        value = (self.action_names or ()).index(action) if self.config.action_format == "index" else action
        return {self.config.action_field: value}

    def _refusal(self, reason: str) -> StepAnswer:
        """An action that was not played is the agent's fault, not the environment's: it reads why and goes on."""
        line = " ".join(reason.split())[:500]
        return line, 0.0, False, False, {"success": self._solved, "effective": False}

    def _read_answer(self, data: dict[str, Any]) -> StepAnswer:
        told, done, reward = data["observation"], data["done"], data["reward"]
        info = dict(told)
        for metadata in (told.get("metadata"), data.get("metadata")):  # servers put it in either place, or in both
            info |= metadata if isinstance(metadata, dict) else {}
        truncated = done and info.get("truncated") is True and info.get("terminated") is not True
        self._return += reward
        try:
            self._solved = self._success_rule.holds(
                info, terminated=done and not truncated, truncated=truncated, episode_return=self._return
            )
        except TypeError as error:
            raise self._failure(str(error)) from error
        before, self._text = self._text, self._show(told)
        said = info.get("effective")
        effective = said if isinstance(said, bool) else done or self._text != before
        numbers = {key: value for key, value in plain_numbers(info).items() if key not in ("terminated", "truncated")}
        numbers |= {"success": self._solved, "effective": effective}
        return self._text, reward, done and not truncated, truncated, numbers

    def _show(self, told: dict[str, Any]) -> str:
        part = self.config.observation_field
        if part is not None:
            if part not in told:
                raise self._failure(f"the observation has no {part!r}{near_match(part, told)} (it has: {', '.join(told)})")
            return as_text(told[part])
        return as_text(told["text"] if "text" in told else {key: told[key] for key in told if key not in _TOLD_ONCE})

    def _open_episode(self) -> dict[str, Any]:
        self._disconnect()
        self._connect()
        data = self._ask("reset", self._reset_data)
        if data["done"]:
            self._disconnect()
            raise self._failure("the episode had ended before its first step")
        return data

    def _take_up_again(self) -> None:
        """Bring a fresh connection to where this episode was. Equal seeds and actions must give an equal episode."""
        data = self._open_episode()
        for payload in self._sent:
            data = self._ask("step", payload)
        if "code" in data or self._show(data["observation"]) != self._text:
            self._disconnect()
            raise self._failure("the episode cannot be taken up again: played once more it went another way")

    def _connect(self) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        timeout_s = self.config.timeout_s
        token = os.environ.get(self.config.token_env) if self.config.token_env else None
        local = wire.is_loopback(urlsplit(self.config.url).hostname or "")
        try:
            connecting = connect(
                self.config.endpoint,
                additional_headers={"Authorization": f"Bearer {token}"} if token else None,
                proxy=None if local else True,
                open_timeout=timeout_s,
                close_timeout=min(timeout_s, 2.0),
                max_size=wire.MAX_MESSAGE_BYTES,
            )
            self._connection = self._held.enter_context(connecting)
        except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
            raise self._failure(f"cannot connect: {error}") from error

    def _disconnect(self) -> None:
        if self._connection is None:
            return
        from websockets.exceptions import WebSocketException

        connection, self._connection = self._connection, None
        with suppress(OSError, WebSocketException):
            connection.send(wire.encode("close"))
        self._held.close()

    def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The data of the reply: an observation, or the error by which a server refuses an action (it holds "code").

        Any other outcome ends the connection, since a late reply would be taken for that to the next request.
        """
        from websockets.exceptions import WebSocketException

        assert self._connection is not None
        try:
            self._connection.send(wire.encode(kind, data))
            answer, found = wire.decode(self._connection.recv(timeout=self.config.timeout_s))
            if answer == "error":
                if kind == "step" and found.get("code") == wire.VALIDATION_ERROR:
                    return found
                raise self._failure(f"{kind} failed: {found.get('message')} ({found.get('code')})")
            return _checked(answer, found)
        except TimeoutError as error:
            self._disconnect()
            raise self._failure(f"no reply to {kind!r} within {self.config.timeout_s:g} s") from error
        except (OSError, WebSocketException) as error:
            self._disconnect()
            raise self._failure(f"the connection broke at {kind!r}: {error}") from error
        except ValueError as error:
            self._disconnect()
            raise self._failure(f"the reply to {kind!r} is no message: {error}") from error

    def _failure(self, reason: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"openenv {self.config.url}: {' '.join(reason.split())[:500]}")


def _checked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """An observation's data with "observation" (dict), "reward" (float) and "done" (bool). Raises ValueError."""
    told, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
    if kind != "observation" or not isinstance(told, dict):
        raise ValueError(f"an observation was expected, not {kind!r}")
    if not (reward is None or isinstance(reward, (bool, int, float))) or not isinstance(done, bool):
        raise ValueError("'reward' must be a number or null and 'done' true or false")
    return data | {"reward": float(reward or 0.0), "done": done}


def _reasons(error: dict[str, Any]) -> str:
    """What a server says against an action: its message and, if it checked field by field, what it found there."""
    details = error.get("errors")
    found = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    fields = [f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg')}" for item in found[:3]]
    return "; ".join([str(error.get("message", "no reason given")), *fields])
