"""The loop, top to bottom: roll out, give credit, update, record, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from ragen.algorithms.config import AlgorithmConfig
from ragen.credit.filters import weigh
from ragen.credit.samples import CriticSample, assign_credit
from ragen.errors import Stopped, TrainingError
from ragen.records import Group, Sample
from ragen.rollout.recorder import write_rollout
from ragen.rollout.state_manager import EnvStateManager
from ragen.training.checkpoint import CHECKPOINTS, Checkpoint, save_checkpoint, saved_steps, size_of, tidy_checkpoints
from ragen.training.config import TrainerConfig
from ragen.training.critic import Critic
from ragen.training.display import Display
from ragen.training.memory_plan import highest_gib, peak_bytes, reset_peak
from ragen.training.provenance import verify
from ragen.training.retention import DiskWatch, best_step, keep_newest
from ragen.training.rollout_phase import Rollout, RolloutPhase
from ragen.training.signals import Abandoned, Stop, named
from ragen.training.superseded import ROLLOUTS
from ragen.training.trackers import Trackers, read_metrics
from ragen.training.update import Learner, UpdateResult

ADAM_BYTES = 12  # of a trained number in a checkpoint: itself and two moments, float32


class UnderWay(Protocol):
    """An evaluation that goes on beside the training."""

    def finish(self) -> Mapping[str, float]:
        """Wait for it and return its metrics. Raises Abandoned if a stop is asked for that does not wait."""
        ...

    def cancel(self) -> None:
        """End it, in whatever state it is."""
        ...


@dataclass(kw_only=True)
class Trainer:
    """Everything one run needs, made by whoever wires it (ragen/run.py), and the loop over it.

    `evaluate` measures the policy after a step on held-out seeds, writes its own files and returns metrics; it is called every
    `evaluate_every` steps (0: after the last alone). Where `evaluate_beside` is given, it begins to measure a saved step in its
    place, and the next rollout is played meanwhile; the step is logged before the update that follows. `unlogged` is what is
    known of a step that is done but was not evaluated and logged yet; with none done, it asks for the evaluation of the start.
    """

    folder: Path
    config: TrainerConfig
    algorithm: AlgorithmConfig
    rollouts: RolloutPhase
    learner: Learner
    critic: Critic | None
    evaluate: Callable[[int], Mapping[str, float]]
    evaluate_every: int
    evaluate_beside: Callable[[int, Path], UnderWay] | None = None
    trackers: Trackers
    display: Display
    stop: Stop = field(default_factory=Stop)
    num_skipped_in_row: int = 0
    unlogged: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self._last_saved: int | None = None
        self._has_measured = False  # what an update needs in memory
        self._under_way: tuple[int, UnderWay] | None = None  # the step that is measured now, whose numbers are `unlogged`
        self._disk = DiskWatch(
            folder=self.folder,
            warn=self.display.message,
            checkpoint_bytes=ADAM_BYTES * sum(parameter.numel() for parameter in self._trained()),
            num_checkpoints=self.config.keep_checkpoints + (self.config.keep_best is not None),
            num_rollouts=self.config.keep_rollouts,
        )

    @property
    def environments(self) -> EnvStateManager:
        return self.rollouts.environments

    @property
    def num_done(self) -> int:
        """Steps that are done."""
        return self.environments.next_step

    def run(self) -> None:
        """Train from the present position to the last step. Raises Stopped, with what is done saved, if a signal asked for it."""
        if self._last_saved is not None:
            best = self.best_step(before=self._last_saved)
            tidy_checkpoints(self.folder / CHECKPOINTS, keep=self.config.keep_checkpoints, keep_step=best)
        try:
            if self.unlogged is not None:
                self.finish_step(self.num_done, self.unlogged)
            while self.num_done < self.config.steps and not self.stop.is_requested:
                self._next_step()
            self._settle()
        except Abandoned:
            pass  # what was given up has changed nothing
        finally:
            if self._under_way is not None:
                self._under_way[1].cancel()
        if self.stop.number is not None and (self.num_done < self.config.steps or self.unlogged is not None):
            if self._last_saved != self.num_done:
                self.save(self.num_done, self.unlogged or {})
            raise Stopped(
                f"{named(self.stop.number)}: stopped after {self.num_done} of {self.config.steps} steps, all of it saved; "
                f"ragen train {self.folder} --resume goes on",
                exit_code=128 + self.stop.number,
            )

    def _next_step(self) -> None:
        started = time.perf_counter()
        position = self.environments.state_dict()
        try:
            metrics = self.step(self.num_done)
        except Abandoned:
            self.environments.load_state_dict(position)
            raise
        done = self.num_done
        self.unlogged = metrics
        if self._due(self.config.save_every, done):
            metrics |= self.save(done, metrics)
        metrics |= {"time/step_s": time.perf_counter() - started, "memory/peak_gib": highest_gib()}
        self.finish_step(done, metrics)

    def finish_step(self, done: int, metrics: dict[str, float]) -> None:
        """Evaluate where that is due, log the step and show it: what is left to do once a step is saved."""
        if done == 0 or self._due(self.evaluate_every, done):
            if self.evaluate_beside is not None and self._goes_on_from(done):
                self._under_way = done, self.evaluate_beside(done, self.folder / CHECKPOINTS / f"step-{done:06d}")
                return
            metrics |= self.evaluate(done)
        self._log(done, metrics)

    def _goes_on_from(self, done: int) -> bool:
        """Whether a step that is saved has another one behind it."""
        ends = self.stop.is_requested or self.num_skipped_in_row >= self.config.max_skipped_updates
        return self._last_saved == done < self.config.steps and not ends

    def _settle(self) -> None:
        """Log the step that was measured beside the rollout that has just been played."""
        if self._under_way is not None:
            assert self.unlogged is not None, self._under_way
            done, evaluation = self._under_way
            metrics = {**self.unlogged, **evaluation.finish()}
            self._under_way = None
            self._log(done, metrics)

    def _log(self, done: int, metrics: Mapping[str, float]) -> None:
        self.trackers.log(metrics, done)
        self.unlogged = None
        if done:
            self.display.step_line(done, self.config.steps, metrics)
            self._check_skipped()

    def step(self, step: int) -> dict[str, float]:
        """One rollout and its update; returns the metrics of both. Steps are counted from 0."""
        rollout = self.rollouts.take(step)
        self._settle()
        return self.learn(step, rollout)

    def learn(self, step: int, rollout: Rollout) -> dict[str, float]:
        """What a step does once its groups are played: give credit, record, update. A replay begins here, too."""
        groups = rollout.groups
        started = time.perf_counter()
        samples, lessons = self._give_credit(rollout)
        credit_s = time.perf_counter() - started
        metrics = self.rollouts.metrics(rollout) | (self.environments.learn(groups) if rollout.is_fresh else {})
        self._record(step, groups, samples)
        if not rollout.trainable and any(group.trajectories for group in groups):
            self.display.message(f"step {step + 1}: no update: {rollout.why_none_kept}")
            return metrics
        if not samples:
            raise TrainingError(f"step {step + 1}: nothing to train on: {rollout.why_nothing}")
        started = time.perf_counter()
        verify(samples)  # here, since the update may put the policy's own log-probs in the place of those that were recorded
        device = self.learner.policy.device
        reset_peak(device)
        held_gib = peak_bytes(device) / 2**30
        results = self._update(step, samples, lessons)
        metrics["memory/update_gib"] = peak_bytes(device) / 2**30
        if not self._has_measured:
            self._has_measured = True
            self.display.message(
                f"memory of the first update: {held_gib:.2f} GiB held before, "
                f"{metrics['memory/update_gib']:.2f} GiB at most while it ran"
            )
        culprits = [culprit for result in results for culprit in result.culprits]
        for culprit in culprits:
            self.display.message(f"step {step + 1}: an optimiser step was skipped, nothing changed: not finite: {culprit}")
        self.num_skipped_in_row = self.num_skipped_in_row + 1 if culprits else 0
        for result in results:
            metrics |= result.metrics
        return metrics | {"time/update_s": credit_s + time.perf_counter() - started}

    def _give_credit(self, rollout: Rollout) -> tuple[list[Sample], list[CriticSample]]:
        """Samples with their advantages, and what the critic, if there is one, learns from each of them."""
        trajectories = [trajectory for group in rollout.trainable for trajectory in group.trajectories]
        samples, lessons = assign_credit(
            rollout.trainable,
            self.algorithm.advantage,
            values=self.critic.values(trajectories) if self.critic is not None else None,
            token_rewards=self.learner.kl_rewards(trajectories) if self.learner.kl.in_reward else None,
        )
        return weigh(samples, rollout.candidates, rollout.selection), lessons

    def _update(self, step: int, samples: list[Sample], lessons: list[CriticSample]) -> list[UpdateResult]:
        """The critic first: where it reads the policy's own hidden states, these are still those that it judged."""
        critic, learner = self.critic, self.learner
        teaches = critic is None or not self.algorithm.critic.trains_alone(step)
        passes = (critic.num_epochs if critic is not None else 0) + (learner.num_epochs if teaches else 0)
        num_seen = 0
        results = []
        with self.display.update_progress(len(samples) * passes) as show:

            def progress(num_samples: int) -> None:
                nonlocal num_seen
                num_seen += num_samples
                show(num_seen)

            if critic is not None:
                results.append(critic.update(samples, lessons, step=step, on_progress=progress))
            if teaches:
                results.append(learner.update(samples, step=step, kl_groups=self.config.kl_groups, on_progress=progress))
        return results

    def save(self, done: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Write a checkpoint after `done` steps; returns how long that took.

        The metrics of the last step go with it: should the run be stopped before they are logged, resuming logs them.
        """
        started = time.perf_counter()
        critic = self.critic
        if not all(bool(p.isfinite().all()) for p in self._trained()):
            raise TrainingError(f"step {done}: weights are not finite numbers and are not saved; the last checkpoint is intact")
        state = {
            "metrics": dict(metrics),
            "environments": self.environments.state_dict(),
            "policy_version": self.learner.policy.version,
            "num_optimizer_steps": self.learner.num_optimizer_steps,
            "num_skipped_in_row": self.num_skipped_in_row,
            "learner": self.learner.state_dict(),
            "row_limit": self.rollouts.engine.row_limit.state_dict(),
        }

        def write_model(folder: Path) -> None:
            self.learner.policy.save(folder)
            if critic is not None:
                critic.save(folder)

        root = self.folder / CHECKPOINTS
        folder = save_checkpoint(
            root,
            done,
            write_model=write_model,
            optimizer=self.learner.optimizer_state(),
            state=state,
            keep=self.config.keep_checkpoints,
            keep_step=self.best_step(),
        )
        self._last_saved = done
        self._disk.checkpoint_bytes = size_of(folder)
        return {"time/checkpoint_s": time.perf_counter() - started}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put back everything but weights and critic, which were loaded with the policy."""
        state = checkpoint.state
        self.environments.load_state_dict(state["environments"])
        self.learner.policy.version = state["policy_version"]
        self.learner.load_optimizer_state(checkpoint.optimizer, num_optimizer_steps=state["num_optimizer_steps"])
        self.num_skipped_in_row = state["num_skipped_in_row"]
        self._last_saved = checkpoint.step
        self.learner.load_state_dict(state["learner"])
        if "row_limit" in state:  # checkpoints of earlier versions have none: memory never ran out for them
            self.rollouts.engine.row_limit.load_state_dict(state["row_limit"])

    def best_step(self, *, before: int | None = None) -> int | None:
        """The saved step that `trainer.keep_best` keeps, as far as the metrics logged so far, or before that step, tell."""
        key, direction = self.config.keep_best, self.config.keep_best_direction
        if not key:
            return None
        rows = [row for row in read_metrics(self.folder) if before is None or row["step"] < before]
        return best_step(rows, key, direction=direction, saved=saved_steps(self.folder / CHECKPOINTS))

    def _trained(self) -> list[torch.nn.Parameter]:
        critic = self.critic.trainable() if self.critic is not None else {}
        return [*self.learner.policy.trainable().values(), *critic.values()]

    def _due(self, every: int, done: int) -> bool:
        """Whether something done every so many steps (0: never) is due; the last step always counts."""
        return done == self.config.steps or (every > 0 and done % every == 0)

    def _record(self, step: int, groups: list[Group], samples: list[Sample]) -> None:
        folder = self.folder / ROLLOUTS
        path = folder / f"step-{step + 1:06d}.parquet"
        write_rollout(path, groups, samples)
        if self.config.keep_rollouts is not None:
            keep_newest(folder, self.config.keep_rollouts)
        self._disk.after_rollout(
            path.stat().st_size,
            num_left=self.config.steps - step - 1,
            num_there=len(list(folder.iterdir())),
            num_saved=len(saved_steps(self.folder / CHECKPOINTS)),
        )

    def _check_skipped(self) -> None:
        if self.num_skipped_in_row >= self.config.max_skipped_updates:
            raise TrainingError(
                f"{self.num_skipped_in_row} steps in a row had a loss or gradient that is not finite; the last checkpoint is "
                "intact. A smaller optimizer.lr or model.dtype=float32 may help"
            )
