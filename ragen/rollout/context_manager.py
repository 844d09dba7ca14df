"""The context manager: turns -> token ids, loss mask and log-probs; a sampled reply -> actions.

One per trajectory. Ids are only ever appended: the first prompt, then in turn the ids of a reply exactly as sampled (mask True)
and the ids of the environment's answer (mask False). Where an id came from decides its mask; nothing is ever searched or cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from ragen.errors import ConfigError, ModelError, near_match
from ragen.models.chat import ChatTemplate
from ragen.records import Completion, EndReason, EpisodeKey, FinishReason, Observation, Reply, Segment, Trajectory, Turn, Verdict
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.replies import ReplyConfig

ActionNames = Sequence[str] | None  # None: any text is an action

MODES = ("full",)


@dataclass(kw_only=True)
class ContextConfig(ReplyConfig):
    """What the model sees and how it has to answer."""

    show_reward: bool = True  # tell the model the environment's reward of its last turn
    max_context_tokens: int = 2048  # of a whole trajectory, prompt and replies
    max_observation_chars: int = 8000  # longer observations are cut before they are encoded
    mode: str = "full"  # the whole history stays in the prompt

    def check(self) -> None:
        """Raise ConfigError for a value out of range."""
        if self.mode not in MODES:
            raise ConfigError(
                f"rollout.context.mode={self.mode!r}: must be one of {', '.join(MODES)}{near_match(self.mode, MODES)}"
            )
        for key in ("max_context_tokens", "max_observation_chars"):
            if getattr(self, key) < 1:
                raise ConfigError(f"rollout.context.{key}={getattr(self, key)}: must be at least 1")
        self.check_replies("rollout.context")


class ContextManager:
    """Builds the token sequence of one trajectory: `observe` and `reply` take turns, `observe` first.

    `action_names` may be a function: the names of an episode are known once it has been reset. `format_penalty` (<= 0) is the
    cost of a reply that is not valid. `reserve_tokens` is the longest reply: with less room left the episode has to end.
    `max_invalid_turns` replies in a row of which nothing is executed end it, too. Messages announce what is left of each budget.
    Raises ModelError if the chat template does not allow what the configuration asks for.
    """

    def __init__(
        self,
        template: ChatTemplate,
        config: ContextConfig,
        env: EnvironmentConfig,
        action_names: ActionNames | Callable[[], ActionNames],
        format_penalty: float,
        reserve_tokens: int,
        max_invalid_turns: int,
    ) -> None:
        if env.max_turns > 1:
            template.require_append_only(thoughts=config.think)
        think = f"<{config.think_tag}>"
        if template.opens_with(think) and not config.think:
            raise ModelError(f"{template.name}: the chat template opens a {think} block itself; set rollout.context.think=true")
        self.config = config
        self.format = config.reply_format(min(env.max_actions_per_turn, env.max_actions))
        self._template = template
        self._env = env
        self._action_names = action_names
        self._format_penalty = format_penalty
        self._reserve_tokens = reserve_tokens
        self._max_invalid_turns = max_invalid_turns
        # The prompt may hold the first tag already, be it ours or the template's; the parser sees whole replies.
        opened = config.reply_prefix or template.opens_with(self.format.opening)
        self._reply_start = self.format.opening if opened else ""
        self._ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._turns: list[Turn] = []
        self._message = ""  # the user message that the next reply answers
        self._observation = ""
        self._awaits_reply = False

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The whole sequence so far: what the next reply is sampled from."""
        return tuple(self._ids)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a reply."""
        return self._template.stop_ids

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that end a reply."""
        return self.format.stop_texts

    @property
    def num_turns(self) -> int:
        """Replies so far."""
        return len(self._turns)

    @property
    def num_invalid_turns(self) -> int:
        """Replies in a row, up to the last observation, of which nothing was executed."""
        return sum(1 for _ in takewhile(lambda turn: not turn.executed, reversed(self._turns)))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns so far; the last one has no reward yet while its observation is awaited."""
        return tuple(self._turns)

    def room(self) -> int:
        """Tokens left in the context window; negative if the last observation went beyond it."""
        return self.config.max_context_tokens - len(self._ids)

    @property
    def has_room(self) -> bool:
        """True if a reply of `reserve_tokens` still fits. The prompt is never cut to make it fit."""
        return self.room() >= self._reserve_tokens

    def observe(self, observation: Observation) -> None:
        """Take the environment's answer to the reset, or to the last reply's actions; append what the model reads next.

        Nothing is appended once no reply will follow. Raises ConfigError if not even the first prompt leaves room for a reply.
        """
        assert not self._awaits_reply, "a reply is awaited, not an observation"
        self._observation = _capped(observation.text, self.config.max_observation_chars)
        if self._turns:
            self._complete_turn(observation)
            if not observation.terminated and not observation.truncated and len(self._turns) < self._env.max_turns:
                self._append_observation(observation)
                self._awaits_reply = True
        else:
            self._start(observation)
            self._awaits_reply = True

    def reply(self, completion: Completion) -> Reply:
        """Append a sampled reply, ids and log-probs untouched, and read it.

        The text is cut behind the stop text, with which the last id may not end; the ids are not.
        """
        assert self._awaits_reply, "an observation is awaited, not a reply"
        self._awaits_reply = False
        start = len(self._ids)
        self._append(completion.ids, completion.logprobs)
        text = self._reply_start + self._up_to_stop(self._template.decode(completion.ids))
        reply = self.format.parse(text, self._names(), finished=completion.finish_reason is not FinishReason.LENGTH)
        self._turns.append(
            Turn(
                start=start,
                stop=len(self._ids),
                observation=self._message,
                reply=reply,
                executed=(),
                reward=0.0,
                format_penalty=self._penalty(reply),
                finish_reason=completion.finish_reason,
                policy_version=completion.policy_version,
            )
        )
        return reply

    def trajectory(self, *, key: EpisodeKey, end_reason: EndReason, success: bool, error: str = "") -> Trajectory:
        """What there is, up to the last sampled id. May be called in any state: a turn without answer has reward 0."""
        stop = self._turns[-1].stop if self._turns else len(self._ids)
        return Trajectory(
            key=key,
            segments=(
                Segment(
                    ids=np.array(self._ids[:stop], dtype=np.int32),
                    mask=np.array(self._mask[:stop], dtype=np.bool_),
                    logprobs=np.array(self._logprobs[:stop], dtype=np.float32),
                ),
            ),
            turns=tuple(self._turns),
            final_observation=self._observation,
            end_reason=end_reason,
            success=success,
            error=error,
        )

    def _start(self, observation: Observation) -> None:
        names = self._names()
        separator = self.config.action_separator.strip()
        plain = self.config.tools == "none" and not self.config.parser  # else nothing is separated
        clash = next((name for name in names or () if plain and separator in name), None)
        if clash is not None:
            raise ConfigError(f"rollout.context.action_separator={separator!r}: is part of the action name {clash!r}")
        self._message = _lines(
            _capped(observation.instruction, self.config.max_observation_chars),
            self._observation,
            self._budget(observation),
            self.format.instructions(names),
        )
        self._append(self._template.start(self.format.system, self._message, reply_prefix=self.format.prefix))
        if not self.has_room:
            window, needed = self.config.max_context_tokens, len(self._ids) + self._reserve_tokens
            raise ConfigError(
                f"rollout.context.max_context_tokens={window}: the first prompt of environment {self._env.name!r} has"
                f" {len(self._ids)} tokens and a reply may take {self._reserve_tokens}; must be at least {needed}"
            )

    def _append_observation(self, observation: Observation) -> None:
        turn = self._turns[-1]
        reward = f"Reward: {_number(observation.reward)}" if self.config.show_reward else ""
        self._message = _lines(
            reward,
            self._feedback(turn.reply, observation),
            self._observation,
            self._budget(observation),
            self.format.reminder,
        )
        last_id = self._ids[-1] if turn.stop > turn.start else None
        self._append(self._template.append_user(self._message, last_id=last_id, reply_prefix=self.format.prefix))

    def _complete_turn(self, observation: Observation) -> None:
        """The environment has the last word on which names it knows."""
        turn = self._turns[-1]
        reply = turn.reply
        if observation.rejected and self.format.is_valid(reply.verdict):
            reply = replace(reply, verdict=Verdict.UNKNOWN_ACTION)
        self._turns[-1] = replace(
            turn,
            reply=reply,
            executed=observation.executed,
            reward=observation.reward,
            format_penalty=self._penalty(reply),
            info=observation.info,
        )

    def _append(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """The only place where ids, mask and log-probs grow. With log-probs the ids were sampled, without they were not."""
        self._ids.extend(ids)
        self._mask.extend([logprobs is not None] * len(ids))
        self._logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)
        lengths = (len(self._ids), len(self._mask), len(self._logprobs))
        assert len(set(lengths)) == 1, lengths

    def _names(self) -> ActionNames:
        return self._action_names() if callable(self._action_names) else self._action_names

    def _penalty(self, reply: Reply) -> float:
        return 0.0 if self.format.is_valid(reply.verdict) else self._format_penalty

    def _up_to_stop(self, text: str) -> str:
        for stop in self.stop_texts:
            before, found, _ = text.partition(stop)
            text = before + found
        return text

    def _feedback(self, reply: Reply, observation: Observation) -> str:
        """What was wrong with the last reply, and how many like it in a row the episode stands: a limit like any other budget."""
        said = reply.feedback or self.format.feedback(reply.verdict, observation.rejected)
        if not said or observation.executed:
            return said
        left = self._max_invalid_turns - self.num_invalid_turns
        return f"{said} {left} more such {'reply ends' if left == 1 else 'replies in a row end'} the episode."

    def _budget(self, observation: Observation) -> str:
        """The turns and actions that are left. Who has one turn and one action needs no telling."""
        if self._env.max_turns == self._env.max_actions == 1:
            return ""
        return f"Turns left: {self._env.max_turns - self.num_turns}\nActions left: {observation.actions_left}"


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part.strip())


def _number(value: float) -> str:
    """At most three decimals, none that say nothing: -0.1 * 3 reads -0.3, not -0.30000000000000004."""
    return f"{round(value, 3) + 0.0:.15g}"


def _capped(text: str, limit: int) -> str:
    """The first `limit` characters, with a mark for what was cut."""
    return text if len(text) <= limit else f"{text[:limit]}\n[{len(text) - limit} more characters cut]"
