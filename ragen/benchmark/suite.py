"""The three benchmarks: `rollout`, `step` and `update`. Each takes its ceilings, lets the sides work, and makes a report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ragen.benchmark.flops import PackedGroup, Shape, decode_bytes, decode_flops, shape_of, update_flops
from ragen.benchmark.machine import this_machine, usable_cores
from ragen.benchmark.published import environment_ratios
from ragen.benchmark.report import Ratio, Report, Result, Share
from ragen.benchmark.sides import OWN, AnyWork, Side, Timing, alternate, find_peer, own_side
from ragen.benchmark.sizes import FULL, Sizes
from ragen.benchmark.tasks import bandit_prompts, sokoban_conversations
from ragen.benchmark.work import CeilingsWork, RolloutWork, StepWork, groups_of_prompts
from ragen.errors import ConfigError
from ragen.models.aliases import resolve
from ragen.models.config import ModelConfig
from ragen.models.policy import choose_dtype, load_policy

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose. Every count is at least 1."""

    model: str = "smollm2-135m"
    threads: int = field(default_factory=usable_cores)
    rounds: int = 2  # fresh processes per side
    repeats: int = 3  # timed per process
    peers: Mapping[str, str] = field(default_factory=dict)  # name -> interpreter
    sizes: Sizes = FULL

    def check(self) -> None:
        """Raise ConfigError for a count out of range."""
        for name in ("threads", "rounds", "repeats"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} {getattr(self, name)}: must be at least 1")

    @property
    def dtype(self) -> str:
        """bfloat16 where the processor multiplies it, as in a run with LoRA."""
        return str(choose_dtype(ModelConfig(name=self.model, tuning="lora"))).removeprefix("torch.")

    def of_work(self) -> dict[str, Any]:
        """What every piece of work says."""
        folder = str(resolve(self.model).absolute())
        return {"model": folder, "dtype": self.dtype, "threads": self.threads, "repeats": self.repeats}


class _Bench:
    """One benchmark on its way to a report."""

    def __init__(self, name: str, options: Options, say: Say) -> None:
        options.check()
        self.name, self.options, self.say = name, options, say
        self.machine = this_machine()
        self.skipped: dict[str, str] = {}
        self.results: list[Result] = []
        self._ceilings: list[Mapping[str, Any]] = []

    def compare(self, name: str, what: str, work: AnyWork, peers: tuple[str, ...] = ()) -> Timing:
        """Measure a workload on every side that can do it; returns our own timing."""
        sides: list[Side] = [own_side()]
        for peer in peers:
            found = find_peer(peer, work.kind, self.options.peers)
            if isinstance(found, Side):
                sides.append(found)
            else:
                self.skipped[peer] = found
        timings, failed = alternate(sides, work, self.options.rounds, lambda line: self.say(f"{what}: {line}"))
        self.skipped |= failed
        self.results.append(Result(name=name, what=what, timings=tuple(timings.values())))
        return timings[OWN]

    def measure_ceilings(self, policy_shape: Shape) -> None:
        """Once before and once after the work; the better one counts, since other load only takes away."""
        self.say("ceilings of the machine")
        rows = self.options.sizes.product_rows
        products = tuple(dict.fromkeys((rows, inputs, outputs) for inputs, outputs in policy_shape.matrices))
        work = CeilingsWork(**self.options.of_work(), products=products)
        self._ceilings.append(own_side().ask(work).details)

    @property
    def ceilings(self) -> dict[str, Any]:
        rates = [ceiling["flops_by_shape"] for ceiling in self._ceilings]
        by_shape = {shape: max(rate[shape] for rate in rates) for shape in rates[0]}
        memory = max(ceiling["bytes_per_s"] for ceiling in self._ceilings)
        return {"flops_per_s": max(by_shape.values()), "bytes_per_s": memory, "flops_by_shape": by_shape}

    def report(self, **more: Any) -> Report:
        return Report(
            benchmark=self.name,
            machine=self.machine,
            model=self.options.model,
            dtype=self.options.dtype,
            threads=self.options.threads,
            results=tuple(self.results),
            skipped=self.skipped,
            ceilings=self.ceilings if self._ceilings else {},
            **more,
        )


def bench_rollout(options: Options, say: Say) -> Report:
    """Groups over shared prompts against transformers and vLLM, Sokoban against vLLM, environments against published ones."""
    bench, sizes = _Bench("rollout", options, say), options.sizes
    policy = load_policy(ModelConfig(name=options.model, tuning="full", dtype=options.dtype))
    shape = shape_of(policy)
    bench.measure_ceilings(shape)
    groups = groups_of_prompts(
        num_prompts=sizes.num_prompts,
        num_samples=sizes.num_samples,
        prompt_tokens=sizes.prompt_tokens,
        new_tokens=sizes.new_tokens,
        vocabulary=policy.num_ids,
    )
    turns = sokoban_conversations(policy.tokenizer, sizes)
    del policy
    what = f"{sizes.num_prompts} prompts x {sizes.num_samples} samples, {sizes.prompt_tokens} + {sizes.new_tokens} tokens"
    work = RolloutWork(**options.of_work(), conversations=groups)
    own = bench.compare("groups", what, work, ("transformers", "vllm"))
    turn_work = RolloutWork(**options.of_work(), conversations=turns)
    num_turns = max(map(len, turns))
    what = f"Sokoban, {sizes.num_rooms} x {sizes.num_members} trajectories, {num_turns} turns, up to {turn_work.longest} tokens"
    bench.compare("sokoban", what, turn_work, ("vllm",))
    bench.measure_ceilings(shape)
    say("environments")
    ratios, reason = environment_ratios()
    bench.skipped |= reason
    return bench.report(shares=_decode_shares(own, shape, work, sizes, bench.ceilings), more_ratios=tuple(ratios))


def bench_step(options: Options, say: Say) -> Report:
    """One GRPO step on the bandit against TRL: seconds, and peak memory of a process that does nothing else."""
    bench = _Bench("step", options, say)
    work = _step_work(options)
    work = replace(work, prompts=bandit_prompts(work))
    what = f"GRPO step, bandit, {work.num_groups} x {work.group_size}, {work.new_tokens} new tokens, LoRA {work.lora_rank}"
    own = bench.compare("step", what, work, ("trl",))
    memory = [
        Ratio(peer=timing.side, what="step_peak_memory", value=timing.peak_bytes / own.peak_bytes)
        for timing in bench.results[0].timings
        if timing is not own
    ]
    parts = {
        key: statistics.median(s for answer in own.answers for s in answer.details[key]) for key in ("rollout_s", "update_s")
    }
    notes = [f"of our step: rollout {parts['rollout_s']:.2f} s, update {parts['update_s']:.2f} s"]
    notes += [f"our peak memory is {1 / ratio.value:.0%} of that of {ratio.peer}" for ratio in memory]
    return bench.report(more_ratios=tuple(memory), notes=tuple(notes), figures=parts)


def bench_update(options: Options, say: Say) -> Report:
    """The update alone: against the machine's matrix rate, and how it grows with the group over one prompt."""
    bench, sizes = _Bench("update", options, say), options.sizes
    work = replace(_step_work(options), update_only=True)
    policy = load_policy(ModelConfig(name=options.model, tuning="lora", dtype=options.dtype, lora_rank=sizes.lora_rank))
    shape = shape_of(policy)
    del policy
    bench.measure_ceilings(shape)
    what = f"update, bandit, {work.num_groups} x {work.group_size}, {work.new_tokens} trained tokens each, LoRA {work.lora_rank}"
    own = bench.compare("update", what, work)
    growth = []
    for size in sizes.growth:
        one = replace(work, num_groups=1, group_size=size)
        timing = bench.compare(f"group_of_{size}", f"update, 1 prompt x {size}", one)
        fed = sum(group.num_fed for group in _groups(timing))
        growth.append({"group_size": size, "seconds": timing.median_s, "num_trained": timing.num_tokens, "num_fed": fed})
    bench.measure_ceilings(shape)
    flops = update_flops(shape, _groups(own))
    share = Share(
        what="update, operations needed per second, of the matrix rate",
        measured=flops["total"] / own.median_s,
        ceiling=bench.ceilings["flops_per_s"],
        unit="FLOP/s",
    )
    return bench.report(shares=(share,), notes=(_growth_note(growth),), figures={"update_flops": flops, "growth": growth})


def _step_work(options: Options) -> StepWork:
    sizes = options.sizes
    return StepWork(
        **options.of_work(),
        num_groups=sizes.num_prompts,
        group_size=sizes.num_samples,
        new_tokens=sizes.step_tokens,
        lora_rank=sizes.lora_rank,
    )


def _groups(timing: Timing) -> list[PackedGroup]:
    """What the update fed, as the side said."""
    found = timing.answers[0].details["groups"]
    return [PackedGroup(**{**group, "continuations": tuple(group["continuations"])}) for group in found]


def _decode_shares(own: Timing, shape: Shape, work: RolloutWork, sizes: Sizes, ceilings: Mapping[str, Any]) -> tuple[Share, ...]:
    """Of a decode step: what is left of a repeat once every row has its first token, divided by the tokens that follow."""
    first = min(answer.details["first_token_s"] for answer in own.answers)
    step_s = (own.median_s - first) / (sizes.new_tokens - 1)
    rows, context = len(work.conversations), sizes.prompt_tokens + sizes.new_tokens / 2
    return (
        Share(
            what="decode step, weights read per second, of the memory bandwidth",
            measured=decode_bytes(shape) / step_s,
            ceiling=ceilings["bytes_per_s"],
            unit="B/s",
        ),
        Share(
            what="decode step, operations per second, of the matrix rate",
            measured=decode_flops(shape, rows=rows, context=context) / step_s,
            ceiling=ceilings["flops_per_s"],
            unit="FLOP/s",
        ),
    )


def _growth_note(growth: list[dict[str, float]]) -> str:
    """The time that every further token costs, beside the mean of the largest group: equal if nothing else grows."""
    first, last = growth[0], growth[-1]
    further = (last["seconds"] - first["seconds"]) / (last["num_trained"] - first["num_trained"])
    return (
        f"one prompt, group {first['group_size']} to {last['group_size']}: {first['seconds']:.2f} to {last['seconds']:.2f} s; "
        f"{1e3 * further:.2f} ms for each further sampled token, "
        f"{1e3 * last['seconds'] / last['num_fed']:.2f} ms per token fed in the largest group"
    )
