"""The `tiny` model: small, real, the same everywhere."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from ragen.models.aliases import ALIASES
from ragen.models.tiny import build_tiny, build_tokenizer
from tests.support.models import build_tiny_gpt2, build_tiny_llama

TOKENIZER = build_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    build_tiny(path)
    return path


@given(st.text())
def test_any_text_survives_encoding(text: str) -> None:
    ids = TOKENIZER.encode(text, split_special_tokens=True)
    assert TOKENIZER.decode(ids) == text


def test_control_tokens_have_the_first_ids_and_pad_is_not_the_end() -> None:
    assert TOKENIZER.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]
    assert (TOKENIZER.pad_token_id, TOKENIZER.bos_token_id, TOKENIZER.eos_token_id) == (0, 1, 2)
    assert len(TOKENIZER) == 1024


def test_the_chat_template_writes_turns_one_after_the_other() -> None:
    chat = [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}]
    text = TOKENIZER.apply_chat_template([*chat, {"role": "user", "content": "D"}], add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\nC<|im_end|>\n"
        "<|im_start|>user\nD<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_tag_takes_several_tokens_as_in_large_models() -> None:
    assert TOKENIZER.tokenize("<think>") == ["<", "think", ">"]


def test_a_corpus_too_small_for_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size=50000: the corpus yields"):
        build_tokenizer(50_000)


def test_it_is_the_same_to_the_byte_and_leaves_the_global_generator_alone(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    build_tiny(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert {name for name in names if (folder / name).read_bytes() != (tmp_path / name).read_bytes()} == set()


def test_it_has_a_million_parameters(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    # embeddings (tied) + 4 layers of (query and output, key and value, three feed-forward matrices, two norms) + last norm
    by_hand = 1024 * 128 + 4 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 448 + 2 * 128) + 128
    assert sum(parameter.numel() for parameter in model.parameters()) == by_hand == ALIASES["tiny"].parameters
    assert model.dtype == torch.float32
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 0)


def test_its_logits_are_neither_flat_nor_frozen_nor_a_copy_of_the_input(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([TOKENIZER.encode("Sokoban: push every box onto a target. The reward is 0.15.")])
    with torch.no_grad():
        logits_TV = model(ids).logits[0]
    entropy_T = torch.distributions.Categorical(logits=logits_TV).entropy()
    assert 0.5 < logits_TV.std(-1).mean() < 1.0
    assert 0.9 * math.log(1024) < entropy_T.mean() < 0.99 * math.log(1024)
    best_T = logits_TV.argmax(-1)
    assert best_T.unique().numel() > ids.shape[1] / 3
    assert (best_T == ids[0]).float().mean() < 0.2


def test_it_learns_a_reply_from_scratch_in_a_few_steps(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([TOKENIZER.encode("<think>The dragon arm is steady.</think><answer>Dragon</answer>")])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(1024), rel=0.15)
    assert losses[-1] < 0.1


@pytest.mark.parametrize("build", [build_tiny_llama, build_tiny_gpt2])
def test_the_models_of_the_test_support_depend_on_their_seed_alone(build: object, tmp_path: Path) -> None:
    assert callable(build)
    weights = [build(tmp_path / str(i), vocab_size=400, seed=seed) / "model.safetensors" for i, seed in enumerate((0, 0, 1))]
    first, same, other = (path.read_bytes() for path in weights)
    assert first == same
    assert first != other
