"""Tokenizers that cannot serve are refused by name; the others load from wherever a model may come."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from ragen.errors import ModelError
from ragen.models.tokenizer import load_tokenizer
from tests.support.models import build_tiny_llama, tiny_gpt2, tiny_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(tiny_llama(), tmp_path / "model")


@pytest.mark.parametrize("model", [lambda: "tiny", tiny_llama, lambda: str(tiny_gpt2())], ids=["alias", "path", "text"])
def test_it_loads_by_alias_and_by_folder(model: Callable[[], str | Path]) -> None:
    tokenizer = load_tokenizer(model())
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert tokenizer.decode(tokenizer.encode("<answer>Up</answer>")) == "<answer>Up</answer>"


def test_a_model_without_chat_template_is_refused_with_the_way_out(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError) as e:
        load_tokenizer(folder)
    assert str(e.value) == (
        f"{folder}: the tokenizer has no chat template; use an instruct model, or put a chat_template.jinja into the folder"
    )


def test_a_tokenizer_with_more_ids_than_embedding_rows_is_refused_with_both_sizes(folder: Path) -> None:
    """bug-log row 13: two tokens were added to the tokenizer, the model kept its 400 rows."""
    tokenizer = load_tokenizer(folder)
    tokenizer.add_tokens(["<think>", "<answer>"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match="has 402 ids, the model only 400 embedding rows; they do not belong together"):
        load_tokenizer(folder)


def test_more_embedding_rows_than_ids_are_fine(folder: Path) -> None:
    """Many models round the number of rows up."""
    build_tiny_llama(folder, vocab_size=448)
    assert len(load_tokenizer(folder)) == 400


def test_a_torn_tokenizer_file_is_one_clear_line(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {')
    with pytest.raises(ModelError, match="loading the tokenizer of") as e:
        load_tokenizer(folder)
    assert "\n" not in str(e.value)
    assert str(folder) in str(e.value)
