"""The first half of a step: the groups that it trains on, played by the policy or read from a file that was recorded before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ragen.algorithms.config import AlgorithmConfig
from ragen.algorithms.overlong import handle_overlong
from ragen.credit.filters import Selection, select, tags_to_add
from ragen.credit.rewards import RewardsConfig, score
from ragen.engines.torch_engine import TorchEngine
from ragen.records import Group, Sampling
from ragen.rollout.collect import collect
from ragen.rollout.config import RolloutConfig
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.state_manager import EnvHandle, EnvStateManager
from ragen.training.display import Display
from ragen.training.filter_metrics import filter_metrics
from ragen.training.recorded import read_groups, source_of
from ragen.training.reward_metrics import reward_metrics
from ragen.training.rollout_metrics import rollout_metrics
from ragen.training.signals import Stop


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

    @property
    def why_none_kept(self) -> str:
        """Why nothing of what was scored is trained on, in a few words."""
        if any(group.trajectories for group in self.candidates):
            return f"the filter kept none of {len(self.groups)} groups"
        return "every trajectory ran out of room, and algorithm.overlong.rule=mask leaves those out"

    @property
    def why_nothing(self) -> str:
        """Why there is no sample, in a few words."""
        failed = [trajectory for group in self.groups for trajectory in group.failed]
        has_scored = any(group.trajectories for group in self.groups)
        if not failed and not has_scored and any(group.abstained for group in self.groups):
            return "every reward function abstained about every trajectory"
        if failed and not has_scored:
            return f"all {len(failed)} trajectories failed, the first: {failed[0].error}"
        return "no trajectory holds a sampled token"


@dataclass(kw_only=True)
class RolloutPhase:
    """Plays, scores and filters; `environments` know the position in the run, everything else is settings and parts."""

    folder: Path  # of the run
    rollout: RolloutConfig
    rewards: RewardsConfig
    algorithm: AlgorithmConfig
    engine: TorchEngine
    environments: EnvStateManager
    make_context: Callable[[EnvHandle], ContextManager]
    display: Display
    stop: Stop = field(default_factory=Stop)
    updates_per_rollout: int = 1
    other_rollouts: Sequence[Path] = ()  # files of another run to train on, in the place of playing

    def source(self, step: int) -> Path | None:
        """The rollout file that a step (counted from 0) trains on; None where it plays a rollout of its own."""
        updates = self.updates_per_rollout
        return source_of(step, folder=self.folder, updates_per_rollout=updates, others=self.other_rollouts)

    def take(self, step: int) -> Rollout:
        """What the step trains on. Raises Abandoned if a stop was asked for, and what `collect` and reading a file raise."""
        source = self.source(step)
        return self.play(step) if source is None else self.read_back(step, source)

    def play(self, step: int) -> Rollout:
        """Play a step's groups, then more in the place of those that the filter dropped, within its budget."""
        started = time.perf_counter()
        self.engine.reset()  # what an earlier run or evaluation left in the caches must not decide about a single bit
        handles = self.environments.open(step)
        tags = [members[0].key.environment for members in handles]
        num_planned, num_rounds = len(tags), 0
        groups = score(self._play(handles), self.rewards)
        candidates, selection = self._choose(groups, num_planned=num_planned)
        while num_rounds < self.algorithm.filter.refill_rounds:
            more = tags_to_add(selection, tags, self.algorithm.filter, num_planned=num_planned)
            if not more:
                break
            tags, num_rounds = tags + more, num_rounds + 1
            played = self._play(self.environments.open_more(more), num_step=len(tags) * self.environments.group_size)
            groups += score(played, self.rewards)
            candidates, selection = self._choose(groups, num_planned=num_planned)
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
        rollout = self.of_record(step, read_groups(path))
        return replace(rollout, seconds=time.perf_counter() - started)

    def of_record(self, step: int, groups: list[Group], *, is_fresh: bool = False) -> Rollout:
        """Groups that were played at another time. Rounds of refill are not recorded; seconds are not known and count as one."""
        self.environments.open(step)  # begins no episode: the position in the run, and what the curriculum shares out
        num_planned = self.environments.num_groups
        candidates, selection = self._choose(groups, num_planned=num_planned)
        return Rollout(
            groups=groups,
            candidates=candidates,
            selection=selection,
            num_planned=num_planned,
            num_rounds=0,
            seconds=1.0,
            is_fresh=is_fresh,
        )

    def metrics(self, rollout: Rollout) -> dict[str, float]:
        """Metrics of a rollout. Those of what the engine met are since the last call."""
        groups, seconds = rollout.groups, rollout.seconds
        is_priced = self.algorithm.overlong.rule == "penalty"  # then the price is a part of the return like any other
        metrics = rollout_metrics(groups, seconds=seconds) | reward_metrics(rollout.candidates if is_priced else groups)
        counts = {"num_planned": rollout.num_planned, "num_rounds": rollout.num_rounds}
        metrics |= filter_metrics(groups, rollout.selection, self.algorithm.filter, seconds=seconds, **counts)
        metrics["rollout/out_of_memory"] = float(self.engine.row_limit.take_count())
        if not rollout.is_fresh:
            del metrics["rollout/tokens_per_s"], metrics["rollout/out_of_memory"]  # nothing was sampled
        return metrics | {"time/rollout_s": seconds}

    def _choose(self, groups: list[Group], *, num_planned: int) -> tuple[list[Group], Selection]:
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
