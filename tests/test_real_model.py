"""The claims about SmolLM2-135M-Instruct, on the real weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from torch import Tensor
from transformers import AutoModelForCausalLM

from ragen.config.load import load
from ragen.engines.torch_engine import TorchEngine
from ragen.models.aliases import resolve
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from ragen.records import Sampling
from ragen.run import train
from ragen.training.trackers import read_metrics

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(600)]


def plain_logprobs(model: torch.nn.Module, prompt: list[int], sampled: tuple[int, ...]) -> Tensor:
    """What transformers alone says, without a cache and without anything of ours."""
    ids = torch.tensor([*prompt, *sampled])
    with torch.no_grad():
        scores = model(input_ids=ids[None], use_cache=False).logits[0].float().log_softmax(-1)
    return scores[len(prompt) - 1 : -1].gather(1, torch.tensor(sampled)[:, None])[:, 0]


@pytest.mark.parametrize(("dtype", "mean_bound", "max_bound"), [("float32", 1e-4, 1e-4), ("bfloat16", 0.1, 1.0)])
def test_two_turns_of_a_group_have_the_log_probs_of_a_plain_forward_pass(dtype: str, mean_bound: float, max_bound: float) -> None:
    """bfloat16 keeps 8 bits: two orders of the same sum differ by some hundredths of a nat on this model."""
    policy = load_policy(ModelConfig(name="smollm2-135m", dtype=dtype))
    template = ChatTemplate(policy.tokenizer)
    engine = TorchEngine(policy)
    questions = ["Name a colour.", "Which is larger, seven or nine? Answer in one word.", "Name a colour."]
    starts = [template.start("You are brief.", question) for question in questions]

    async def turns() -> list[tuple[list[int], tuple[int, ...]]]:
        spoken = []
        prompts = starts
        for turn in range(2):
            requests = [
                Sampling(max_new_tokens=10, temperature=1.0, stop_ids=template.stop_ids, seed=(turn, member))
                for member in range(len(prompts))
            ]
            done = await asyncio.gather(*[engine.generate(p, s) for p, s in zip(prompts, requests, strict=True)])
            spoken += [(p, c) for p, c in zip(prompts, done, strict=True)]
            prompts = [
                [*p, *c.ids, *template.append_user("And another one?", last_id=c.ids[-1])]
                for p, c in zip(prompts, done, strict=True)
            ]
        return spoken

    spoken = asyncio.run(turns())
    plain = AutoModelForCausalLM.from_pretrained(resolve("smollm2-135m"), dtype=getattr(torch, dtype))
    gaps = torch.cat([(plain_logprobs(plain, p, c.ids) - torch.tensor(c.logprobs)).abs() for p, c in spoken])
    assert len(gaps) > 20
    assert gaps.mean() <= mean_bound
    assert gaps.max() <= max_bound


def test_a_short_run_leaves_adapters_that_peft_opens_and_finite_numbers(tmp_path: Path) -> None:
    overrides = [
        f"output_dir={tmp_path}",
        "trainer.steps=1",
        "trainer.kl_groups=1",
        "rollout.group_size=4",
        "environments.bandit.num_groups=2",
        "evaluation.num_episodes=4",
    ]
    summary = train(load("bandit", overrides))
    rows = read_metrics(summary.folder)
    assert [row["step"] for row in rows] == [0, 1]
    assert rows[1]["update/kl_start"] == 0.0  # measured before the first update, when policy and start are one
    assert rows[1]["update/engine_gap_mean"] <= 0.1
    assert rows[1]["update/skipped"] == 0.0
    opened = AutoPeftModelForCausalLM.from_pretrained(summary.folder / "checkpoints" / "step-000001")
    moved = [p for name, p in opened.named_parameters() if "lora_B" in name]
    assert moved
    assert all(bool(p.isfinite().all()) and bool(p.any()) for p in moved)  # lora_B starts at zero
