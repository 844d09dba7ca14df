"""SmolLM2 from a GGUF file to a folder in Hugging Face layout: safetensors, tokenizer, chat template, generation settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from ragen.errors import ModelError, boundary
from ragen.models.quiet import quiet


def convert_smollm2(gguf: Path, folder: Path) -> None:
    """Write the SmolLM2 model in `gguf` into `folder`, its weights dequantised to bfloat16. Raises ModelError if that fails.

    bfloat16 is the format that the original weights are published in. Rounding to it moves a weight by at most 2^-9 of its size,
    where four-bit quantisation has already moved it by up to a thirtieth of its block's range: measured on a short chat, the mean
    KL to float32 storage is 1e-4, a thirtieth of what computing in bfloat16 costs. float32 would take twice the disk.
    """
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with boundary(ModelError, f"converting {gguf.name}"), quiet(), torch.random.fork_rng(devices=[]):
        config = AutoConfig.from_pretrained(**source)
        tokenizer = _tokenizer(AutoTokenizer.from_pretrained(**source, config=config), config.max_position_embeddings)
        tokenizer.save_pretrained(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(**source, config=config, dtype=torch.bfloat16)
        model.hf_quantizer = None  # the weights are plain numbers now, whatever the file held
        model.config.__dict__.pop("quantization_config", None)
        model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        model.save_pretrained(folder)


def _tokenizer(loaded: Any, max_length: int) -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer with its own splitting rule, built anew so that no setting of the loading itself is saved along.

    transformers reads vocabulary and merges from the file, but not the rule that it names (tokenizer.ggml.pre = smollm: each
    digit alone, then words as in GPT-2). Without the rule, spaces and line breaks in front of a digit are cut otherwise than in
    training: "\\n\\n1" and "  7" would get ids that the model has never seen in that place.
    """
    raw = loaded.backend_tokenizer
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw,
        bos_token=loaded.bos_token,
        eos_token=loaded.eos_token,
        pad_token=loaded.pad_token,
        unk_token=loaded.unk_token,
        chat_template=loaded.chat_template,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
