"""vLLM on CPU with prefix caching: every conversation goes on as soon as its own reply is there, whatever the others do."""

from __future__ import annotations

import os
import time
from typing import Any

from protocol import answer, first_turn, num_new, read_work

CACHE_GIB = "4"


def main() -> None:
    work = read_work()
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = CACHE_GIB
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process: no time and memory for a second one
    import vllm
    from vllm import LLM

    conversations = work["conversations"]
    longest = max(sum(len(turn["observed"]) + turn["num_new"] for turn in conversation) for conversation in conversations)
    llm = LLM(
        model=work["model"],
        dtype=work["dtype"],
        max_model_len=longest + 1,
        max_num_seqs=max(len(conversations), 1),
        enable_prefix_caching=True,
        enforce_eager=True,
    )
    play(llm.llm_engine, conversations, 0)
    seconds = []
    for repeat in range(1, work["repeats"] + 1):
        started = time.perf_counter()
        play(llm.llm_engine, conversations, repeat)
        seconds.append(time.perf_counter() - started)
    answer(f"vllm {vllm.__version__}", seconds, num_new(work))


def play(engine: Any, conversations: list[list[dict[str, Any]]], repeat: int) -> None:
    """Ask for the first reply of every conversation, then for the next one whenever a reply is complete."""
    from vllm import SamplingParams

    ids: list[list[int]] = [first_turn(conversation[0], repeat) for conversation in conversations]
    turn = [0] * len(conversations)

    def ask(number: int) -> None:
        params = SamplingParams(
            temperature=1.0, max_tokens=conversations[number][turn[number]]["num_new"], ignore_eos=True, logprobs=0
        )
        engine.add_request(f"{repeat}.{number}.{turn[number]}", {"prompt_token_ids": list(ids[number])}, params)

    for number in range(len(conversations)):
        ask(number)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if not output.finished:
                continue
            number = int(output.request_id.split(".")[1])
            sampled = list(output.outputs[0].token_ids)
            wanted = conversations[number][turn[number]]["num_new"]
            assert len(sampled) == wanted, (len(sampled), wanted)
            ids[number] += sampled
            turn[number] += 1
            if turn[number] < len(conversations[number]):
                ids[number] += conversations[number][turn[number]]["observed"]
                ask(number)


if __name__ == "__main__":
    main()
