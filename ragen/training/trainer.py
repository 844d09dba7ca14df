"""The loop, top to bottom: roll out, give credit, update, record, save."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ragen.algorithms.config import AlgorithmConfig
from ragen.algorithms.overlong import handle_overlong
from ragen.credit.filters import Selection, select, tags_to_add, weigh
from ragen.credit.rewards import RewardsConfig, score
from ragen.credit.samples import CriticSample, assign_credit
from ragen.engines.torch_engine import TorchEngine
from ragen.errors import Stopped, TrainingError
from ragen.records import Group, Sample, Sampling
from ragen.rollout.collect import collect
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.recorder import write_rollout
from ragen.rollout.state_manager import EnvHandle, EnvStateManager
from ragen.training.checkpoint import CHECKPOINTS, Checkpoint, save_checkpoint, saved_steps, size_of, tidy_checkpoints
from ragen.training.config import TrainerConfig
from ragen.training.critic import Critic
from ragen.training.display import Display
from ragen.training.filter_metrics import filter_metrics
from ragen.training.provenance import verify
from ragen.training.recorded import read_groups, source_of
from ragen.training.retention import DiskWatch, best_step, keep_newest
from ragen.training.reward_metrics import reward_metrics
from ragen.training.rollout_metrics import rollout_metrics
from ragen.training.signals import Abandoned, Stop, named
from ragen.training.superseded import ROLLOUTS
from ragen.training.trackers import Trackers, read_metrics
from ragen.training.update import Learner, UpdateResult

__all__ = ["CHECKPOINTS", "ROLLOUTS", "Rollout", "Trainer", "peak_memory_gib"]

ADAM_BYTES = 12  # of a trained number in a checkpoint: itself and two moments, float32


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What a step has played, scored, and which of it is trained on."""

    groups: list[Group]
    candidates: list[Group]  # the same as the filter and the estimator see them: what ran out of room is dealt with
    selection: Selection
    num_planned: int  # groups before any refill
    num_rounds: int  # of refill
    seconds: float
    is_fresh: bool = True  # played in this step, not read from an earlier one's file

    @property
    def trainable(self) -> list[Group]:
        """The groups that the filter kept and that hold anything that may be trained on."""
        kept = [self.candidates[position] for position in self.selection.kept]
        return [group for group in kept if group.trajectories]


@dataclass(kw_only=True)
class Trainer:
    """Everything one run needs, made by whoever wires it (ragen/run.py), and the loop over it.

    `evaluate` measures the policy after a step on held-out seeds, writes its own files and returns metrics; it is called every
    `evaluate_every` steps (0: after the last alone). `unlogged` is what is known of a step that is done but was not evaluated and
    logged yet; with none done, it asks for the evaluation of the start.
    """

    folder: Path
    config: TrainerConfig
    rollout: RolloutConfig
    rewards: RewardsConfig
    algorithm: AlgorithmConfig
    learner: Learner
    critic: Critic | None
    engine: TorchEngine
    environments: EnvStateManager
    make_context: Callable[[EnvHandle], ContextManager]
    evaluate: Callable[[int], Mapping[str, float]]
    evaluate_every: int
    trackers: Trackers
    display: Display
    stop: Stop = field(default_factory=Stop)
    other_rollouts: Sequence[Path] = ()  # files of another run to train on, in the place of playing
    num_skipped_in_row: int = 0
    unlogged: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self._last_saved: int | None = None
        self._disk = DiskWatch(
            folder=self.folder,
            warn=self.display.message,
            checkpoint_bytes=ADAM_BYTES * sum(parameter.numel() for parameter in self._trained()),
            num_checkpoints=self.config.keep_checkpoints + (self.config.keep_best is not None),
            num_rollouts=self.config.keep_rollouts,
        )

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
        except Abandoned:
            pass  # what was given up has changed nothing
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
        metrics |= {"time/step_s": time.perf_counter() - started, "memory/peak_gib": peak_memory_gib()}
        self.finish_step(done, metrics)

    def finish_step(self, done: int, metrics: dict[str, float]) -> None:
        """Evaluate where that is due, log the step and show it: what is left to do once a step is saved."""
        if done == 0 or self._due(self.evaluate_every, done):
            metrics |= self.evaluate(done)
        self.trackers.log(metrics, done)
        self.unlogged = None
        if done:
            self.display.step_line(done, self.config.steps, metrics)
            self._check_skipped()

    def step(self, step: int) -> dict[str, float]:
        """One rollout and its update; returns the metrics of both. Steps are counted from 0."""
        source = self.source(step)
        return self.learn(step, self.roll_out(step) if source is None else self.read_back(step, source))

    def source(self, step: int) -> Path | None:
        """The rollout file that a step trains on; None where it plays a rollout of its own."""
        updates = self.config.updates_per_rollout
        return source_of(step, folder=self.folder, updates_per_rollout=updates, others=self.other_rollouts)

    def learn(self, step: int, rollout: Rollout) -> dict[str, float]:
        """What a step does once its groups are played: give credit, record, update. A replay begins here, too."""
        groups = rollout.groups
        started = time.perf_counter()
        samples, lessons = self._give_credit(rollout)
        credit_s = time.perf_counter() - started
        metrics = self._rollout_metrics(rollout) | (self.environments.learn(groups) if rollout.is_fresh else {})
        self._record(step, groups, samples)
        if not rollout.trainable and any(group.trajectories for group in groups):
            self.display.message(f"step {step + 1}: no update: {_why_none_kept(rollout)}")
            return metrics
        if not samples:
            raise TrainingError(f"step {step + 1}: nothing to train on: {_why_nothing(groups)}")
        started = time.perf_counter()
        verify(samples)  # here, since the update may put the policy's own log-probs in the place of those that were recorded
        results = self._update(step, samples, lessons)
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

    def roll_out(self, step: int) -> Rollout:
        """Play a step's groups, then more in the place of those that the filter dropped, within its budget."""
        started = time.perf_counter()
        self.engine.reset()  # what an earlier run or evaluation left in the caches must not decide about a single bit
        handles = self.environments.open(step)
        tags = [members[0].key.environment for members in handles]
        num_planned, num_rounds = len(tags), 0
        groups = score(self._play(handles), self.rewards)
        candidates, selection = self.choose(groups, num_planned=num_planned)
        while num_rounds < self.algorithm.filter.refill_rounds:
            more = tags_to_add(selection, tags, self.algorithm.filter, num_planned=num_planned)
            if not more:
                break
            tags, num_rounds = tags + more, num_rounds + 1
            played = self._play(self.environments.open_more(more), num_step=len(tags) * self.environments.group_size)
            groups += score(played, self.rewards)
            candidates, selection = self.choose(groups, num_planned=num_planned)
        self.engine.reset()  # its caches make room for the update
        return Rollout(
            groups=groups,
            candidates=candidates,
            selection=selection,
            num_planned=num_planned,
            num_rounds=num_rounds,
            seconds=time.perf_counter() - started,
        )

    def read_back(self, step: int, path: Path) -> Rollout:
        """A recorded rollout as what this step trains on, chosen from anew by the filter."""
        started = time.perf_counter()
        self.environments.open(step)  # begins no episode: the position in the run alone
        groups = read_groups(path)
        num_planned = self.environments.num_groups
        candidates, selection = self.choose(groups, num_planned=num_planned)
        return Rollout(
            groups=groups,
            candidates=candidates,
            selection=selection,
            num_planned=num_planned,
            num_rounds=0,
            seconds=time.perf_counter() - started,
            is_fresh=False,
        )

    def choose(self, groups: list[Group], *, num_planned: int) -> tuple[list[Group], Selection]:
        """The groups as filter and estimator see them, and what the filter decides about them."""
        candidates = handle_overlong(groups, self.algorithm.overlong, max_new_tokens=self.rollout.sampling.max_new_tokens)
        return candidates, select(candidates, self.algorithm.filter, num_planned=num_planned)

    def _play(self, handles: Sequence[Sequence[EnvHandle]], *, num_step: int | None = None) -> list[Group]:
        """Play these groups, of a step of `num_step` trajectories if they are not all. Environments are closed in every exit."""
        sampling = self.rollout.sampling
        request = Sampling(
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        with self.display.rollout_progress(sum(map(len, handles))) as show:
            playing = collect(handles, self.make_context, self.engine, request, self.rollout, show, num_step)
            return self.stop.run(playing)

    def _rollout_metrics(self, rollout: Rollout) -> dict[str, float]:
        groups, seconds = rollout.groups, rollout.seconds
        is_priced = self.algorithm.overlong.rule == "penalty"  # then the price is a part of the return like any other
        metrics = rollout_metrics(groups, seconds=seconds) | reward_metrics(rollout.candidates if is_priced else groups)
        counts = {"num_planned": rollout.num_planned, "num_rounds": rollout.num_rounds}
        metrics |= filter_metrics(groups, rollout.selection, self.algorithm.filter, seconds=seconds, **counts)
        if not rollout.is_fresh:
            del metrics["rollout/tokens_per_s"]  # nothing was sampled
        return metrics | {"time/rollout_s": seconds}

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


def _why_none_kept(rollout: Rollout) -> str:
    if any(group.trajectories for group in rollout.candidates):
        return f"the filter kept none of {len(rollout.groups)} groups"
    return "every trajectory ran out of room, and algorithm.overlong.rule=mask leaves those out"


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
