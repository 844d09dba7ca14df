"""The loop, top to bottom: roll out, give credit, update, record, save."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragen.credit.advantages import make_samples
from ragen.credit.rewards import RewardsConfig, score
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import TrainingError
from ragen.records import Group, Sample, Sampling
from ragen.rollout.collect import collect
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.recorder import write_rollout
from ragen.rollout.state_manager import EnvHandle, EnvStateManager
from ragen.training.checkpoint import Checkpoint, save_checkpoint
from ragen.training.config import TrainerConfig
from ragen.training.display import Display
from ragen.training.reward_metrics import reward_metrics
from ragen.training.rollout_metrics import rollout_metrics
from ragen.training.trackers import Trackers
from ragen.training.update import Learner

CHECKPOINTS, ROLLOUTS = "checkpoints", "rollouts"


@dataclass(kw_only=True)
class Trainer:
    """Everything one run needs, made by whoever wires it (ragen/run.py), and the loop over it.

    `evaluate` measures the policy after a step on held-out seeds, writes its own files and returns metrics.
    """

    folder: Path
    config: TrainerConfig
    rollout: RolloutConfig
    rewards: RewardsConfig
    estimator: str
    std_normalize: bool
    learner: Learner
    engine: TorchEngine
    environments: EnvStateManager
    make_context: Callable[[EnvHandle], ContextManager]
    evaluate: Callable[[int], Mapping[str, float]]
    trackers: Trackers
    display: Display
    num_skipped_in_row: int = 0

    @property
    def num_done(self) -> int:
        """Steps that are done."""
        return self.environments.next_step

    def run(self) -> None:
        """Train from the present position to the last step."""
        for step in range(self.num_done, self.config.steps):
            started = time.perf_counter()
            metrics = self.step(step)
            done = step + 1
            if self._due(self.config.save_every, done):
                metrics |= self.save(done, metrics)
            metrics |= {"time/step_s": time.perf_counter() - started, "memory/peak_gib": peak_memory_gib()}
            self.finish_step(done, metrics)

    def finish_step(self, done: int, metrics: dict[str, float]) -> None:
        """Evaluate where that is due, log the step and show it: what is left to do once a step is saved."""
        if self._due(self.config.eval_every, done):
            metrics |= self.evaluate(done)
        self.trackers.log(metrics, done)
        self.display.step_line(done, self.config.steps, metrics)
        self._check_skipped()

    def step(self, step: int) -> dict[str, float]:
        """One rollout and its update; returns the metrics of both. Steps are counted from 0."""
        started = time.perf_counter()
        played = self.roll_out(step)
        rollout_s = time.perf_counter() - started
        groups = score(played, self.rewards)
        samples = make_samples(groups, estimator=self.estimator, divide=self.std_normalize)
        metrics = rollout_metrics(groups, seconds=rollout_s) | reward_metrics(groups)
        self._record(step, groups, samples)
        if not samples:
            raise TrainingError(f"step {step + 1}: nothing to train on: {_why_nothing(groups)}")
        started = time.perf_counter()
        num_seen = 0
        with self.display.update_progress(len(samples) * self.learner.num_epochs) as show:

            def progress(num_samples: int) -> None:
                nonlocal num_seen
                num_seen += num_samples
                show(num_seen)

            result = self.learner.update(samples, step=step, kl_groups=self.config.kl_groups, on_progress=progress)
        for culprit in result.culprits:
            self.display.message(f"step {step + 1}: an optimiser step was skipped, nothing changed: not finite: {culprit}")
        self.num_skipped_in_row = self.num_skipped_in_row + 1 if result.culprits else 0
        return metrics | result.metrics | {"time/rollout_s": rollout_s, "time/update_s": time.perf_counter() - started}

    def roll_out(self, step: int) -> list[Group]:
        """Play all trajectories of a step. Environments are closed in every exit."""
        self.engine.reset()  # what an earlier run or evaluation left in the caches must not decide about a single bit
        handles = self.environments.open(step)
        sampling = self.rollout.sampling
        request = Sampling(
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        with self.display.rollout_progress(sum(map(len, handles))) as show:
            return asyncio.run(collect(handles, self.make_context, self.engine, request, self.rollout, show))

    def save(self, done: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Write a checkpoint after `done` steps; returns how long that took.

        The metrics of the last step go with it: should the run be stopped before they are logged, resuming logs them.
        """
        started = time.perf_counter()
        if not all(bool(p.isfinite().all()) for p in self.learner.policy.trainable().values()):
            raise TrainingError(f"step {done}: weights are not finite numbers and are not saved; the last checkpoint is intact")
        state = {
            "metrics": dict(metrics),
            "environments": self.environments.state_dict(),
            "policy_version": self.learner.policy.version,
            "num_optimizer_steps": self.learner.num_optimizer_steps,
            "num_skipped_in_row": self.num_skipped_in_row,
        }
        save_checkpoint(
            self.folder / CHECKPOINTS,
            done,
            write_model=self.learner.policy.save,
            optimizer=self.learner.optimizer_state(),
            state=state,
            keep=self.config.keep_checkpoints,
        )
        return {"time/checkpoint_s": time.perf_counter() - started}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put back everything but the weights, which were loaded with the policy."""
        state = checkpoint.state
        self.environments.load_state_dict(state["environments"])
        self.learner.policy.version = state["policy_version"]
        self.learner.load_optimizer_state(checkpoint.optimizer, num_optimizer_steps=state["num_optimizer_steps"])
        self.num_skipped_in_row = state["num_skipped_in_row"]

    def _due(self, every: int, done: int) -> bool:
        """Whether something done every so many steps (0: never) is due; the last step always counts."""
        return done == self.config.steps or (every > 0 and done % every == 0)

    def _record(self, step: int, groups: list[Group], samples: list[Sample]) -> None:
        write_rollout(self.folder / ROLLOUTS / f"step-{step + 1:06d}.parquet", groups, samples)

    def _check_skipped(self) -> None:
        if self.num_skipped_in_row >= self.config.max_skipped_updates:
            raise TrainingError(
                f"{self.num_skipped_in_row} steps in a row had a loss or gradient that is not finite; the last checkpoint is "
                "intact. A smaller optimizer.lr or model.dtype=float32 may help"
            )


def _why_nothing(groups: list[Group]) -> str:
    failed = [trajectory for group in groups for trajectory in group.failed]
    if not failed and any(group.abstained for group in groups) and not any(group.trajectories for group in groups):
        return "every reward function abstained about every trajectory"
    if failed and not any(group.trajectories for group in groups):
        return f"all {len(failed)} trajectories failed, the first: {failed[0].error}"
    return "no trajectory holds a sampled token"


def peak_memory_gib() -> float:
    """Largest resident memory of this process so far, in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)  # bytes on macOS, KiB elsewhere
