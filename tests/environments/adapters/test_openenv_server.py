"""The server, message by message: a session needs no socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ragen.environments import registry
from ragen.environments.adapters.openenv_server import Session, main, serve
from ragen.environments.adapters.openenv_wire import MAX_MESSAGE_BYTES, encode
from ragen.errors import ConfigError
from tests.support.corridor import num_open

ROOT = Path(__file__).parents[3]


def ask(session: Session, kind: str, data: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    reply = json.loads(session.answer(encode(kind, data)) or "{}")
    return reply["type"], reply["data"]


def corridor(**options: Any) -> Session:
    return Session(registry.make("corridor", options))


def test_a_conversation_worked_by_hand() -> None:
    session = corridor()
    assert ask(session, "reset", {"seed": 0, "episode_id": "mine"}) == (
        "observation",
        {
            "observation": {
                "text": "P _ _ _ G",
                "instruction": "Walk to G. Actions: Left, Right.",
                "action_names": ["Left", "Right"],
            },
            "reward": None,
            "done": False,
        },
    )
    for _ in range(3):
        ask(session, "step", {"action": "Right"})
    assert ask(session, "state") == ("state", {"episode_id": "mine", "step_count": 3})
    kind, data = ask(session, "step", {"action": " right "})
    metadata = {"success": True, "effective": True, "cell": 4, "terminated": True, "truncated": False}
    assert kind == "observation"
    assert data == {
        "observation": {"text": "_ _ _ _ P", "metadata": metadata},
        "reward": 1.0,
        "done": True,
        "metadata": metadata,
    }
    assert session.answer(encode("close")) is None
    session.close()
    assert num_open() == 0


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ('{"type": "step", "data": {"action": "cut', "INVALID_JSON", "not a message: Unterminated string"),
        ("[]", "INVALID_JSON", "not a list"),
        ('{"type": "jump"}', "UNKNOWN_TYPE", "type='jump': must be one of reset, step, state, close"),
        ('{"type": "step"}', "VALIDATION_ERROR", "action=None: must be a text"),
        ('{"type": "step", "data": {"action": ["Right"]}}', "VALIDATION_ERROR", "must be a text"),
        ('{"type": "step", "data": {"action": "Rigth"}}', "VALIDATION_ERROR", "did you mean 'Right'? (actions: Left, Right)"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR", "seed=-1: must be a whole number"),
        ('{"type": "reset", "data": {"seed": 1.5}}', "VALIDATION_ERROR", "seed=1.5"),
        ('{"type": "reset", "data": {"seed": true}}', "VALIDATION_ERROR", "seed=True"),
        ('{"type": "reset", "data": {"dynamics_seed": "1"}}', "VALIDATION_ERROR", "dynamics_seed='1'"),
        ('{"type": "reset", "data": {"episode_id": 5}}', "VALIDATION_ERROR", "episode_id"),
    ],
)
def test_what_is_wrong_is_said_and_the_session_goes_on(message: str, code: str, says: str) -> None:
    """Bug-log row 46."""
    session = corridor()
    ask(session, "reset", {"seed": 0})
    reply = json.loads(session.answer(message) or "{}")
    assert (reply["type"], reply["data"]["code"]) == ("error", code)
    assert says in reply["data"]["message"]
    assert len(reply["data"]["message"]) < 300
    assert ask(session, "step", {"action": "Right"})[1]["observation"]["text"] == "_ P _ _ G"
    session.close()


def test_a_megabyte_of_text_is_refused_in_one_line() -> None:
    session = corridor()
    ask(session, "reset", {"seed": 0})
    kind, data = ask(session, "step", {"action": "x" * 10**6})
    assert kind == "error"
    assert len(data["message"]) < 200
    session.close()


def test_faults_of_the_environment_are_execution_errors() -> None:
    session = corridor(raise_at_step=2)
    assert ask(session, "step", {"action": "Right"})[1]["code"] == "EXECUTION_ERROR"  # before reset
    ask(session, "reset")
    ask(session, "step", {"action": "Right"})
    kind, data = ask(session, "step", {"action": "Right"})
    assert (kind, data["code"], data["message"]) == ("error", "EXECUTION_ERROR", "step: Broken: step 2")
    assert ask(session, "reset", {"seed": 3})[0] == "observation"
    session.close()
    raising = corridor(raise_in_close=True)
    raising.close()


def test_seeds_decide_through_the_wire_what_they_decide_without_it() -> None:
    session = corridor(start=None, slip=0.5)
    env = registry.make("corridor", {"start": None, "slip": 0.5})
    for seed in (0, 5, 2**62):
        _, data = ask(session, "reset", {"seed": seed, "dynamics_seed": 9})
        assert data["observation"]["text"] == env.reset(seed=seed, options={"dynamics_seed": 9})[0]
        for _ in range(4):
            _, data = ask(session, "step", {"action": "Left"})
            assert data["observation"]["text"] == env.step("Left")[0]
    session.close()
    env.close()


def test_sessions_are_many_at_once_and_bounded_and_closed_with_the_server() -> None:
    expected = []
    for seed in range(3):
        env = registry.make("corridor", {"start": None})
        expected.append(env.reset(seed=seed)[0])
        env.close()
    with serve("corridor", {"start": None}, max_sessions=3) as server, ExitStack() as stack:
        clients = [stack.enter_context(connect(f"{server.url}/ws")) for _ in range(3)]
        for seed, client in enumerate(clients):
            client.send(encode("reset", {"seed": seed}))
        assert [json.loads(client.recv())["data"]["observation"]["text"] for client in clients] == expected
        fourth = stack.enter_context(connect(f"{server.url}/ws"))
        refusal = json.loads(fourth.recv())
        assert (refusal["type"], refusal["data"]["code"]) == ("error", "CAPACITY_REACHED")
        with pytest.raises(ConnectionClosed):
            fourth.recv()
    assert num_open() == 0


def test_a_message_too_large_ends_that_session_alone() -> None:
    with serve("corridor") as server, connect(f"{server.url}/ws") as one, connect(f"{server.url}/ws") as other:
        one.send("x" * (MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            one.recv()
        other.send(encode("reset", {"seed": 0}))
        assert json.loads(other.recv())["type"] == "observation"


def test_a_silent_session_is_closed() -> None:
    with serve("corridor", idle_timeout_s=0.05) as server, connect(f"{server.url}/ws") as client:
        assert "no message within 0.05 s" in json.loads(client.recv())["data"]["message"]
        with pytest.raises(ConnectionClosed):
            client.recv()
    assert num_open() == 0


def test_who_may_come_in() -> None:
    with serve("corridor", token="s3cret") as server:
        for headers, status in (
            (None, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer é"}, 401),
            ({"Authorization": "s3cret"}, 401),
        ):
            with pytest.raises(InvalidStatus) as caught:
                connect(f"{server.url}/ws", additional_headers=headers).__enter__()
            assert caught.value.response.status_code == status
        with connect(f"{server.url}/ws", additional_headers={"Authorization": "Bearer s3cret"}) as client:
            client.send(encode("state"))
            assert json.loads(client.recv())["type"] == "state"
        with pytest.raises(InvalidStatus) as caught:
            connect(
                f"{server.url}/ws", additional_headers={"Authorization": "Bearer s3cret"}, origin="http://evil.example"
            ).__enter__()
        assert caught.value.response.status_code == 403  # a page in a browser
        with pytest.raises(InvalidStatus) as caught:
            connect(f"{server.url}/other").__enter__()
        assert caught.value.response.status_code == 404
        address = http.client.HTTPConnection(server.url.removeprefix("ws://"), timeout=5)
        address.request("GET", "/health")
        assert json.loads(address.getresponse().read()) == {"status": "healthy"}
        address.close()


def test_other_machines_are_let_in_only_with_a_token() -> None:
    with pytest.raises(ConfigError, match=r"host='0.0.0.0': other machines could connect; that needs a token"):
        serve("corridor", host="0.0.0.0")


def test_what_cannot_be_served_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 'corridor'"):
        serve("coridor")
    with pytest.raises(ConfigError, match=r"corridor.start=9"):
        serve("corridor", {"start": 9})
    with serve("corridor") as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}: OSError"):
            serve("corridor", port=port)


def test_an_environment_that_cannot_be_made_is_said_to_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("corridor") as server:
        monkeypatch.setattr(registry, "make", lambda *_: 1 / 0)
        with connect(f"{server.url}/ws") as client:
            reply = json.loads(client.recv())
        assert reply["data"]["code"] == "SESSION_ERROR"
        assert "ZeroDivisionError" in reply["data"]["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bandti"], "did you mean 'bandit'"),
        (["bandit", "--options", "{"], "--options: Expecting property name"),
        (["bandit", "--options", '{"nam": "test"}'], "bandit.nam"),
        (["bandit", "--token-env", "NO_SUCH_VARIABLE"], "the environment variable NO_SUCH_VARIABLE is not set"),
        (["bandit", "--host", "0.0.0.0"], "needs a token"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_the_command_serves_until_ctrl_c() -> None:
    command = [sys.executable, "-m", "ragen.environments.adapters.openenv_server", "bandit", "--port", "0"]
    # A shell that runs the tests in the background has Ctrl-C ignored; the child must not inherit that.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving bandit at ws://127.0.0.1:")
    with connect(f"{line.split()[3]}/ws") as client:
        client.send(encode("reset", {"seed": 0}))
        assert json.loads(client.recv())["type"] == "observation"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
