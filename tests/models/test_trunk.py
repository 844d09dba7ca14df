"""The trunk gives what the modules give, and what transformers alone gives, for every architecture that it knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from ragen.engines.kv_cache import PrefillView
from ragen.engines.torch_engine import TorchEngine
from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.models.tiny import save_random
from ragen.records import Completion, Sampling
from tests.support.architectures import architecture, plain_logprobs, plain_model
from tests.support.models import SMALL_VOCAB, tiny_tokenizer

IDS: dict[str, Any] = {"vocab_size": SMALL_VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPE: dict[str, Any] = IDS | {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
WINDOW = 6
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE, head_dim=32)),
    "mistral": (MistralForCausalLM, MistralConfig(**SHAPE, head_dim=32, sliding_window=WINDOW)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**(SHAPE | {"hidden_size": 128}))),
    "qwen2-window": (
        Qwen2ForCausalLM,
        Qwen2Config(
            **(SHAPE | {"hidden_size": 128}),
            use_sliding_window=True,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=32)),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(**(SHAPE | {"hidden_size": 128}), no_rope_layers=[1, 0])),
}
PROMPTS: tuple[tuple[int, ...], ...] = ((5, 9, 11, 40, 7), (30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 50, 60))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, (model_class, config) in MODELS.items():
        folder = made[name] = tmp_path_factory.mktemp(name)
        save_random(model_class, config, folder, seed=3)
        model = plain_model(folder)
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        model.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    return made


def load(folder: Path, *, dtype: str = "float32", **settings: Any) -> Policy:
    policy = load_policy(ModelConfig(name=str(folder), lora_rank=4, lora_alpha=8, dtype=dtype, **settings))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return policy


def needs_compiler(policy: Policy) -> None:
    if policy.kernels is None:
        pytest.skip(policy.paths)


@torch.no_grad()
def logits(policy: Policy, *, quick: bool) -> Tensor:
    ids_L = torch.tensor([i for prompt in PROMPTS for i in prompt])
    at_L = torch.cat([torch.arange(len(prompt)) for prompt in PROMPTS])
    forward = policy.quick_hidden if quick else policy.hidden
    return policy.logits(forward(ids_L, at_L, PrefillView([len(prompt) for prompt in PROMPTS])))


@pytest.mark.parametrize("name", MODELS)
def test_the_trunk_equals_the_modules_with_adapters_on_and_off(name: str, folders: dict[str, Path]) -> None:
    policy = load(folders[name])
    needs_compiler(policy)
    on = logits(policy, quick=True)
    torch.testing.assert_close(on, logits(policy, quick=False), rtol=1e-4, atol=1e-4)
    with policy.reference():
        off = logits(policy, quick=True)
        torch.testing.assert_close(off, logits(policy, quick=False), rtol=1e-4, atol=1e-4)
    assert (on - off).abs().max() > 0.05  # or the adapters were never on


@pytest.mark.parametrize("name", MODELS)
def test_what_is_sampled_has_the_log_probs_of_transformers_alone(name: str, folders: dict[str, Path]) -> None:
    policy = load_policy(ModelConfig(name=str(folders[name]), dtype="float32"))  # adapters that change nothing yet
    needs_compiler(policy)
    engine, plain = TorchEngine(policy), plain_model(folders[name])

    async def talk(member: int) -> list[tuple[tuple[int, ...], Completion]]:
        prompt: tuple[int, ...] = PROMPTS[member % 2]
        said = []
        for turn in range(3):
            completion = await engine.generate(prompt, Sampling(max_new_tokens=5 + member, seed=(member, turn)))
            said.append((prompt, completion))
            prompt = (*prompt, *completion.ids, 20 + member, 21, 22)
        return said

    async def crowd() -> list[list[tuple[tuple[int, ...], Completion]]]:
        return await asyncio.gather(*(talk(member) for member in range(5)))

    for said in asyncio.run(crowd()):
        for prompt, completion in said:
            assert completion.logprobs == pytest.approx(plain_logprobs(plain, prompt, completion.ids), abs=1e-4)


def test_weights_that_change_are_seen_by_the_next_call(folders: dict[str, Path]) -> None:
    policy = load(folders["llama"])
    needs_compiler(policy)
    before = logits(policy, quick=True)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.mul_(2.0)
    after = logits(policy, quick=True)
    assert (after - before).abs().max() > 0.05
    torch.testing.assert_close(after, logits(policy, quick=False), rtol=1e-4, atol=1e-4)


def test_bfloat16_stays_within_what_rounding_gives(folders: dict[str, Path]) -> None:
    policy = load(folders["llama"], dtype="bfloat16")
    needs_compiler(policy)
    gap = logits(policy, quick=True).log_softmax(-1) - logits(policy, quick=False).log_softmax(-1)
    assert gap.abs().mean() < 0.02
    assert gap.abs().max() < 0.2


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "llama"])
def test_what_does_not_fit_goes_by_the_modules(name: str) -> None:
    """Another architecture, or heads of 8 numbers."""
    policy = load_policy(ModelConfig(name=str(architecture(name)), dtype="float32"))
    assert policy.kernels is None
    assert "torch" in policy.paths


def test_full_fine_tuning_and_a_setting_keep_the_modules(folders: dict[str, Path]) -> None:
    assert load(folders["llama"], tuning="full").kernels is None
    policy = load(folders["llama"], kernels="torch")
    assert policy.kernels is None
    assert policy.paths == "torch's operations (switched off)"
