"""One member's episode, as the agent plays it: packed actions, budgets, deadlines, and what becomes of the environment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum

from ragen.environments.spaces import normalise
from ragen.errors import EnvironmentFailure
from ragen.records import EpisodeKey, Observation
from ragen.rollout.answers import Answer
from ragen.rollout.deadline import EnvironmentTimeout
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.hosts import Host, Seat

_log = logging.getLogger(__name__)


class EnvStatus(StrEnum):
    """Where the episode of a handle stands."""

    NEW = "new"
    RUNNING = "running"
    ENDED = "ended"  # by the environment
    FAILED = "failed"  # the environment raised, hung, or answered something that is not an answer
    CLOSED = "closed"  # from outside, before it ended: a limit was reached or the run stopped


class EnvHandle:
    """One episode: the environment is made when it begins, and closed as soon as it is over."""

    def __init__(
        self, key: EpisodeKey, config: EnvironmentConfig, host: Host, replace: Callable[[EpisodeKey], EnvHandle]
    ) -> None:
        self.key = key
        self.config = config
        self.status = EnvStatus.NEW
        self.num_actions = 0
        self._host = host
        self._replace = replace
        self._seat: Seat | None = None
        self._action_names: tuple[str, ...] | None = None
        self._names: dict[str, str] | None = None  # the environment's own spelling by the normal form; None: any text
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

    def replacement(self) -> EnvHandle:
        """A new episode in the place of this one: same group, member and task seed, next attempt, another dynamics seed."""
        return self._replace(self.key)

    async def reset(self) -> Observation:
        """Make the environment and begin its episode. Raises EnvironmentFailure; RuntimeError if it was begun before."""
        if self.status is not EnvStatus.NEW:
            raise RuntimeError(f"a handle plays one episode; this one is {self.status}")
        self._seat = seat = self._host.seat()
        timeout_s = self._timeout_s(seat)
        try:
            beginning = await seat.begin(self.key.task_seed, self.key.dynamics_seed, timeout_s)
        except EnvironmentFailure as failure:
            raise self._failed("reset", failure, timeout_s) from failure
        self._text = beginning.text
        self._action_names = beginning.action_names
        if beginning.action_names is not None:
            self._names = {normalise(name): name for name in beginning.action_names}
        self.status = EnvStatus.RUNNING
        return Observation(text=beginning.text, instruction=beginning.instruction, actions_left=self.actions_left)

    async def step(self, actions: Sequence[str]) -> Observation:
        """Execute the actions of one turn in order, until the episode ends or the trajectory's action budget is used up.

        Names that the environment does not know are not executed, cost no budget and come back as `rejected`. Rewards are summed
        over the executed actions, and so is info["effective"]; text and other info are what the last one showed, or the former
        text and nothing if none was executed.
        Raises EnvironmentFailure; RuntimeError outside an episode; ValueError for more than `max_actions_per_turn` actions or
        once no action is left.
        """
        if self.status is not EnvStatus.RUNNING:
            raise RuntimeError(f"only a running episode can be stepped; this one is {self.status}")
        if len(actions) > self.config.max_actions_per_turn:
            raise ValueError(f"{len(actions)} actions in one turn; max_actions_per_turn is {self.config.max_actions_per_turn}")
        if actions and not self.actions_left:
            raise ValueError(f"all {self.config.max_actions} actions of the trajectory are used up")
        names = self._names
        resolved = actions if names is None else [names.get(normalise(action)) for action in actions]
        rejected = tuple(action for action, known in zip(actions, resolved, strict=True) if known is None)
        return await self._execute([known for known in resolved if known is not None], rejected)

    async def _execute(self, actions: Sequence[str], rejected: tuple[str, ...]) -> Observation:
        executed: list[str] = []
        reward, terminated, truncated = 0.0, False, False
        info: dict[str, float] = {}
        for action in actions[: self.actions_left]:
            answer = await self._play(action)
            executed.append(action)
            reward += answer.reward
            num_effective = info.get("effective", 0.0) + answer.info.get("effective", 0.0)
            info = {**answer.info, "effective": num_effective}
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

    async def _play(self, action: str) -> Answer:
        seat = self._seat
        assert seat is not None, self.status
        timeout_s = self._timeout_s(seat)
        try:
            answer = await seat.play(action, timeout_s)
        except EnvironmentFailure as failure:
            raise self._failed(f"action {self.num_actions + 1} {action[:40]!r}", failure, timeout_s) from failure
        self.num_actions += 1
        return answer

    def close(self) -> None:
        """End the episode if it has not ended, and let the environment go. May be called in any state; never fails."""
        if self.status in (EnvStatus.NEW, EnvStatus.RUNNING):
            self.status = EnvStatus.CLOSED
        self._release()

    def _release(self) -> None:
        # What the episode was worth is known by now, and another error may be on its way: a failing close is only reported.
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.close(self.config.step_timeout_s, self._warn_of_close)

    def _warn_of_close(self, reason: str) -> None:
        _log.warning("%s, close: %s", self._where, reason)

    def _timeout_s(self, seat: Seat) -> float:
        """Deadline of the next call: its own, or what is left of the episode's seconds if that is less."""
        timeout_s, max_seconds = self.config.step_timeout_s, self.config.max_seconds
        return timeout_s if max_seconds is None else max(1e-3, min(timeout_s, max_seconds - seat.seconds))

    def _failed(self, doing: str, failure: EnvironmentFailure, timeout_s: float) -> EnvironmentFailure:
        """Note that the episode is over; the failure again, saying whose it is and where it happened."""
        self.status = EnvStatus.FAILED
        self._release()
        text = f"{self._where}, {doing}: {failure}"
        if not isinstance(failure, EnvironmentTimeout):
            return EnvironmentFailure(text)
        if timeout_s < self.config.step_timeout_s:
            return EnvironmentTimeout(f"{text}, what was left of max_seconds={self.config.max_seconds:g}")
        return EnvironmentTimeout(f"{text} (step_timeout_s)")

    @property
    def _where(self) -> str:
        key = self.key
        attempt = f", attempt {key.attempt + 1}" if key.attempt else ""
        return (
            f"environment {key.environment!r} (step {key.step}, group {key.group}, member {key.member}{attempt}, "
            f"task seed {key.task_seed}, dynamics seed {key.dynamics_seed})"
        )
