"""The environment state manager: which episodes a step plays, from which seeds, where they run, and that all of them are closed.

A step has P groups of N members. Groups come from one or more configured environments, each under its own tag; the members of a
group share the task seed (the initial state, hence the prompt) and differ in the dynamics seed (what chance does afterwards).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from ragen.errors import ConfigError
from ragen.records import EpisodeKey, Group, Split
from ragen.rollout.curriculum import Curriculum, CurriculumConfig
from ragen.rollout.env_handle import EnvHandle, EnvStatus
from ragen.rollout.environment_config import INLINE, EnvironmentConfig
from ragen.rollout.hosts import Host, InlineHost
from ragen.rollout.worker_host import WorkerHost

__all__ = ["EnvHandle", "EnvStateManager", "EnvStatus", "EnvironmentConfig", "episode_seeds"]

_SPLIT_BIT = {Split.TRAIN: 0, Split.VALIDATION: 1}
_HELD_OUT_ENTROPY = 20_250_424  # stands where the run seed stands in training, so that every run is measured on the same episodes


def episode_seeds(*, run_seed: int, split: Split, step: int, group: int, member: int, attempt: int = 0) -> tuple[int, int]:
    """(task seed, dynamics seed), each below 2**63: a function of the arguments and of nothing else.

    The task seed depends on neither member nor attempt. Train seeds are even and validation seeds odd, so the splits cannot meet.
    Validation seeds depend on neither the run seed nor the step: one fixed held-out set for every run and every evaluation.
    """
    bit = _SPLIT_BIT[split]
    entropy, position = (_HELD_OUT_ENTROPY, 0) if split is Split.VALIDATION else (run_seed, step)

    def draw(*slot: int) -> int:
        sequence = np.random.SeedSequence(entropy, spawn_key=(bit, position, group, *slot))
        return int(sequence.generate_state(1, np.uint64)[0] >> 2) << 1 | bit

    return draw(0), draw(1 + member, attempt) if attempt else draw(1 + member)


class EnvStateManager:
    """Makes the episodes of each step and owns what they run in; use it as a context manager, and nothing is left in any exit."""

    def __init__(
        self,
        environments: Mapping[str, EnvironmentConfig],
        *,
        group_size: int,
        run_seed: int,
        split: Split,
        curriculum: CurriculumConfig | None = None,
    ) -> None:
        """Raises ConfigError for an impossible environment, group size, seed or curriculum."""
        if not environments:
            raise ConfigError("environments: at least one environment is needed")
        for tag, config in environments.items():
            config.check(tag)
        if group_size < 1:
            raise ConfigError(f"rollout.group_size={group_size}: must be at least 1")
        if run_seed < 0:
            raise ConfigError(f"seed={run_seed}: must be at least 0")
        self.environments = dict(environments)
        self.group_size = group_size
        self.run_seed = run_seed
        self.split = split
        self.next_step = 0  # the position of the run: the step after the one opened last
        self._curriculum = Curriculum(curriculum or CurriculumConfig(), {t: c.num_groups for t, c in environments.items()})
        self._num_open = 0  # groups of the step opened last
        self._num_lost_before = 0  # workers, when it was opened
        self._handles: list[EnvHandle] = []
        self._hosts: dict[str, Host] = {
            tag: InlineHost(config) if config.runs_in == INLINE else WorkerHost(config) for tag, config in environments.items()
        }

    @property
    def num_groups(self) -> int:
        """P: groups per step, over all environments."""
        return sum(config.num_groups for config in self.environments.values())

    def open(self, step: int) -> list[list[EnvHandle]]:
        """The episodes of `step`, P groups of N members, none begun yet; closes those that are left of the step before.

        Groups are numbered through all environments in the order of configuration. Equal steps give equal seeds; which
        environment a group is of follows from the configuration, or from what the curriculum has seen.
        """
        if step < 0:
            raise ValueError(f"step={step}: must be at least 0")
        self._close_episodes()
        self._handles, self._num_open = [], 0
        self._num_lost_before = sum(self.num_lost_workers().values())
        self.next_step = step + 1
        return self._open([tag for tag, count in self._curriculum.num_groups().items() for _ in range(count)])

    def open_more(self, tags: Sequence[str]) -> list[list[EnvHandle]]:
        """More groups of the step opened last, one of each tag given, numbered on; the step's earlier episodes stay as they are.

        Their seeds are those of their number, like any other group's, so a step that is played again gets the same ones.
        """
        if not self._num_open:
            raise RuntimeError("open a step before more groups of it")
        return self._open(tags)

    def _open(self, tags: Sequence[str]) -> list[list[EnvHandle]]:
        step, members = self.next_step - 1, range(self.group_size)
        groups = [
            [self._handle(tag, step, group, member) for member in members] for group, tag in enumerate(tags, self._num_open)
        ]
        self._handles += [handle for handles in groups for handle in handles]
        self._num_open += len(groups)
        return groups

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Tell the curriculum how a step went, so that the next one is shared out by it.

        Returns metrics: of the curriculum, if there is one, and how many workers the step has lost, if any environment has some.
        """
        metrics = self._curriculum.learn(groups)
        if any(config.runs_in != INLINE for config in self.environments.values()):
            metrics["rollout/lost_workers"] = float(sum(self.num_lost_workers().values()) - self._num_lost_before)
        return metrics

    def _handle(self, tag: str, step: int, group: int, member: int) -> EnvHandle:
        task_seed, dynamics_seed = episode_seeds(run_seed=self.run_seed, split=self.split, step=step, group=group, member=member)
        key = EpisodeKey(
            split=self.split,
            step=step,
            group=group,
            member=member,
            environment=tag,
            task_seed=task_seed,
            dynamics_seed=dynamics_seed,
        )
        return EnvHandle(key, self.environments[tag], self._hosts[tag], self._replacement)

    def _replacement(self, key: EpisodeKey) -> EnvHandle:
        attempt = key.attempt + 1
        _, dynamics_seed = episode_seeds(
            run_seed=self.run_seed, split=key.split, step=key.step, group=key.group, member=key.member, attempt=attempt
        )
        again = replace(key, attempt=attempt, dynamics_seed=dynamics_seed)
        handle = EnvHandle(again, self.environments[key.environment], self._hosts[key.environment], self._replacement)
        self._handles.append(handle)
        return handle

    def counts(self) -> dict[EnvStatus, int]:
        """How many episodes of the step opened last stand where, every status present; the sum is P x N and the replacements."""
        found = Counter(handle.status for handle in self._handles)
        return {status: found[status] for status in EnvStatus}

    def num_lost_workers(self) -> dict[str, int]:
        """Threads and processes that hung or died so far and were replaced, by tag. An abandoned thread may run on for ever."""
        return {tag: host.num_lost for tag, host in self._hosts.items()}

    def close(self) -> None:
        """Close every environment and end every worker, each of them whatever happens to the others."""
        with ExitStack() as stack:
            for host in self._hosts.values():
                stack.callback(host.close)
            stack.callback(self._close_episodes)  # first, since callbacks are called from the last to the first

    def _close_episodes(self) -> None:
        with ExitStack() as stack:
            for handle in self._handles:
                stack.callback(handle.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain numbers for a checkpoint; seeds follow from it, so there is no generator to save.

        With a curriculum, what it has seen is part of the position.
        """
        return {"next_step": self.next_step, "run_seed": self.run_seed, **self._curriculum.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` stood. Raises ConfigError if it belongs to a run with another seed."""
        if state["run_seed"] != self.run_seed:
            raise ConfigError(
                f"seed={self.run_seed}: the checkpoint is of a run with seed={state['run_seed']}; resume with that one"
            )
        self.next_step = state["next_step"]
        self._curriculum.load_state_dict(state)
