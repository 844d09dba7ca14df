"""Our own side: a piece of work in, seconds and peak memory of this process out.

Run as a program (`python -m ragen.benchmark.native WORK.json`) it does one piece of work in a fresh process, as peers do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from ragen import __version__
from ragen.benchmark.ceilings import measure_ceilings
from ragen.benchmark.flops import PackedGroup, shape_of
from ragen.benchmark.work import Answer, CeilingsWork, Conversation, RolloutWork, StepWork, first_id, work_from_json
from ragen.config.load import load
from ragen.config.schema import Config
from ragen.credit.samples import make_samples
from ragen.engines.config import EngineConfig
from ragen.engines.torch_engine import TorchEngine
from ragen.models.chat import ChatTemplate
from ragen.models.config import ModelConfig
from ragen.models.policy import load_policy
from ragen.records import Completion, Sample, Sampling, Split
from ragen.rollout.collect import collect, context_factory
from ragen.rollout.state_manager import EnvStateManager
from ragen.training.memory_plan import peak_bytes
from ragen.training.packing import by_prompt
from ragen.training.provenance import verify
from ragen.training.update import Learner

PACKAGE = f"ragen {__version__}"


def do(work: RolloutWork | StepWork | CeilingsWork) -> Answer:
    """Do one piece of work in this process."""
    torch.set_num_threads(work.threads)
    match work:
        case RolloutWork():
            return roll_out(work)
        case StepWork():
            return take_steps(work)
        case CeilingsWork():
            return measure_ceilings(work)


# -- rollout -------------------------------------------------------------------------------------------------------------


def roll_out(work: RolloutWork) -> Answer:
    """Play the conversations on the model as it is, without adapters, like the peers.

    `details`: `first_token_s`, seconds until every conversation has its first token, and the model's `shape`.
    """
    policy = load_policy(ModelConfig(name=work.model, tuning="full", dtype=work.dtype))
    policy.module.requires_grad_(False)
    policy.quicken()  # as it is done for weights that are frozen when they are loaded
    engine = TorchEngine(policy, EngineConfig(max_rows=len(work.conversations)))

    def play(repeat: int, conversations: tuple[Conversation, ...]) -> float:
        engine.reset()
        return _seconds(lambda: asyncio.run(_play(engine, conversations, repeat)))

    beginnings = tuple((replace(turns[0], num_new=1),) for turns in work.conversations)
    play(0, work.conversations)
    seconds = tuple(play(repeat, work.conversations) for repeat in range(1, work.repeats + 1))
    first = min(play(repeat, beginnings) for repeat in range(1, work.repeats + 1))
    return Answer(
        package=PACKAGE,
        seconds=seconds,
        num_tokens=work.num_new,
        peak_bytes=peak_bytes(),
        details={"first_token_s": first, "shape": asdict(shape_of(policy))},
    )


async def _play(engine: TorchEngine, conversations: tuple[Conversation, ...], repeat: int) -> None:
    async def play(number: int) -> None:
        ids: tuple[int, ...] = ()
        for turn, exchange in enumerate(conversations[number]):
            observed = exchange.observed if ids else (first_id(repeat), *exchange.observed[1:])
            sampling = Sampling(max_new_tokens=exchange.num_new, seed=(repeat, number, turn))
            completion = await engine.generate(ids + observed, sampling)
            assert len(completion.ids) == exchange.num_new, (len(completion.ids), exchange.num_new)
            ids += observed + completion.ids
        engine.release(ids)

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(conversations)):
            tasks.create_task(play(number))


# -- step and update -----------------------------------------------------------------------------------------------------


class NeverStopping(TorchEngine):
    """Samples replies of the full length, whatever they say: every side then does the same work."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        return await super().generate(prompt_ids, replace(sampling, stop_ids=(), stop_texts=()))


def bandit_config(work: StepWork) -> Config:
    """The recipe `bandit` in the size of the work, with one optimiser step and without the measurements that a run adds."""
    return load(
        "bandit",
        [
            f"model.name={json.dumps(work.model)}",
            "model.tuning=lora",
            f"model.dtype={work.dtype}",
            f"model.lora_rank={work.lora_rank}",
            f"environments.bandit.num_groups={work.num_groups}",
            f"rollout.group_size={work.group_size}",
            f"rollout.sampling.max_new_tokens={work.new_tokens}",
            "algorithm.num_minibatches=1",
            "algorithm.num_epochs=1",
            "trainer.kl_groups=0",
        ],
    )


class _Step:
    """One GRPO step after the other, from the same parts that a run is made of."""

    def __init__(self, work: StepWork) -> None:
        self.config = config = bandit_config(work)
        self.policy = load_policy(config.model, seed=config.seed)
        template = ChatTemplate.configured(self.policy.tokenizer, config.model)
        self._make_context = context_factory(template, config.rollout)
        self._engine = NeverStopping(self.policy, config.engine)
        self._environments = EnvStateManager(
            config.environments, group_size=config.rollout.group_size, run_seed=config.seed, split=Split.TRAIN
        )
        sampling = config.rollout.sampling
        self._sampling = Sampling(max_new_tokens=sampling.max_new_tokens, temperature=sampling.temperature)
        self._learner = Learner(
            self.policy, config.algorithm, config.optimizer, temperature=sampling.temperature, run_seed=config.seed
        )

    def sample(self, step: int) -> list[Sample]:
        """Play the groups of a step and give credit."""
        self._engine.reset()
        handles = self._environments.open(step)
        groups = asyncio.run(collect(handles, self._make_context, self._engine, self._sampling, self.config.rollout))
        samples = make_samples(groups, self.config.algorithm.advantage)
        verify(samples)
        return samples

    def update(self, samples: list[Sample], step: int) -> None:
        result = self._learner.update(samples, step=step)
        assert result.num_applied == 1, result.culprits


def take_steps(work: StepWork) -> Answer:
    """GRPO steps, or with `update_only` updates on the samples of the first one.

    `details`: seconds of the parts (`rollout_s`, `update_s`, one per repeat), the `groups` that an update fed to the model, the
    model's `shape`, and resident memory before the first update.
    """
    step = _Step(work)
    samples = step.sample(0)
    before = peak_bytes()
    rollouts: list[float] = []
    updates: list[float] = []
    for number in range(work.repeats + 1):
        if number and not work.update_only:
            started = time.perf_counter()
            samples = step.sample(number)
            rollouts.append(time.perf_counter() - started)
        seconds = _seconds(lambda samples=samples, number=number: step.update(samples, number))  # type: ignore[misc]
        if number:
            updates.append(seconds)
    groups = [asdict(fed) for fed in map(fed_group, by_prompt(samples))]
    return Answer(
        package=PACKAGE,
        seconds=tuple(updates if work.update_only else map(sum, zip(rollouts, updates, strict=True))),
        num_tokens=sum(int(sample.mask.sum()) for sample in samples),
        peak_bytes=peak_bytes(),
        details={
            "rollout_s": rollouts,
            "update_s": updates,
            "groups": groups,
            "shape": asdict(shape_of(step.policy)),
            "peak_before_update_bytes": before,
        },
    )


def fed_group(samples: list[Sample]) -> PackedGroup:
    """What an update has to feed for samples of one prompt: behind their last trained token nothing is needed."""
    return PackedGroup(
        prompt=samples[0].prompt_length,
        continuations=tuple(int(sample.mask.nonzero()[0][-1]) - sample.prompt_length for sample in samples),
        num_trained=sum(int(sample.mask.sum()) for sample in samples),
    )


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def main() -> None:
    work = work_from_json(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(json.dumps(asdict(do(work))))


if __name__ == "__main__":
    main()
