"""Loading a tokenizer, and refusing one that cannot serve a conversation or does not belong to its model."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from ragen.errors import ModelError, boundary
from ragen.models.aliases import resolve


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a model given by alias, folder or hub id.

    Raises ModelError if the model cannot be had, if it has no chat template or no fast tokenizer, or if the tokenizer can produce
    ids for which the model has no embedding.
    """
    folder = resolve(str(name))
    with boundary(ModelError, f"loading the tokenizer of {folder}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"{folder}: {type(tokenizer).__name__} has no fast version; save the model with a tokenizer.json")
    if not tokenizer.chat_template:
        raise ModelError(
            f"{folder}: the tokenizer has no chat template; use an instruct model, or put a chat_template.jinja into the folder"
        )
    check_vocabulary(tokenizer, config.get_text_config().vocab_size, str(folder))
    return tokenizer


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, num_rows: int, where: str) -> None:
    """Raise ModelError if the tokenizer's highest id lies beyond the model's `num_rows` embedding rows.

    More rows than ids are fine: many models round the number of rows up.
    """
    num_ids = max(tokenizer.get_vocab().values()) + 1
    if num_ids > num_rows:
        raise ModelError(
            f"{where}: the tokenizer has {num_ids} ids, the model only {num_rows} embedding rows; they do not belong together: "
            f"take both from one folder, or resize the embeddings after adding tokens"
        )
