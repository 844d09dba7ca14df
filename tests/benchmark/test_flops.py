"""Operations counted by hand for models small enough to count."""

from __future__ import annotations

import torch

from ragen.benchmark.flops import PackedGroup, Shape, decode_bytes, decode_flops, shape_of, update_flops
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from tests.support.learners import small_policy
from tests.support.models import tiny_llama

# One layer with a single matrix 3 -> 5 and an adapter of rank 1 beside it (3 + 5 weights); 7 ids; 2 heads of width 2.
SHAPE = Shape(matrices=((3, 5),), lora_weights=8, output_weights=21, num_layers=1, attention_width=4, bytes_per_weight=2)
# A prompt of 4 tokens, continuations of 2 and 1 fed tokens, 5 trained tokens.
GROUP = PackedGroup(prompt=4, continuations=(2, 1), num_trained=5)


def test_a_prompt_is_fed_once_however_many_continue_it() -> None:
    assert GROUP.num_fed == 4 + 2 + 1


def test_each_token_attends_to_all_before_it_and_to_itself() -> None:
    prompt = 1 + 2 + 3 + 4
    first = 5 + 6  # four of the prompt, then its own
    second = 5
    assert GROUP.num_pairs == prompt + first + second


def test_an_update_beside_frozen_weights_costs_four_per_weight_and_six_per_adapter_weight() -> None:
    flops = update_flops(SHAPE, [GROUP])
    assert flops == {
        "matrices": 4 * 15 * 7,  # forward and through activations; no gradient of the frozen matrix
        "lora": 6 * 8 * 7,
        "output_layer": 4 * 21 * 5,  # at trained positions alone
        "attention": 12 * 1 * 4 * 26,  # two products forward, four backward, two operations each
        "total": 420 + 336 + 420 + 1248,
    }


def test_two_groups_cost_the_sum_of_both() -> None:
    assert update_flops(SHAPE, [GROUP, GROUP])["total"] == 2 * update_flops(SHAPE, [GROUP])["total"]


def test_full_fine_tuning_adds_the_gradient_of_every_weight() -> None:
    full = Shape(
        matrices=((3, 5),),
        lora_weights=0,
        output_weights=21,
        num_layers=1,
        attention_width=4,
        bytes_per_weight=4,
        trains_all=True,
    )
    flops = update_flops(full, [GROUP])
    assert (flops["matrices"], flops["lora"], flops["output_layer"]) == (6 * 15 * 7, 0, 6 * 21 * 5)


def test_a_decode_step_reads_the_weights_once_and_multiplies_them_for_every_row() -> None:
    assert decode_bytes(SHAPE) == 2 * (15 + 21)
    assert decode_flops(SHAPE, rows=3, context=10) == 3 * (2 * (15 + 8 + 21) + 4 * 1 * 4 * 10)


def test_the_shape_of_a_model_is_read_from_its_modules() -> None:
    """Two layers of width 32: 4 heads of 8, two of them for keys and values, 64 in the gated middle; 400 ids."""
    shape = shape_of(small_policy())
    per_layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64
    assert shape.matrix_weights == 2 * per_layer
    assert (shape.output_weights, shape.num_layers, shape.attention_width) == (32 * 400, 2, 32)
    assert (shape.lora_weights, shape.trains_all, shape.bytes_per_weight) == (0, True, 4)


def test_adapters_are_counted_apart_from_the_weights_they_stand_beside() -> None:
    policy = load_policy(ModelConfig(name=str(tiny_llama()), dtype="float32", lora_rank=3))
    shape = shape_of(policy)
    inputs_and_outputs = (32 + 32) + 2 * (32 + 16) + (32 + 32) + 2 * (32 + 64) + (64 + 32)
    assert shape.lora_weights == 2 * 3 * inputs_and_outputs
    assert shape.matrix_weights == shape_of(small_policy()).matrix_weights
    assert not shape.trains_all
    assert policy.dtype == torch.float32
