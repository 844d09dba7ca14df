"""The policy: one model definition for sampling, scoring and training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ragen.errors import ModelError, boundary
from ragen.models.aliases import resolve
from ragen.models.attention import IMPLEMENTATION, KVView, PackedView
from ragen.models.config import ModelConfig
from ragen.models.quiet import quiet
from ragen.models.tokenizer import load_tokenizer

ADAPTER_CONFIG = "adapter_config.json"
PROBE = "The agent reads what the world says, thinks about it, and then writes down the action that it wants to take next."


class Policy:
    """A causal language model, with LoRA adapters beside its frozen weights or trained in full.

    Adapters are float32 and are never merged: the base weights stay bit-identical for ever, and what samples is what is trained.
    `version` counts the optimiser steps that changed the weights; engines clear their caches when it moves.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, *, name: str) -> None:
        self.module: nn.Module = model
        self.tokenizer = tokenizer
        self.name = name
        self.version = 0
        self._causal_lm: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        self.start_policy: Policy | None = None
        self.module.eval()  # dropout would make the ratio differ from 1 on the first pass

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        dtype: torch.dtype = self._causal_lm.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        device: torch.device = self._causal_lm.device
        return device

    @property
    def config(self) -> Any:
        """The model's own (transformers) configuration."""
        return self._causal_lm.config

    @property
    def num_parameters(self) -> int:
        """Of the model itself, adapters left out."""
        return sum(p.numel() for name, p in self._causal_lm.named_parameters() if ".lora_" not in name)

    @property
    def uses_adapters(self) -> bool:
        return isinstance(self.module, PeftModel)

    def trainable(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name, in a fixed order."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def hidden(self, ids_L: Tensor, positions_L: Tensor, view: KVView) -> Tensor:
        """Final hidden states [L, D] of one flat row of tokens; `view` says what each token attends to."""
        out = self._causal_lm.base_model(
            input_ids=ids_L[None], position_ids=positions_L[None], use_cache=False, kv_view=view, return_dict=True
        )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Scores over the vocabulary [M, V] in float32."""
        logits_MV: Tensor = self._causal_lm.get_output_embeddings()(hidden_MD).float()
        softcap = getattr(self.config, "final_logit_softcapping", None)
        return logits_MV if softcap is None else torch.tanh(logits_MV / softcap) * softcap

    @contextmanager
    def reference(self) -> Iterator[Policy]:
        """The policy as it was at the start of training: adapters switched off, or a frozen copy."""
        if isinstance(self.module, PeftModel):
            with self.module.disable_adapter():
                yield self
        else:
            assert self.start_policy is not None, "a policy without adapters is loaded with_reference to have one"
            yield self.start_policy

    def save(self, folder: Path) -> None:
        """Write weights (or adapters) and tokenizer in Hugging Face layout; from_pretrained or peft open the folder unchanged."""
        with quiet():
            self.module.save_pretrained(folder, safe_serialization=True)  # type: ignore[operator]
            self.tokenizer.save_pretrained(str(folder))

    def check_forward(self) -> None:
        """Compare our flat forward pass with the model's own on a few tokens; raise ModelError if they differ.

        This is what lets any architecture in: whatever a model does beside attention, its log-probs must come out the same.
        """
        ids = torch.tensor(self.tokenizer(PROBE, add_special_tokens=False)["input_ids"], device=self.device)
        half = len(ids) // 2
        with torch.no_grad(), self._own_attention():
            expected = self._causal_lm(input_ids=ids[None], use_cache=False).logits[0].float().softmax(-1)
        with torch.no_grad():
            view = PackedView(half, [len(ids) - half], device=self.device)
            ours = self.logits(self.hidden(ids, torch.arange(len(ids), device=self.device), view)).softmax(-1)
        gap = (ours - expected).abs().sum(-1).mean().item() / 2  # total variation, from 0 (equal) to 1
        bound = 1e-4 if self.dtype == torch.float32 else 0.08  # bfloat16 alone gives about 0.02, a missing mask 0.16
        if not gap <= bound:
            kind = type(self._causal_lm).__name__
            raise ModelError(f"{self.name}: {kind} gives other probabilities through RAGEN's attention (off by {gap:.2g})")

    @contextmanager
    def _own_attention(self) -> Iterator[None]:
        self._causal_lm.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            self._causal_lm.set_attn_implementation(IMPLEMENTATION)


def load_policy(model: ModelConfig, *, checkpoint: Path | None = None, seed: int = 0, with_reference: bool = False) -> Policy:
    """Load a model by alias, folder or hub id, ready to sample and to train.

    `checkpoint` is a folder written by `Policy.save`: adapters are put on the base model, full weights replace it. `seed` draws
    the first values of new adapters. `with_reference` keeps the start weights too, which costs memory only in full fine-tuning.
    Raises ModelError if the model cannot be had or used.
    """
    start = resolve(model.name)
    weights = checkpoint if checkpoint and not (checkpoint / ADAPTER_CONFIG).exists() else start
    tokenizer = load_tokenizer(weights)
    base = _load(weights, model).requires_grad_(model.tuning == "full")
    wrapped = base if model.tuning == "full" else _with_adapters(base, model, checkpoint, seed)
    policy = Policy(wrapped, tokenizer, name=model.name)
    policy.check_forward()
    if with_reference and not policy.uses_adapters:
        policy.start_policy = Policy(_load(start, model).requires_grad_(False), tokenizer, name=model.name)
    return policy


def _load(weights: Path, model: ModelConfig) -> PreTrainedModel:
    with boundary(ModelError, f"loading {model.name}"), quiet():
        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            weights, dtype=choose_dtype(model), attn_implementation=IMPLEMENTATION, local_files_only=True
        )
    return loaded


def choose_dtype(model: ModelConfig) -> torch.dtype:
    """float32 for full fine-tuning, since bfloat16 rounds small updates away; else bfloat16 where the processor has it natively."""
    if model.dtype != "auto":
        return torch.bfloat16 if model.dtype == "bfloat16" else torch.float32
    if model.tuning == "full" or model.name == "tiny":
        return torch.float32
    native = torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def _with_adapters(base: PreTrainedModel, model: ModelConfig, checkpoint: Path | None, seed: int) -> PeftModel:
    if checkpoint is not None:
        with boundary(ModelError, f"loading adapters from {checkpoint}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return PeftModel.from_pretrained(base, str(checkpoint), is_trainable=True, autocast_adapter_dtype=True)
    settings = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,
        lora_dropout=0.0,
        target_modules=model.lora_targets,
        task_type="CAUSAL_LM",
    )
    # peft draws from the global generator; nothing outside this block may notice
    with (
        torch.random.fork_rng(devices=[]),
        boundary(ModelError, f"model.lora_targets={model.lora_targets}"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # peft still reads a name that transformers has replaced
        torch.manual_seed(seed)
        adapted: PeftModel = get_peft_model(base, settings, autocast_adapter_dtype=True)
    return adapted
