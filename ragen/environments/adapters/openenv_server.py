"""Any RAGEN environment behind the OpenEnv WebSocket protocol. See docs/environments/openenv.md.

    python -m ragen.environments.adapters.openenv_server bandit --port 8000

One connection is one session with an environment of its own. Only this machine can connect, unless a token is demanded.
"""

from __future__ import annotations

import argparse
import hmac
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ragen.environments import registry
from ragen.environments.adapters import openenv_wire as wire
from ragen.environments.adapters.base import plain_numbers
from ragen.environments.spaces import resolve
from ragen.environments.text_env import TextEnv
from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary, near_match

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

MAX_ID_CHARACTERS = 255


def serve(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    max_sessions: int = 64,
    idle_timeout_s: float = 3600.0,
) -> OpenEnvServer:
    """A server for the environment `name`, bound but not yet serving: use it in a `with`, or call `serve_forever`.

    Port 0 takes a free one. Clients must send `Authorization: Bearer <token>` if there is a token. A session that is silent for
    `idle_timeout_s` is closed. Raises ConfigError if the environment is unknown, its options are wrong or the port is taken.
    """
    if find_spec("websockets") is None:
        raise ConfigError(f"serving an environment needs the package websockets: {wire.INSTALL}")
    registry.configure(name, options or {})
    if not token and not wire.is_loopback(host):
        raise ConfigError(f"host={host!r}: other machines could connect; that needs a token (--token-env)")
    with boundary(ConfigError, f"cannot listen at {host}:{port}"):
        return OpenEnvServer(name, dict(options or {}), host, port, token, max_sessions, idle_timeout_s)


class OpenEnvServer:
    """Serves while it is in a `with`, from threads of its own: one that listens and one for each session."""

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        host: str,
        port: int,
        token: str | None,
        max_sessions: int,
        idle_timeout_s: float,
    ) -> None:
        from websockets.sync.server import serve as listen

        self._name, self._options, self._token = name, options, token
        self._max_sessions, self._idle_timeout_s = max_sessions, idle_timeout_s
        self._sessions: set[ServerConnection] = set()
        self._lock = threading.Lock()
        # Browsers send an Origin and are refused: else any page that a person opens could play, and so run code, here.
        self._server = listen(
            self._serve_session,
            host,
            port,
            origins=[None],
            process_request=self._admit,
            max_size=wire.MAX_MESSAGE_BYTES,
        )
        bound = self._server.socket.getsockname()[1]
        self.url = f"ws://[{host}]:{bound}" if ":" in host else f"ws://{host}:{bound}"
        self._thread: threading.Thread | None = None

    def serve_forever(self) -> None:
        """Serve in this thread until `close` is called from another, or Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop listening and end every session."""
        self._server.shutdown()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close(1001, "the server stops")
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> OpenEnvServer:
        self._thread = threading.Thread(target=self.serve_forever, name="openenv-server")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """None lets the WebSocket handshake go on; a response refuses it."""
        path = request.path.partition("?")[0]
        if path == "/health":
            return connection.respond(200, '{"status": "healthy"}\n')
        if path != "/ws":
            return connection.respond(404, "There is /ws and /health.\n")
        given = request.headers.get("Authorization", "")
        if self._token and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return connection.respond(401, "The token is missing or wrong.\n")
        return None

    def _serve_session(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        with self._lock:
            has_room = len(self._sessions) < self._max_sessions
            if has_room:
                self._sessions.add(connection)
        try:
            if has_room:
                self._converse(connection)
            else:
                connection.send(error_message(wire.CAPACITY_REACHED, f"all {self._max_sessions} sessions are taken"))
        except ConnectionClosed:
            pass  # the client went away, which is how most sessions end
        finally:
            with self._lock:
                self._sessions.discard(connection)

    def _converse(self, connection: ServerConnection) -> None:
        try:
            with boundary(EnvironmentFailure, "the environment cannot be made"):
                session = Session(registry.make(self._name, self._options))
        except RagenError as error:
            connection.send(error_message(wire.SESSION_ERROR, str(error)))
            return
        try:
            while (reply := session.answer(connection.recv(timeout=self._idle_timeout_s))) is not None:
                connection.send(reply)
        except TimeoutError:
            connection.send(error_message(wire.SESSION_ERROR, f"no message within {self._idle_timeout_s:g} s"))
        finally:
            session.close()


class Session:
    """One client's environment: a message in, a message out. Knows nothing of sockets."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self._episode_id: str | None = None
        self._num_steps = 0

    def answer(self, message: str | bytes) -> str | None:
        """The reply; None once the client says close. What is wrong with a message or an action never ends the session."""
        try:
            kind, data = wire.decode(message)
        except ValueError as error:
            return error_message(wire.INVALID_JSON, f"not a message: {error}")
        try:
            with boundary(EnvironmentFailure, kind):
                match kind:
                    case "reset":
                        return self._reset(data)
                    case "step":
                        return self._step(data)
                    case "state":
                        return wire.encode("state", {"episode_id": self._episode_id, "step_count": self._num_steps})
                    case "close":
                        return None
        except RagenError as error:
            return error_message(wire.EXECUTION_ERROR, str(error))
        return error_message(wire.UNKNOWN_TYPE, f"type={kind[:50]!r}: must be one of reset, step, state, close")

    def close(self) -> None:
        with suppress(EnvironmentFailure), boundary(EnvironmentFailure, "close"):
            self._env.close()

    def _reset(self, data: dict[str, Any]) -> str:
        for key in ("seed", "dynamics_seed"):
            value = data.get(key)
            if value is not None and (type(value) is not int or value < 0):
                return error_message(wire.VALIDATION_ERROR, f"{key}={_short(value)}: must be a whole number, 0 or more, or null")
        episode_id = data.get("episode_id")
        if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= MAX_ID_CHARACTERS):
            return error_message(wire.VALIDATION_ERROR, f"episode_id: must be a text of at most {MAX_ID_CHARACTERS} characters")
        dynamics_seed = data.get("dynamics_seed")
        options = None if dynamics_seed is None else {"dynamics_seed": dynamics_seed}
        text, _ = self._env.reset(seed=data.get("seed"), options=options)
        self._episode_id, self._num_steps = episode_id, 0
        names = self._env.action_names
        told = {"text": text, "instruction": self._env.instruction, "action_names": None if names is None else list(names)}
        return wire.encode("observation", {"observation": told, "reward": None, "done": False})

    def _step(self, data: dict[str, Any]) -> str:
        action = data.get("action")
        if not isinstance(action, str):
            return error_message(wire.VALIDATION_ERROR, f"action={_short(action)}: must be a text")
        names = self._env.action_names
        if resolve(action, names) is None:
            near = near_match(action[:100], names or ())
            known = ", ".join(names or ())
            return error_message(wire.VALIDATION_ERROR, f"action {_short(action)} is unknown{near} (actions: {known})")
        text, reward, terminated, truncated, info = self._env.step(action)
        self._num_steps += 1
        metadata = plain_numbers(info) | {"terminated": terminated, "truncated": truncated}
        told = {"text": text, "metadata": metadata}
        reply = {"observation": told, "reward": reward, "done": terminated or truncated, "metadata": metadata}
        return wire.encode("observation", reply)


def error_message(code: str, message: str) -> str:
    return wire.encode("error", {"code": code, "message": message})


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ragen.environments.adapters.openenv_server", description=__doc__)
    parser.add_argument("env", help="a registered name, or module:Class")
    parser.add_argument("--options", default="{}", help='its options as a JSON object, e.g. \'{"names": "test"}\'')
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; others than this machine's need a token")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--token-env", help="name of the environment variable that holds the token clients must send")
    parser.add_argument("--max-sessions", type=int, default=64, help="clients at once")
    given = parser.parse_args(arguments)
    try:
        try:
            options = wire.parse_object(given.options)
        except ValueError as error:
            raise ConfigError(f"--options: {error}") from None
        token = os.environ.get(given.token_env) if given.token_env else None
        if given.token_env and not token:
            raise ConfigError(f"--token-env: the environment variable {given.token_env} is not set")
        server = serve(given.env, options, host=given.host, port=given.port, token=token, max_sessions=given.max_sessions)
    except RagenError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"serving {given.env} at {server.url} (Ctrl-C stops)", flush=True)
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
