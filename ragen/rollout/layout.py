"""What the messages of a chat say: task, observation, budgets, feedback, how to answer. docs/context.md shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragen.errors import ConfigError
from ragen.records import Observation, Reply
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.memory import PAST, Exchange, lines, number
from ragen.rollout.replies import ReplyFormat

SUMMARY_REQUEST = (
    "Your history is about to be deleted. Write down, in a few short sentences, what you need to know to go on: what you tried,"
    " what came of it, and what you plan. Write nothing else."
)


class Layout:
    """Turns what an environment says into the text of a turn, an Exchange."""

    def __init__(self, config: ContextConfig, format_: ReplyFormat, env: EnvironmentConfig, max_invalid_turns: int) -> None:
        self._config = config
        self._format = format_
        self._env = env
        self._max_invalid_turns = max_invalid_turns
        self._task = self._how = ""

    def first(self, observation: Observation, names: Sequence[str] | None) -> Exchange:
        """The exchange after the reset. Raises ConfigError if answers could not tell the actions apart."""
        self._check_separator(names or ())
        self._task = self.capped(observation.instruction)
        self._how = self._format.instructions(names)
        return self._exchange(observation, number_=1, news="")

    def next(self, observation: Observation, reply: Reply, *, num_turns: int, num_invalid: int, return_: float) -> Exchange:
        """The exchange after the actions of `reply`, the last of `num_turns`, which earned `return_` in all."""
        reward = f"Reward: {number(observation.reward)}" if self._config.show_reward else ""
        total = f"Rewards so far: {number(return_)}" if self._config.show_return else ""
        news = lines(reward, total, self._feedback(reply, observation, num_invalid))
        return self._exchange(observation, number_=num_turns + 1, news=news)

    def played(self, exchange: Exchange, observation: Observation) -> Exchange:
        """The exchange once its actions have been played. A reward that is not shown is not remembered either."""
        reward = observation.reward if self._config.show_reward else None
        return replace(exchange, actions=observation.executed, reward=reward)

    def summed_up(self, exchange: Exchange, summary: str) -> Exchange:
        """The exchange as the first one that is remembered, behind a summary of those before it."""
        return replace(exchange, notes=lines(PAST, self.capped(summary)) if summary.strip() else "")

    def capped(self, text: str) -> str:
        """The first `max_observation_chars` characters, with a mark for what was cut."""
        limit = self._config.max_observation_chars
        return text if len(text) <= limit else f"{text[:limit]}\n[{len(text) - limit} more characters cut]"

    def _exchange(self, observation: Observation, *, number_: int, news: str) -> Exchange:
        shown = self.capped(observation.text)
        turn = f"Turn {number_}:" if self._config.show_turn else ""
        return Exchange(
            number=number_,
            task=self._task,
            observation=shown,
            state=lines(turn, shown, self._budget(observation, num_turns=number_ - 1)),
            news=news,
            how=self._how,
            reminder=self._format.reminder,
        )

    def _budget(self, observation: Observation, *, num_turns: int) -> str:
        """The turns and actions that are left. Who has one turn and one action needs no telling."""
        if self._env.max_turns == self._env.max_actions == 1 or not self._config.show_budget:
            return ""
        return f"Turns left: {self._env.max_turns - num_turns}\nActions left: {observation.actions_left}"

    def _feedback(self, reply: Reply, observation: Observation, num_invalid: int) -> str:
        """What was wrong with the last reply, and how many like it in a row the episode stands: a limit like any other budget."""
        said = reply.feedback or self._format.feedback(reply.verdict, observation.rejected)
        if not said or observation.executed:
            return said
        left = self._max_invalid_turns - num_invalid
        return f"{said} {left} more such {'reply ends' if left == 1 else 'replies in a row end'} the episode."

    def _check_separator(self, names: Sequence[str]) -> None:
        separator = self._config.action_separator.strip()
        is_used = self._config.tools == "none" and not self._config.parser
        clash = next((name for name in names if is_used and separator in name), None)
        if clash is not None:
            raise ConfigError(f"rollout.context.action_separator={separator!r}: is part of the action name {clash!r}")
