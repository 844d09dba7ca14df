"""The `tiny` model: random Llama-type weights, about a million, with a small real tokenizer; built without a download.

Small enough to learn from scratch in seconds on a CPU, real enough to exercise every path that a large model takes: grouped
key/value heads, tied embeddings, a byte-level BPE whose tags take several tokens, a chat template, a pad id that is not the end
id. Everything is a function of the text beside this file and of a fixed seed.
"""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from ragen.models.quiet import quiet

VOCAB_SIZE = 1024
MAX_POSITIONS = 4096
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"  # ids 0, 1, 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tiny(folder: Path) -> None:
    """Write model, tokenizer, chat template and generation settings into `folder` (Hugging Face layout, float32, 4 MB)."""
    tokenizer = build_tokenizer()
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    save_random(LlamaForCausalLM, config, folder, seed=0)
    tokenizer.save_pretrained(folder)


def build_tokenizer(vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of `vocab_size` entries on the corpus beside this file.

    All 256 bytes are in the alphabet, so every text round-trips. Raises ValueError if the corpus is too small for `vocab_size`.
    """
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[PAD, START, END],
        show_progress=False,
    )
    corpus = files("ragen.models").joinpath("tiny_corpus.txt").read_text(encoding="utf-8")
    raw.train_from_iterator([corpus], trainer=trainer)
    if raw.get_vocab_size() != vocab_size:
        raise ValueError(f"vocab_size={vocab_size}: the corpus yields {raw.get_vocab_size()} entries")
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def save_random(model_class: type[PreTrainedModel], config: PreTrainedConfig, folder: Path, *, seed: int) -> None:
    """Build a model of `config` with weights drawn from `seed` and save it; the global generators stay as they were."""
    with torch.random.fork_rng(devices=[]):  # transformers draws its own initial values from the global generator
        model = model_class._from_config(config)  # type: ignore[no-untyped-call]
    initialise(model, seed=seed)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    with quiet():
        model.save_pretrained(folder)


@torch.no_grad()
def initialise(model: PreTrainedModel, *, seed: int) -> None:
    """Redraw every weight matrix from an own generator; norms stay 1 and biases 0.

    Embeddings get a standard deviation of 0.06, other matrices 1/sqrt(columns). With the usual 0.02 everywhere the residual
    stream is mostly the current token's own embedding, and a tied output layer then repeats that token. This way logits depend on
    the whole context, spread by about 0.7 at hidden size 128, and the entropy is a little under that of a uniform choice.
    """
    generator = torch.Generator().manual_seed(seed)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    for parameter in model.parameters():
        if parameter.ndim == 2:
            std = 0.06 if id(parameter) in embeddings else 1 / math.sqrt(parameter.shape[1])
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
