"""What is done to a GGUF file beside what transformers does; test_aliases converts the real file."""

from __future__ import annotations

import copy
import io
import logging
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from ragen.errors import ModelError
from ragen.models.convert import _tokenizer, convert_smollm2
from ragen.models.quiet import quiet
from tests.support.models import tiny_tokenizer


def test_digits_stand_alone_and_white_space_before_them_is_one_stretch() -> None:
    """bug-log row 58: the GGUF file names this rule (tokenizer.ggml.pre = smollm), transformers does not read it."""
    loaded = copy.deepcopy(tiny_tokenizer())

    def pieces(tokenizer: object) -> list[str]:
        return [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a\n\n12  7 b")]  # type: ignore[attr-defined]

    assert pieces(loaded) == ["a", "Ċ", "Ċ", "12", "Ġ", "Ġ7", "Ġb"]
    assert pieces(_tokenizer(loaded, 77)) == ["a", "ĊĊ", "1", "2", "ĠĠ", "7", "Ġb"]


def test_the_tokenizer_keeps_its_control_tokens_template_and_length() -> None:
    tokenizer = _tokenizer(copy.deepcopy(tiny_tokenizer()), 77)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert tokenizer.model_max_length == 77


def test_a_file_that_is_no_gguf_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not a model at all")
    with pytest.raises(ModelError, match=r"converting model\.gguf: ") as e:
        convert_smollm2(tmp_path / "model.gguf", tmp_path)
    assert "\n" not in str(e.value)


def test_quiet_silences_bars_and_notes_and_then_stops() -> None:
    before = transformers_logging.get_verbosity()
    with redirect_stderr(io.StringIO()) as screen:
        with quiet():
            assert transformers_logging.get_verbosity() == logging.ERROR
            assert list(tqdm([1, 2])) == [1, 2]
        assert screen.getvalue() == ""
        assert list(tqdm([1, 2])) == [1, 2]
        assert "2/2" in screen.getvalue()
    assert transformers_logging.get_verbosity() == before
