"""The environment state manager: which episodes a step plays, from which seeds, and what becomes of each environment.

A step has P groups of N members. Groups come from one or more configured environments, each under its own tag; the members of a
group share the task seed (the initial state, hence the prompt) and differ in the dynamics seed (what chance does afterwards).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import numpy as np

from ragen.environments import registry
from ragen.environments.spaces import resolve
from ragen.environments.text_env import TextEnv
from ragen.errors import ConfigError, EnvironmentFailure, RagenError, boundary
from ragen.records import EpisodeKey, Observation, Split
from ragen.rollout.answers import Answer, read_answer, read_text

_log = logging.getLogger(__name__)

_SPLIT_BIT = {Split.TRAIN: 0, Split.VALIDATION: 1}
_HELD_OUT_ENTROPY = 20_250_424  # stands where the run seed stands in training, so that every run is measured on the same episodes


@dataclass(kw_only=True)
class EnvironmentConfig:
    """One environment of a run, under its tag `environments.<tag>`."""

    name: str = ""  # a registered name or "module:Class"
    num_groups: int = 8  # initial states per step
    max_turns: int = 5  # model replies per trajectory
    max_actions: int = 10  # actions executed per trajectory
    max_actions_per_turn: int = 5  # actions that one reply may hold
    options: dict[str, Any] = field(default_factory=dict)  # of the environment itself, see `ragen envs NAME`

    def check(self, tag: str = "<tag>") -> None:
        """Raise ConfigError, with the key below `environments.<tag>`, for a value out of range or an option that does not fit."""
        if not self.name:
            raise ConfigError(f"environments.{tag}.name='': must name an environment (known: {', '.join(registry.names())})")
        for key in ("num_groups", "max_turns", "max_actions", "max_actions_per_turn"):
            if getattr(self, key) < 1:
                raise ConfigError(f"environments.{tag}.{key}={getattr(self, key)}: must be at least 1")
        with _prefixed(f"environments.{tag}.name"):
            registry.load(self.name)
        registry.configure(self.name, self.options, where=f"environments.{tag}.options")


class EnvStatus(StrEnum):
    """Where the episode of a handle stands."""

    NEW = "new"
    RUNNING = "running"
    ENDED = "ended"  # by the environment
    FAILED = "failed"  # the environment raised, or answered something that is not an answer
    CLOSED = "closed"  # from outside, before it ended: a limit was reached or the run stopped


def episode_seeds(*, run_seed: int, split: Split, step: int, group: int, member: int) -> tuple[int, int]:
    """(task seed, dynamics seed), each below 2**63: a function of the arguments and of nothing else.

    The task seed does not depend on the member. Train seeds are even and validation seeds odd, so the splits cannot meet.
    Validation seeds depend on neither the run seed nor the step: one fixed held-out set for every run and every evaluation.
    """
    bit = _SPLIT_BIT[split]
    entropy, position = (_HELD_OUT_ENTROPY, 0) if split is Split.VALIDATION else (run_seed, step)

    def draw(slot: int) -> int:
        sequence = np.random.SeedSequence(entropy, spawn_key=(bit, position, group, slot))
        return int(sequence.generate_state(1, np.uint64)[0] >> 2) << 1 | bit

    return draw(0), draw(1 + member)


class EnvHandle:
    """One member's environment: made when its episode begins, closed as soon as the episode is over."""

    def __init__(self, key: EpisodeKey, config: EnvironmentConfig) -> None:
        self.key = key
        self.config = config
        self.status = EnvStatus.NEW
        self.num_actions = 0
        self._env: TextEnv | None = None
        self._action_names: tuple[str, ...] | None = None
        self._text = ""
        self._success = False

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """The actions of this episode; None if any text is one. Known from reset on; RuntimeError before."""
        if self.status is EnvStatus.NEW:
            raise RuntimeError("the action names of an episode are known once it has been reset")
        return self._action_names

    @property
    def actions_left(self) -> int:
        """How many more actions the trajectory may execute."""
        return self.config.max_actions - self.num_actions

    async def reset(self) -> Observation:
        """Make the environment and begin its episode. Raises EnvironmentFailure; RuntimeError if it was begun before."""
        if self.status is not EnvStatus.NEW:
            raise RuntimeError(f"a handle plays one episode; this one is {self.status}")
        with self._guard("reset"):
            self._env = env = registry.make(self.config.name, self.config.options)
            text, _ = env.reset(seed=self.key.task_seed, options={"dynamics_seed": self.key.dynamics_seed})
            self._text = read_text(text)
            instruction = read_text(env.instruction)
            self._action_names = env.action_names
        self.status = EnvStatus.RUNNING
        return Observation(text=self._text, instruction=instruction, actions_left=self.actions_left)

    async def step(self, actions: Sequence[str]) -> Observation:
        """Execute the actions of one turn in order, until the episode ends or the trajectory's action budget is used up.

        Names that the environment does not know are not executed, cost no budget and come back as `rejected`. Rewards and numeric
        info are summed over the executed actions; the text is what the last one showed, or the former text if none was executed.
        Raises EnvironmentFailure; RuntimeError outside an episode; ValueError for more than `max_actions_per_turn` actions or
        once no action is left.
        """
        if self.status is not EnvStatus.RUNNING:
            raise RuntimeError(f"only a running episode can be stepped; this one is {self.status}")
        if len(actions) > self.config.max_actions_per_turn:
            raise ValueError(f"{len(actions)} actions in one turn; max_actions_per_turn is {self.config.max_actions_per_turn}")
        if actions and not self.actions_left:
            raise ValueError(f"all {self.config.max_actions} actions of the trajectory are used up")
        resolved = [(action, resolve(action, self._action_names)) for action in actions]
        rejected = tuple(action for action, known in resolved if known is None)
        return self._execute([known for _, known in resolved if known is not None], rejected)

    def _execute(self, actions: Sequence[str], rejected: tuple[str, ...]) -> Observation:
        executed: list[str] = []
        reward, terminated, truncated = 0.0, False, False
        info: dict[str, float] = {}
        for action in actions[: self.actions_left]:
            answer = self._play(action)
            executed.append(action)
            reward += answer.reward
            info = {key: info.get(key, 0.0) + answer.info.get(key, 0.0) for key in {**info, **answer.info}}
            self._text, self._success = answer.text, answer.success
            terminated, truncated = answer.terminated, answer.truncated
            if terminated or truncated:
                self.status = EnvStatus.ENDED
                self._release()
                break
        return Observation(
            text=self._text,
            reward=reward,
            executed=tuple(executed),
            rejected=rejected,
            terminated=terminated,
            truncated=truncated,
            success=self._success,
            actions_left=self.actions_left,
            info=info,
        )

    def _play(self, action: str) -> Answer:
        assert self._env is not None, self.status
        with self._guard(f"action {self.num_actions + 1} {action[:40]!r}"):
            answer = read_answer(self._env.step(action))
        self.num_actions += 1
        return answer

    def close(self) -> None:
        """End the episode if it has not ended, and let the environment go. May be called in any state; never fails."""
        if self.status in (EnvStatus.NEW, EnvStatus.RUNNING):
            self.status = EnvStatus.CLOSED
        self._release()

    def _release(self) -> None:
        # What the episode was worth is known by now, and another error may be on its way: a failing close is only reported.
        env, self._env = self._env, None
        if env is None:
            return
        try:
            with boundary(EnvironmentFailure, f"{self._where}, close"):
                env.close()
        except RagenError as error:
            _log.warning("%s", error)

    @contextmanager
    def _guard(self, doing: str) -> Iterator[None]:
        """Whatever goes wrong in the environment's code becomes an EnvironmentFailure that says where, and ends the episode."""
        where = f"{self._where}, {doing}"
        try:
            with boundary(EnvironmentFailure, where):
                yield
        except RagenError as error:
            self.status = EnvStatus.FAILED
            self._release()
            if str(error).startswith(where):
                raise
            raise EnvironmentFailure(f"{where}: {error}") from error

    @property
    def _where(self) -> str:
        key = self.key
        return (
            f"environment {key.environment!r} (step {key.step}, group {key.group}, member {key.member}, "
            f"task seed {key.task_seed}, dynamics seed {key.dynamics_seed})"
        )


class EnvStateManager:
    """Makes the episodes of each step and closes their environments in every exit; use it as a context manager."""

    def __init__(self, environments: Mapping[str, EnvironmentConfig], *, group_size: int, run_seed: int, split: Split) -> None:
        """Raises ConfigError for an impossible environment, group size or seed."""
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
        self._handles: list[EnvHandle] = []

    @property
    def num_groups(self) -> int:
        """P: groups per step, over all environments."""
        return sum(config.num_groups for config in self.environments.values())

    def open(self, step: int) -> list[list[EnvHandle]]:
        """The episodes of `step`, P groups of N members, none begun yet; closes what is left of the step before.

        Groups are numbered through all environments in the order of configuration. Equal steps give equal seeds.
        """
        if step < 0:
            raise ValueError(f"step={step}: must be at least 0")
        self.close()
        tags = [tag for tag, config in self.environments.items() for _ in range(config.num_groups)]
        groups = [[self._handle(tag, step, group, member) for member in range(self.group_size)] for group, tag in enumerate(tags)]
        self._handles = [handle for members in groups for handle in members]
        self.next_step = step + 1
        return groups

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
        return EnvHandle(key, self.environments[tag])

    def counts(self) -> dict[EnvStatus, int]:
        """How many episodes of the step opened last stand where; every status is present, the sum is P x N."""
        found = Counter(handle.status for handle in self._handles)
        return {status: found[status] for status in EnvStatus}

    def close(self) -> None:
        """Close every environment of the step opened last, each of them whatever happens to the others."""
        with ExitStack() as stack:
            for handle in self._handles:
                stack.callback(handle.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def state_dict(self) -> dict[str, int]:
        """The position, as plain numbers for a checkpoint; seeds follow from it, so there is no generator to save."""
        return {"next_step": self.next_step, "run_seed": self.run_seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where `state` stood. Raises ConfigError if it belongs to a run with another seed."""
        if state["run_seed"] != self.run_seed:
            raise ConfigError(
                f"seed={self.run_seed}: the checkpoint is of a run with seed={state['run_seed']}; resume with that one"
            )
        self.next_step = state["next_step"]


@contextmanager
def _prefixed(where: str) -> Iterator[None]:
    """Put the key in front of a ConfigError that cannot know it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
