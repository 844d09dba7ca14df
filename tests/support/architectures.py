"""Tiny models of several architectures, and what transformers alone says about them: eager attention, whole sequences, no cache.

All use the `tiny` tokenizer at 400 entries. Norms and biases are moved away from their first values, so that one that is left out
shows. Everything is float32.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ragen.models.config import ModelConfig
from ragen.models.policy import Policy, load_policy
from ragen.models.tiny import save_random
from tests.support.models import SMALL_VOCAB, tiny_tokenizer

ARCHITECTURES = ("llama", "gpt2", "qwen2", "qwen3", "mistral", "gemma3")
WINDOW = 6  # of the sliding-window layers: all of mistral's, the first of gemma3's
MAX_POSITIONS = 96


def _config(name: str) -> tuple[type[PreTrainedModel], PreTrainedConfig]:
    ids = {"vocab_size": SMALL_VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    shape = ids | {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_POSITIONS,
    }
    match name:
        case "llama":  # rotary positions, tied embeddings, grouped key/value heads; dropout in the config, as row 68 wants
            return LlamaForCausalLM, LlamaConfig(**shape, tie_word_embeddings=True, attention_dropout=0.5)
        case "gpt2":  # learned positions, biases, dropout 0.1 in three places
            return GPT2LMHeadModel, GPT2Config(**ids, n_embd=32, n_layer=2, n_head=4, n_positions=MAX_POSITIONS)
        case "qwen2":  # biases on queries, keys and values; untied
            return Qwen2ForCausalLM, Qwen2Config(**shape)
        case "qwen3":  # norms on queries and keys, heads wider than hidden size / number of heads
            return Qwen3ForCausalLM, Qwen3Config(**shape, head_dim=16)
        case "mistral":  # every layer looks back over a window
            return MistralForCausalLM, MistralConfig(**shape, sliding_window=WINDOW)
        case "gemma3":  # window and full layers in turn, own scale, own rotary base per kind of layer, capped final scores
            return Gemma3ForCausalLM, Gemma3TextConfig(
                **shape,
                head_dim=16,
                sliding_window=WINDOW,
                layer_types=["sliding_attention", "full_attention"],
                query_pre_attn_scalar=8,
                final_logit_softcapping=3.0,
            )
    raise ValueError(name)


@functools.cache
def architecture(name: str) -> Path:
    """Folder with a two-layer model, its tokenizer and chat template. Shared: read only."""
    folder = Path(tempfile.mkdtemp(prefix=f"ragen-test-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model_class, config = _config(name)
    save_random(model_class, config, folder, seed=1)
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def load(name: str, *, tuning: str = "full", dtype: str = "float32") -> Policy:
    return load_policy(ModelConfig(name=str(architecture(name)), tuning=tuning, dtype=dtype, lora_rank=2, lora_alpha=4))


def plain_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The model as transformers alone opens it."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=dtype).eval()


@torch.no_grad()
def plain_logits(model: torch.nn.Module, ids: Sequence[int]) -> Tensor:
    """Scores [T, V] of one whole sequence."""
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].float()


def plain_logprobs(
    model: torch.nn.Module, prompt: Sequence[int], reply: Sequence[int], *, temperature: float = 1.0
) -> list[float]:
    """Log-probs of the reply's ids behind the prompt."""
    logits_TV = plain_logits(model, [*prompt, *reply])[len(prompt) - 1 : -1]
    logprobs_TV = torch.log_softmax(logits_TV.double() / temperature, -1)
    return logprobs_TV.gather(1, torch.tensor(reply)[:, None])[:, 0].tolist()
