"""TRL's GRPOTrainer on the bandit's prompts: sampling, reward and update, step after step, LoRA on every linear layer."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from protocol import answer, read_work
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

REPLY = re.compile(r"(.*?)</think>\s*<answer>(.*?)</answer>", re.DOTALL)


class Clock(TrainerCallback):
    """Seconds of every step, sampling included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._started)


def reward(completions: list[str], **_: Any) -> list[float]:
    """A function of the text alone: what it pays is of no matter for the time, but members of a group must differ."""
    return [(0.0 if REPLY.search(text) else -0.1) + (len(text) % 2) for text in completions]


def main() -> None:
    work = read_work()
    torch.set_num_threads(work["threads"])
    is_bf16 = work["dtype"] == "bfloat16"
    config = GRPOConfig(
        output_dir=str(Path.cwd() / "trl-out"),
        per_device_train_batch_size=work["num_groups"] * work["group_size"],
        num_generations=work["group_size"],
        max_completion_length=work["new_tokens"],
        generation_kwargs={"min_new_tokens": work["new_tokens"]},
        max_steps=work["repeats"] + 1,
        learning_rate=2e-4,
        beta=0.0,
        bf16=is_bf16,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        gradient_checkpointing=False,
        temperature=1.0,
        lr_scheduler_type="constant",
        shuffle_dataset=False,
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(work["model"], dtype=getattr(torch, work["dtype"])),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": work["prompts"]}),
        processing_class=AutoTokenizer.from_pretrained(work["model"], padding_side="left"),
        callbacks=[clock],
        peft_config=LoraConfig(
            r=work["lora_rank"], lora_alpha=2 * work["lora_rank"], target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.train()
    lengths = [row["completions/mean_length"] for row in trainer.state.log_history if "completions/mean_length" in row]
    num_tokens = round(lengths[-1] * work["num_groups"] * work["group_size"])
    answer(f"trl {trl.__version__}", clock.seconds[1:], num_tokens, mean_lengths=lengths)


if __name__ == "__main__":
    main()
