"""transformers `generate`: one batch with every sample's own copy of the prompt, as its users sample from it."""

from __future__ import annotations

import time

import torch
import transformers
from protocol import answer, first_turn, num_new, read_work
from transformers import AutoModelForCausalLM


def main() -> None:
    work = read_work()
    torch.set_num_threads(work["threads"])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype=getattr(torch, work["dtype"])).eval()
    exchanges = [exchange for (exchange,) in work["conversations"]]  # one turn each: generate knows no conversation
    (length,) = {exchange["num_new"] for exchange in exchanges}

    def play(repeat: int) -> float:
        started = time.perf_counter()
        ids = torch.tensor([first_turn(exchange, repeat) for exchange in exchanges])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                repetition_penalty=1.0,
                min_new_tokens=length,
                max_new_tokens=length,
            )
        seconds = time.perf_counter() - started
        assert out.shape[1] == ids.shape[1] + length, out.shape
        return seconds

    play(0)
    seconds = [play(repeat) for repeat in range(1, work["repeats"] + 1)]
    answer(f"transformers {transformers.__version__}", seconds, num_new(work))


if __name__ == "__main__":
    main()
