"""Every quick path has a slow twin here: peft's and transformers' own modules, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn

from ragen.models import frozen_linear
from ragen.models.attention import PackedView
from ragen.models.config import ModelConfig
from ragen.models.frozen_linear import JointLinear, packs_weights
from ragen.models.policy import POLICY_ADAPTER, Policy, load_policy
from ragen.models.quick_modules import quicken
from tests.support.architectures import ARCHITECTURES, architecture

PROMPT, LENGTHS = 7, (5, 2, 5)
needs_native_bfloat16 = pytest.mark.skipif(
    not packs_weights(torch.zeros(1, dtype=torch.bfloat16)), reason="the processor does not multiply bfloat16"
)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen.models.policy.quicken", lambda model, kernels: {})


def policy_of(name: str, *, dtype: str = "float32") -> Policy:
    policy = load_policy(ModelConfig(name=str(architecture(name)), tuning="lora", lora_rank=3, dtype=dtype))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():  # adapters begin at zero: then a forgotten one would not show
        for parameter in policy.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return policy


def scores_and_gradients(policy: Policy) -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    length = PROMPT + sum(LENGTHS)
    ids_L = torch.randint(3, 400, (length,), generator=generator)
    at_L = torch.tensor([*range(PROMPT), *(PROMPT + i for n in LENGTHS for i in range(n))])
    logits_LV = policy.logits(policy.hidden(ids_L, at_L, PackedView(PROMPT, LENGTHS, device="cpu")))
    weight_LV = torch.randn(logits_LV.shape, generator=generator)
    (logits_LV.log_softmax(-1) * weight_LV).sum().backward()
    gradients = {name: parameter.grad for name, parameter in policy.trainable().items()}
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in gradients.values())
    return logits_LV.detach(), gradients  # type: ignore[return-value]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_quick_modules_give_the_scores_and_gradients_of_the_modules_they_replace(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_scores, quick = scores_and_gradients(policy_of(name))
    slow(monkeypatch)
    scores, gradients = scores_and_gradients(policy_of(name))
    torch.testing.assert_close(quick_scores, scores, atol=1e-4, rtol=1e-5)
    assert quick.keys() == gradients.keys()
    for key, gradient in gradients.items():
        largest = gradient.abs().max().item()
        torch.testing.assert_close(quick[key], gradient, atol=1e-5 * largest, rtol=1e-4, msg=key)


def test_the_quick_path_is_taken_where_weights_are_frozen_and_only_there() -> None:
    def replaced(policy: Policy) -> int:
        return sum("forward" in vars(module) for module in policy.module.modules())

    # a layer has 7 linear layers, a gated unit and 2 norms; the model has one norm more and the output layer
    assert replaced(policy_of("llama")) == 2 * (7 + 1 + 2) + 2
    assert replaced(policy_of("qwen3")) == 2 * (7 + 1 + 4) + 2  # norms of queries and keys
    assert replaced(load_policy(ModelConfig(name=str(architecture("llama")), tuning="full"))) == 0


@pytest.mark.parametrize("targets", [["q_proj"], ["v_proj", "k_proj"], ["up_proj", "o_proj"]])
def test_adapters_on_some_layers_of_a_joint_product_touch_those_alone(
    targets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradients() -> dict[str, Tensor]:
        config = ModelConfig(
            name=str(architecture("llama")),
            tuning="lora",
            lora_rank=2,
            lora_targets=rf".*\.({'|'.join(targets)})",
            dtype="float32",
        )
        policy = load_policy(config)
        with torch.no_grad():
            for name, parameter in policy.trainable().items():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).sin().view(parameter.shape) * len(name) / 1000)
        return scores_and_gradients(policy)[1]

    quick = gradients()
    slow(monkeypatch)
    expected = gradients()
    assert len(expected) == 2 * 2 * len(targets)
    for key, gradient in expected.items():
        torch.testing.assert_close(quick[key], gradient, atol=1e-5 * gradient.abs().max().item(), rtol=1e-4)


def test_switching_adapters_off_or_to_another_is_seen_at_once() -> None:
    policy = policy_of("llama")
    ids_L, at_L = torch.arange(3, 9), torch.arange(6)

    def scores() -> Tensor:
        with torch.no_grad():
            return policy.logits(policy.hidden(ids_L, at_L, PackedView(6, device="cpu")))

    with_adapters = scores()
    with policy.reference():
        start = scores()
    policy.add_adapter("critic", rank=2, seed=0)
    with policy.adapter("critic"):
        untrained = scores()  # a new adapter changes nothing until it is trained
    assert not torch.allclose(start, with_adapters, atol=1e-3)
    torch.testing.assert_close(untrained, start, atol=1e-5, rtol=0)
    torch.testing.assert_close(scores(), with_adapters, atol=0, rtol=0)
    with torch.no_grad():
        next(iter(policy.trainable(POLICY_ADAPTER).values())).add_(0.5)
    assert not torch.allclose(scores(), with_adapters, atol=1e-3)  # the copy of the adapter is made anew


def test_a_weight_that_is_written_into_is_read_again() -> None:
    layer = nn.Linear(4, 3).requires_grad_(False)
    joint = JointLinear([layer])
    x_LI = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    joint(x_LI)
    layer.weight.copy_(torch.ones(3, 4))
    layer.bias.zero_()
    torch.testing.assert_close(joint(x_LI), x_LI.sum(1, keepdim=True).expand(2, 3))


@pytest.mark.parametrize("order", ["qkv", "vqk", "qqkv", "k"])
def test_layers_that_share_an_input_may_be_called_in_any_order(order: str) -> None:
    block = attention_block()
    expected = {name: nn.functional.linear(block.x, layer.weight) for name, layer in block.layers.items()}
    quicken(block)
    for name in order:
        torch.testing.assert_close(block.layers[name](block.x), expected[name])


def test_an_input_that_was_changed_in_place_is_not_mistaken_for_the_old_one() -> None:
    block = attention_block()
    quicken(block)
    block.layers["q"](block.x)
    block.x.mul_(2)
    torch.testing.assert_close(block.layers["k"](block.x), nn.functional.linear(block.x, block.layers["k"].weight))


def attention_block() -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, width in (("q", 4), ("k", 2), ("v", 2)):
                setattr(self, f"{name}_proj", nn.Linear(5, width, bias=False).requires_grad_(False))
            self.x = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(1))

        @property
        def layers(self) -> dict[str, Any]:
            return {name: getattr(self, f"{name}_proj") for name in "qkv"}

    return Block()


def test_a_norm_that_computes_something_else_keeps_its_own_forward() -> None:
    class OddRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8), requires_grad=False)
            self.eps = 1e-6

        def forward(self, x: Tensor) -> Tensor:
            return 3 * x

    module = OddRMSNorm()
    quicken(module)
    assert "forward" not in vars(module)


@needs_native_bfloat16
@pytest.mark.parametrize("rows", [1, 16, 64, 130])
def test_packed_weights_give_the_product_of_the_plain_ones(rows: int) -> None:
    """Both sum in float32 and round once to bfloat16, in another order."""
    generator = torch.Generator().manual_seed(rows)
    base = nn.Linear(96, 40).requires_grad_(False).bfloat16()
    wrapped: Any = get_peft_model(nn.Sequential(base), LoraConfig(r=4, target_modules=["0"]))
    layer = next(module for module in wrapped.modules() if isinstance(module, LoraLinear))
    with torch.no_grad():
        thin = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        thin[1].normal_(generator=generator)  # type: ignore[operator]

    def outcome(forward: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x_LI = torch.randn(rows, 96, generator=torch.Generator().manual_seed(9)).bfloat16().requires_grad_()
        layer.zero_grad()
        out_LO = forward(x_LI)
        (out_LO.float() * torch.linspace(-1, 1, 40)).sum().backward()
        return [out_LO.detach(), x_LI.grad, *(parameter.grad for parameter in thin)]  # type: ignore[list-item]

    expected = outcome(layer)
    for ours, theirs in zip(outcome(JointLinear([layer])), expected, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours.float(), theirs.float(), atol=0.02 * theirs.abs().max().item(), rtol=0.02)


def test_a_gradient_that_nobody_asks_for_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer's input are embeddings, which are not trained."""
    layer = nn.Linear(4, 3).requires_grad_(False)
    wrapped: Any = get_peft_model(nn.Sequential(layer), LoraConfig(r=2, target_modules=["0"]))
    joint = JointLinear([next(module for module in wrapped.modules() if isinstance(module, LoraLinear))])
    asked: list[int] = []
    honest = frozen_linear.FrozenWeight.gradient

    def counted(self: frozen_linear.FrozenWeight, grad_LO: Tensor) -> Tensor:
        asked.append(1)
        return honest(self, grad_LO)

    monkeypatch.setattr(frozen_linear.FrozenWeight, "gradient", counted)
    joint(torch.ones(2, 4)).sum().backward()
    assert asked == []
    joint(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert asked == [1]
