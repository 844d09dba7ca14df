"""The policy: one model definition for sampling, scoring and training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer

from ragen.errors import ConfigError, ModelError, boundary
from ragen.kernels.compile import NotCompiled
from ragen.kernels.cpu import CpuKernels, kernels
from ragen.models.aliases import ADAPTER_WEIGHTS, WEIGHTS, check_weights, resolve
from ragen.models.allocator import keep_freed_memory
from ragen.models.attention import IMPLEMENTATION, KVView, PackedView
from ragen.models.cache import cache_folder
from ragen.models.config import ModelConfig
from ragen.models.processor import processor
from ragen.models.quick_modules import quicken
from ragen.models.quiet import quiet
from ragen.models.tokenizer import load_tokenizer
from ragen.models.trunk import Trunk, trunk_of

ADAPTER_CONFIG = "adapter_config.json"
POLICY_ADAPTER = "default"  # as peft calls the first one; it lies on top of a saved folder, where peft looks
PROBE = "The agent reads what the world says, thinks about it, and then writes down the action that it wants to take next."


class Policy:
    """A causal language model, with LoRA adapters beside its frozen weights or trained in full.

    Adapters are float32 and are never merged: the base weights stay bit-identical for ever, and what samples is what is trained.
    Beside the policy's own there may be others over the same weights (`add_adapter`). One at a time is on: the policy's, but for
    the inside of `adapter(name)`.
    `version` counts the optimiser steps that changed the weights; engines clear their caches when it moves.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, *, name: str) -> None:
        self.module: nn.Module = model
        self.tokenizer = tokenizer
        self.name = name
        self.version = 0
        self._causal_lm: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        self.start_policy: Policy | None = None
        self.paths = "the model's own modules"  # by which it is computed, for a person
        self._trunk: Trunk | None = None
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
    def num_ids(self) -> int:
        """Rows of the output layer: ids from 0 to num_ids - 1 can be read and sampled."""
        return int(self.config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that the model is made for; None if it does not say."""
        limit: int | None = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return limit

    @property
    def num_parameters(self) -> int:
        """Of the model itself, adapters left out."""
        return sum(p.numel() for name, p in self._causal_lm.named_parameters() if ".lora_" not in name)

    @property
    def uses_adapters(self) -> bool:
        return isinstance(self.module, PeftModel)

    @property
    def width(self) -> int:
        """Numbers in a hidden state: D."""
        return int(self.config.get_text_config().hidden_size)

    @property
    def num_heads(self) -> int:
        """Query heads of a layer."""
        return int(self.config.get_text_config().num_attention_heads)

    def trainable(self, adapter: str = POLICY_ADAPTER) -> dict[str, nn.Parameter]:
        """The trained parameters by name, in a fixed order: those of one adapter, or every weight in full fine-tuning."""
        parameters = self.module.named_parameters()
        if not self.uses_adapters:
            return {name: p for name, p in parameters if p.requires_grad}
        return {name: p for name, p in parameters if ".lora_" in name and name.rpartition(".lora_")[2].split(".")[1] == adapter}

    def add_adapter(self, name: str, *, rank: int, seed: int) -> None:
        """Put a second set of adapters beside the same weights, in the same places and scaled like the policy's own; it is off.

        `seed` draws its first values; until it is trained it changes nothing.
        """
        assert isinstance(self.module, PeftModel), "a model that is trained in full has no place for a second set of weights"
        own: Any = self.module.peft_config[POLICY_ADAPTER]
        settings = LoraConfig(
            r=rank,
            lora_alpha=own.lora_alpha * rank / own.r,
            lora_dropout=0.0,
            target_modules=own.target_modules,
            task_type="CAUSAL_LM",
        )
        with _peft(f"adding adapter {name}"):
            torch.default_generator.manual_seed(seed)
            self.module.add_adapter(name, settings, autocast_adapter_dtype=True)
        self.module.eval()

    @contextmanager
    def adapter(self, name: str) -> Iterator[None]:
        """Switch another adapter on in the place of the policy's. Its gradients must be taken before the switch back."""
        if not isinstance(self.module, PeftModel):
            assert name == POLICY_ADAPTER, name
            yield
            return
        before = self.module.active_adapter
        self.module.set_adapter(name)
        try:
            yield
        finally:
            self.module.set_adapter(before)

    def hidden(self, ids_L: Tensor, positions_L: Tensor, view: KVView) -> Tensor:
        """Final hidden states [L, D] of one flat row of tokens; `view` says what each token attends to."""
        out = self._causal_lm.base_model(
            input_ids=ids_L[None], position_ids=positions_L[None], use_cache=False, kv_view=view, return_dict=True
        )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def quick_hidden(self, ids_L: Tensor, positions_L: Tensor, view: KVView) -> Tensor:
        """What `hidden` gives, up to rounding and without gradients, by the quickest way there is: for sampling."""
        return self.hidden(ids_L, positions_L, view) if self._trunk is None else self._trunk(ids_L, positions_L, view)

    @property
    def kernels(self) -> CpuKernels | None:
        """The compiled operations, where sampling goes by them."""
        return None if self._trunk is None else self._trunk.kernels

    def quicken(self, *, compiled: bool = True) -> None:
        """From now on compute frozen weights by quicker ways: modules that are one operation and, if `compiled` and where this
        machine has GCC, a trunk of compiled operations for sampling."""
        kernels, reason = _kernels() if compiled else (None, "switched off")
        products = quicken(self.module, kernels)
        self._trunk = trunk_of(self._causal_lm, products, kernels) if products and kernels is not None else None
        self.paths = "compiled operations" if self._trunk is not None else f"torch's operations ({reason})"

    def recompute_layers(self) -> int:
        """From now on keep only what goes into each layer for a backward pass, which computes the layer again: the same bits.

        Returns how many layers that are.
        """
        layers = [module for module in self.module.modules() if isinstance(module, GradientCheckpointingLayer)]
        for layer in layers:
            layer.forward = _recomputed(layer.forward)
        return len(layers)

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
        """Write weights (or the policy's adapter) and tokenizer in Hugging Face layout, which from_pretrained or peft open."""
        only = {"selected_adapters": [POLICY_ADAPTER]} if self.uses_adapters else {}
        if isinstance(self.module, PeftModel):
            adapters: list[Any] = list(self.module.peft_config.values())
            for adapter in adapters:
                if isinstance(adapter.target_modules, set):  # written in the order of hashes, which differs between processes
                    adapter.target_modules = sorted(adapter.target_modules)
        with quiet():
            self.module.save_pretrained(folder, safe_serialization=True, **only)  # type: ignore[operator]
            self.tokenizer.save_pretrained(str(folder))

    def check_window(self, max_context_tokens: int) -> None:
        """Raise ConfigError if trajectories may grow longer than the model can read."""
        if self.max_positions is not None and max_context_tokens > self.max_positions:
            raise ConfigError(
                f"rollout.context.max_context_tokens={max_context_tokens}: must be at most {self.max_positions}, "
                f"the positions of {self.name}"
            )

    def own_probabilities(self) -> Tensor:
        """What the model's own code and attention say about the probe: [L, V]. Raises ModelError if it does not run."""
        kind = type(self._causal_lm).__name__
        with boundary(ModelError, f"{self.name}: {kind} does not run"), torch.no_grad(), self._own_attention():
            logits_LV: Tensor = self._causal_lm(input_ids=self._probe()[None], use_cache=False).logits[0]
        return logits_LV.float().softmax(-1)

    def _probe(self) -> Tensor:
        return torch.tensor(self.tokenizer(PROBE, add_special_tokens=False)["input_ids"], device=self.device)

    def check_forward(self, expected_LV: Tensor | None = None) -> None:
        """Compare our flat forward passes with the model's own on a few tokens; raise ModelError if they differ.

        `expected_LV`: `own_probabilities` before any module was replaced.

        This is what lets any architecture in: whatever a model does beside attention, its log-probs must come out the same. The
        second half of the probe is laid out twice, so that a layer which mixes neighbours whatever the view says is found out.
        """
        kind = type(self._causal_lm).__name__
        expected = self.own_probabilities() if expected_LV is None else expected_LV
        ids = self._probe()
        at = torch.arange(len(ids), device=self.device)
        half, rest = len(ids) // 2, len(ids) - len(ids) // 2
        with boundary(ModelError, f"{self.name}: {kind} does not run on RAGEN's attention"), torch.no_grad():
            view = PackedView(half, [rest, rest], device=self.device)
            twice = (torch.cat([ids, ids[half:]]), torch.cat([at, at[half:]]), view)
            gaps = []
            for hidden in (self.hidden(*twice), self.quick_hidden(*twice)):
                ours = self.logits(hidden).softmax(-1)
                once, again = ours[: len(ids)], ours[len(ids) :]
                gaps += [_variation(once, expected).mean().item(), _variation(once[half:], again).max().item()]
        gap = max(gaps)
        bound = 1e-4 if self.dtype == torch.float32 else 0.08  # bfloat16 alone gives about 0.02, a missing mask 0.16
        if not gap <= bound:
            raise ModelError(f"{self.name}: {kind} gives other probabilities through RAGEN's attention (off by {gap:.2g})")

    @contextmanager
    def _own_attention(self) -> Iterator[None]:
        self._causal_lm.set_attn_implementation("eager")  # the one that every architecture has
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
    keep_freed_memory()
    start = resolve(model.name)
    has_adapters = checkpoint is not None and (checkpoint / ADAPTER_CONFIG).exists()
    if checkpoint is not None and has_adapters != (model.tuning == "lora"):
        held = "LoRA adapters" if has_adapters else "full weights"
        raise ModelError(f"{checkpoint} holds {held}, which model.tuning={model.tuning} cannot go on from")
    if checkpoint is not None:
        check_weights(checkpoint, ADAPTER_WEIGHTS if has_adapters else WEIGHTS)
    weights = start if checkpoint is None or has_adapters else checkpoint
    tokenizer = load_tokenizer(weights)
    base = _load(weights, model).requires_grad_(model.tuning == "full")
    wrapped = base if model.tuning == "full" else _with_adapters(base, model, checkpoint, seed)
    policy = Policy(wrapped, tokenizer, name=model.name)
    expected = policy.own_probabilities()
    policy.quicken(compiled=model.kernels == "auto")
    policy.check_forward(expected)
    if with_reference and not policy.uses_adapters:
        policy.start_policy = Policy(_load(start, model).requires_grad_(False), tokenizer, name=model.name)
    return policy


def _kernels() -> tuple[CpuKernels | None, str]:
    """The compiled operations, or why there are none."""
    try:
        return kernels(cache_folder() / "kernels"), "not for this architecture or these weights"
    except NotCompiled as reason:
        return None, str(reason)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def again(*args: Any, **fields: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **fields)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **fields)

    return again


def _load(weights: Path, model: ModelConfig) -> PreTrainedModel:
    with boundary(ModelError, f"loading {model.name}"), quiet(), torch.random.fork_rng(devices=[]):
        answer: Any = AutoModelForCausalLM.from_pretrained(
            weights,
            dtype=choose_dtype(model),
            attn_implementation=IMPLEMENTATION,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they come back in the report
            output_loading_info=True,
        )
    loaded: PreTrainedModel = answer[0]
    report: Mapping[str, Any] = answer[1]
    # transformers fills what a file lacks with random numbers
    lacking = sorted(report["missing_keys"]) + [f"{key} {list(has)}" for key, has, _ in sorted(report["mismatched_keys"])]
    if lacking:
        raise ModelError(f"{weights}: {len(lacking)} weights are missing or have the wrong shape, such as {lacking[0]}")
    return loaded


def choose_dtype(model: ModelConfig) -> torch.dtype:
    """float32 for full fine-tuning (bfloat16 rounds small updates away); else bfloat16 where the processor is faster with it."""
    if model.dtype != "auto":
        return torch.bfloat16 if model.dtype == "bfloat16" else torch.float32
    if model.tuning == "full" or model.name == "tiny":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_available() or processor().prefers_bfloat16 else torch.float32


def _with_adapters(base: PreTrainedModel, model: ModelConfig, checkpoint: Path | None, seed: int) -> PeftModel:
    where = f"model.lora_targets={model.lora_targets}" if checkpoint is None else f"loading adapters from {checkpoint}"
    with _peft(where):
        if checkpoint is not None:
            return PeftModel.from_pretrained(base, str(checkpoint), is_trainable=True, autocast_adapter_dtype=True)
        torch.default_generator.manual_seed(seed)
        settings = LoraConfig(
            r=model.lora_rank,
            lora_alpha=model.lora_alpha,
            lora_dropout=0.0,
            target_modules=model.lora_targets,
            task_type="CAUSAL_LM",
        )
        adapted: PeftModel = get_peft_model(base, settings, autocast_adapter_dtype=True)
    return adapted


@contextmanager
def _peft(where: str) -> Iterator[None]:
    """Around calls that make adapters: failures name `where`, what is lacking is one, and needless warnings are not shown.

    peft draws first values from the global generator, also where a file replaces them; nothing outside may notice.
    """
    with boundary(ModelError, where), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft still reads a name that transformers has replaced
        warnings.filterwarnings("ignore", "fan_in_fan_out")  # it finds out by itself how GPT-2 lays its matrices
        warnings.filterwarnings("error", "Found missing adapter keys")
        yield


def _variation(p_LV: Tensor, q_LV: Tensor) -> Tensor:
    """Total variation between distributions, per position: from 0 (equal) to 1."""
    return (p_LV - q_LV).abs().sum(-1) / 2
