"""A small server on this machine that speaks OpenAI's and Anthropic's protocols, and breaks as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[int, Mapping[str, Any]], "Response"]  # from the number of the request, from 0, and its fields


@dataclass(frozen=True, kw_only=True)
class Response:
    """What is sent back. `cut` ends the connection in the middle of the body; `hang` sends nothing until the server closes."""

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


@dataclass(kw_only=True)
class Server:
    """Answers by `script`; keeps what it was asked."""

    script: Script
    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # the credentials of each request
    closing: threading.Event = field(default_factory=threading.Event)

    def texts(self, number: int) -> list[str]:
        """The messages of a request."""
        return [message["content"] for message in self.requests[number]["messages"]]


def chat(text: str | None, *, finish: str = "stop", usage: tuple[int, int] | None = (50, 7), **message: Any) -> Response:
    """A chat completion of OpenAI's protocol; `usage` is (prompt, completion) tokens."""
    body: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return Response(body=json.dumps(body))


def message(text: str, *, stop: str = "end_turn", sequence: str | None = None, cached: int = 0) -> Response:
    """A message of Anthropic's protocol."""
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop,
        "stop_sequence": sequence,
        "usage": {"input_tokens": 50, "output_tokens": 7, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0},
    }
    return Response(body=json.dumps(body))


def error(status: int, said: str = "no", *, code: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """An error as both protocols write it."""
    body = {"type": "error", "error": {"message": said, "type": code or "some_error", "code": code}}
    return Response(status=status, body=json.dumps(body), headers=headers or {})


def in_turn(responses: Sequence[Response]) -> Script:
    """One after the other; the last one for ever."""
    return lambda number, fields: responses[min(number, len(responses) - 1)]


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    """A server that lives as long as the block."""
    server = Server(script=script)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(server.requests)
                server.requests.append(fields)
                server.keys.append(self.headers.get("Authorization") or self.headers.get("x-api-key") or "")
            self._send(server.script(number, fields))

        def _send(self, response: Response) -> None:
            self.close_connection = True
            if response.hang:
                server.closing.wait()
                return
            body = response.body.encode()
            self.send_response(response.status)
            for name, value in {"Content-Type": "application/json", **response.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if response.cut else body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.base_url = f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    try:
        yield server
    finally:
        server.closing.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@dataclass(kw_only=True)
class FakeTime:
    """A clock that only sleeping moves."""

    now: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
