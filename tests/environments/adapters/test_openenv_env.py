"""The client: against our own server, against servers that misbehave, and against the package whose protocol it is."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as listen

from ragen.environments import registry
from ragen.environments.adapters.openenv_env import OpenEnvConfig, OpenEnvEnv
from ragen.environments.adapters.openenv_server import serve
from ragen.environments.adapters.openenv_wire import MAX_MESSAGE_BYTES, encode
from ragen.environments.checker import check_environment
from ragen.errors import ConfigError, EnvironmentFailure
from tests.support.corridor import num_open

NAME = "ragen.environments.adapters.openenv_env:OpenEnvEnv"


@contextmanager
def remote(url: str, **options: Any) -> Iterator[OpenEnvEnv]:
    env = registry.make(NAME, {"url": url, "timeout_s": 10, **options})
    assert isinstance(env, OpenEnvEnv)
    try:
        yield env
    finally:
        env.close()


@contextmanager
def scripted(*replies: str | bytes | None) -> Iterator[str]:
    """The address of a server that answers one reply after the other, whatever is asked; None hangs up."""

    def handle(connection: ServerConnection) -> None:
        for reply in replies:
            connection.recv()
            if reply is None:
                return
            connection.send(reply)
        connection.recv()

    with serving(handle) as url:
        yield url


@contextmanager
def serving(handle: Callable[[ServerConnection], None]) -> Iterator[str]:
    with listen(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def seen(observation: dict[str, Any], reward: float | None = None, done: bool = False, **more: Any) -> str:
    return encode("observation", {"observation": observation, "reward": reward, "done": done, **more})


@pytest.mark.parametrize("name", ["bandit", "corridor"])
def test_a_remote_environment_keeps_the_contract(name: str) -> None:
    with serve(name, {"start": None, "slip": 0.3} if name == "corridor" else {}) as server:
        check_environment(NAME, {"url": server.url}, num_seeds=2)
    assert num_open() == 0


def test_an_episode_over_the_wire_is_the_episode_without_it() -> None:
    with serve("corridor", {"start": None}) as server, remote(server.url) as env:
        near = registry.make("corridor", {"start": None})
        for seed in range(3):
            assert env.reset(seed=seed) == near.reset(seed=seed)
            assert (env.instruction, env.action_names) == (near.instruction, near.action_names)
            ended = False
            while not ended:
                theirs, ours = env.step("Right"), near.step("Right")
                ended = ours[2] or ours[3]
                numbers = {key: value for key, value in ours[4].items() if key != "note"}  # numbers alone cross
                assert theirs == (*ours[:4], numbers)
        near.close()


def test_a_cut_on_the_other_side_is_a_cut_here() -> None:
    with serve("corridor") as server, remote(server.url) as env:
        env.reset(seed=0)
        answers = [env.step("Left") for _ in range(6)]
        assert [answer[2:4] for answer in answers] == [(False, False)] * 5 + [(False, True)]
        assert answers[0][4]["effective"] is False


def test_a_copy_opens_a_connection_of_its_own_and_plays_up_to_where_it_was() -> None:
    with serve("corridor", {"slip": 0.5}) as server, remote(server.url) as env:
        env.reset(seed=1, options={"dynamics_seed": 4})
        env.step("Right")
        env.step("Right")
        copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        expected = [env.step("Right") for _ in range(2)]
        for each in copies:
            assert [each.step("Right") for _ in range(2)] == expected
            each.close()


def test_an_episode_that_goes_another_way_the_second_time_is_not_taken_up_again() -> None:
    num_sessions = iter(range(10))

    def handle(connection: ServerConnection) -> None:
        number = next(num_sessions)
        for _ in range(2):
            connection.recv()
            connection.send(seen({"text": f"session {number}"}))
        connection.recv()

    with serving(handle) as url, remote(url) as env:
        env.reset(seed=0)
        again = copy.deepcopy(env)
        with pytest.raises(EnvironmentFailure, match="cannot be taken up again: played once more it went another way"):
            again.step("x")


@pytest.mark.parametrize(
    ("names", "says"), [(5, "action_names=5: must be a list of texts"), (["a", "A"], "differ by more than case")]
)
def test_names_that_are_none_are_a_failure_of_the_server(names: object, says: str) -> None:
    refused = pytest.raises(EnvironmentFailure, match=says)
    with scripted(seen({"text": "x", "action_names": names})) as url, remote(url) as env, refused:
        env.reset(seed=0)


def test_a_verdict_that_is_no_flag_is_a_failure_of_the_server() -> None:
    start, answer = seen({"text": "x"}), seen({"text": "y"}, 1, True, metadata={"success": "no"})
    with scripted(start, answer) as url, remote(url) as env:
        env.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match=r"info\['success'\] must be a bool or a finite number, not 'no'"):
            env.step("anything")


def test_another_maker_s_observation_is_shown_as_text() -> None:
    board = {"board": [[1, 2], [3, 4]], "turn": "white", "metadata": {"elo": 5, "note": "x"}}
    with scripted(seen(board), seen(board, 1, True, metadata={"won": True})) as url, remote(url, success_key="won") as env:
        assert env.reset(seed=0)[0] == "board:\n1, 2\n3, 4\nturn: white"
        assert env.instruction == "You act in an environment. Reply with an action."
        assert env.action_names is None
        assert env.step("anything")[1:] == (1.0, True, False, {"elo": 5, "won": True, "success": True, "effective": True})
    with scripted(seen(board), seen(board, None, True)) as url, remote(url, observation_field="turn") as env:
        assert env.reset(seed=0)[0] == "white"
        assert env.step("anything")[1] == 0.0
    wrong = pytest.raises(EnvironmentFailure, match="the observation has no 'trun'; did you mean 'turn'")
    with scripted(seen(board)) as url, remote(url, observation_field="trun") as env, wrong:
        env.reset(seed=0)


def test_actions_go_out_as_the_server_wants_them() -> None:
    asked: list[str] = []

    def handle(connection: ServerConnection) -> None:
        for _ in range(2):
            asked.append(str(connection.recv()))
            connection.send(seen({"text": "x"}))
        connection.recv()

    with serving(handle) as url:
        for options, action in (
            ({}, "go"),
            ({"action_field": "message"}, "go"),
            ({"action_format": "index", "action_names": ["stay", "go"], "action_field": "move"}, "GO"),
            ({"action_format": "json"}, '{"x": 1, "y": [2]}'),
        ):
            with remote(url, **options) as env:
                env.reset(seed=5, options={"dynamics_seed": 6})
                env.step(action)
    assert asked[0].startswith('{"type": "reset", "data": {"seed": 5, "dynamics_seed": ')
    assert asked[1::2] == [
        '{"type": "step", "data": {"action": "go"}}',
        '{"type": "step", "data": {"message": "go"}}',
        '{"type": "step", "data": {"move": 1}}',
        '{"type": "step", "data": {"x": 1, "y": [2]}}',
    ]


@pytest.mark.parametrize("text", ['{"a": "cut', "[1]", "null", '{"a": 1e400}', '{"a": 1, "a": 2}', "[" * 10**5, "", "go"])
def test_a_model_s_broken_json_is_answered_with_what_is_wrong_and_the_episode_goes_on(text: str) -> None:
    """Bug-log row 46."""
    with scripted(seen({"text": "start"}), seen({"text": "moved"}, 2.0)) as url, remote(url, action_format="json") as env:
        env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step(text)
        assert observation.startswith("The action is not a JSON object: ")
        assert "\n" not in observation
        assert (reward, terminated, truncated, info) == (0.0, False, False, {"success": False, "effective": False})
        assert env.step('{"a": 1}')[:2] == ("moved", 2.0)


def test_an_action_that_the_server_refuses_is_the_agent_s_fault() -> None:
    errors = [{"loc": ["message"], "msg": "Field required", "type": "missing"}]
    refusal = encode("error", {"code": "VALIDATION_ERROR", "message": "Invalid message", "errors": errors})
    with scripted(seen({"text": "start"}), refusal, seen({"text": "moved"})) as url, remote(url) as env:
        env.reset(seed=0)
        observation, *_, info = env.step("x")
        assert observation == "The environment refused the action: Invalid message; message: Field required"
        assert info["effective"] is False
        assert env.step("y")[0] == "moved"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("no json", "the reply to 'step' is no message: Expecting value"),
        (b"\xff\xfe\x00", "the reply to 'step' is no message"),
        ("[]", "a JSON object is expected, not a list"),
        ('{"type": "observation", "data": {"observation": "text"}}', "an observation was expected"),
        ('{"type": "state", "data": {}}', "an observation was expected, not 'state'"),
        (seen({"text": "x"}, "much"), "'reward' must be a number or null"),  # type: ignore[arg-type]
        (seen({"text": "x"}, 1.0, 1), "'done' true or false"),  # type: ignore[arg-type]
        ('{"type": "observation", "data": {"observation": {}, "reward": 1e999}}', "a number is too large"),
        (
            encode("error", {"code": "EXECUTION_ERROR", "message": "it broke\nbadly"}),
            r"step failed: it broke badly \(EXECUTION_ERROR\)",
        ),
        (None, "the connection broke at 'step'"),
        ("x" * (MAX_MESSAGE_BYTES + 1), "the connection broke at 'step'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_nonsense_from_the_server_is_a_failure_of_the_environment(reply: str | bytes | None, says: str) -> None:
    with scripted(seen({"text": "start"}), reply) as url, remote(url) as env:
        env.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match=says) as caught:
            env.step("x")
        assert str(caught.value).startswith(f"openenv {url}: ")
        assert "\n" not in str(caught.value)


def test_a_server_that_does_not_answer_in_time_is_a_failure() -> None:
    silent = threading.Event()

    def handle(connection: ServerConnection) -> None:
        connection.recv()
        silent.wait(10)

    with serving(handle) as url, remote(url, timeout_s=0.1) as env:
        with pytest.raises(EnvironmentFailure, match=r"no reply to 'reset' within 0.1 s"):
            env.reset(seed=0)
        silent.set()


def test_a_server_that_is_not_there_is_a_failure_and_its_return_is_noticed() -> None:
    with serve("corridor") as server:
        url = server.url
    with remote(url) as env, pytest.raises(EnvironmentFailure, match=r"cannot connect: .*refused"):
        env.reset(seed=0)
    with serve("corridor", port=int(url.rpartition(":")[2])), remote(url) as env:
        assert env.reset(seed=0)[0] == "P _ _ _ G"


def test_an_episode_that_is_over_before_it_begins_is_a_failure() -> None:
    over = pytest.raises(EnvironmentFailure, match="had ended before its first step")
    with scripted(seen({"text": "x"}, None, True)) as url, remote(url) as env, over:
        env.reset(seed=0)


def test_the_token_comes_from_the_environment_and_stays_out_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRIDOR_TOKEN", "s3cret")
    with serve("corridor", token="s3cret") as server:
        with remote(server.url, token_env="CORRIDOR_TOKEN") as env:
            assert env.reset(seed=0)[0] == "P _ _ _ G"
            assert "s3cret" not in repr(env.config)
        with remote(server.url) as env, pytest.raises(EnvironmentFailure, match="HTTP 401"):
            env.reset(seed=0)


def test_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for name in ("http_proxy", "https_proxy", "socks_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serve("corridor") as server, remote(server.url) as env:
        assert env.reset(seed=0)[0] == "P _ _ _ G"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("ws://127.0.0.1:8000", "ws://127.0.0.1:8000/ws"),
        ("http://127.0.0.1:8000/", "ws://127.0.0.1:8000/ws"),
        ("https://example.org/maze", "wss://example.org/maze/ws"),
        ("wss://example.org/maze/ws", "wss://example.org/maze/ws"),
        ("ws://example.org?session_id=3", "ws://example.org/ws?session_id=3"),
    ],
)
def test_an_address_is_completed(url: str, endpoint: str) -> None:
    assert OpenEnvConfig(url=url).endpoint == endpoint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "url is missing"),
        ({"url": "127.0.0.1:8000"}, "must be ws://host:port or wss://host:port"),
        ({"url": "ftp://x"}, "must be ws://host:port"),
        ({"url": "ws://x", "timeout_s": 0}, "timeout_s=0: must be above 0 and at most 3600"),
        ({"url": "ws://x", "token_env": "NO_SUCH_VARIABLE"}, "that environment variable is not set"),
        ({"url": "ws://x", "action_format": "jsn"}, "did you mean 'json'"),
        ({"url": "ws://x", "action_format": "index"}, "action_format='index': needs action_names"),
        ({"url": "ws://x", "action_format": "json", "action_names": ["a"]}, "leave out action_names"),
        ({"url": "ws://x", "action_names": ["a", "A"]}, "differ by more than case"),
        ({"url": "ws://x", "success_key": "a", "success_threshold": 1.0}, "cannot stand beside success_key"),
    ],
)
def test_impossible_options_are_refused_before_anything_connects(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.configure(NAME, options)


def test_without_the_package_there_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen.environments.adapters.openenv_env.find_spec", lambda _: None)
    monkeypatch.setattr("ragen.environments.adapters.openenv_server.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"needs the package websockets: pip install 'ragen-rl\[openenv\]'"):
        OpenEnvConfig(url="ws://x").check()
    with pytest.raises(ConfigError, match=r"needs the package websockets: pip install 'ragen-rl\[openenv\]'"):
        serve("corridor")


def test_the_real_client_plays_on_our_server() -> None:
    """The package openenv is the independent implementation; it is no requirement, so this runs where it is installed."""
    openenv = pytest.importorskip("openenv")
    with serve("corridor") as server, openenv.GenericEnvClient(base_url=server.url).sync() as client:
        assert client.reset(seed=0).observation["text"] == "P _ _ _ G"
        result = client.step({"action": "Right"})
        assert (result.observation["text"], result.reward, result.done) == ("_ P _ _ G", -0.1, False)
        assert client.state()["step_count"] == 1
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            client.step({"action": "Up"})
