"""The context manager: turns -> token ids, loss mask and log-probs; a sampled reply -> actions.

One per trajectory. What the next prompt shows, and how it grows or begins anew, is the history's to say (history.py); what a
message says, the layout's (layout.py). Only what was sampled is trained, behind the prompt that the policy saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from ragen.errors import ConfigError, EnvironmentFailure, ModelError
from ragen.models.text_chat import TextChat
from ragen.records import (
    Completion,
    EndReason,
    EpisodeKey,
    FinishReason,
    Observation,
    Reply,
    Sampling,
    Summary,
    Trajectory,
    Turn,
    Verdict,
)
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.environment_config import EnvironmentConfig
from ragen.rollout.history import History
from ragen.rollout.layout import Layout

if TYPE_CHECKING:
    from ragen.models.chat import ChatTemplate

ActionNames = Sequence[str] | None  # None: any text is an action

_UNANNOUNCED = (EndReason.ACTION_LIMIT, EndReason.TURN_LIMIT)  # where the prompt does not tell what is left


class ContextManager:
    """Builds the token sequences of one trajectory: `observe` and `reply` take turns, `observe` first.

    Where `wants_summary`, `summarise` comes before the next reply. `action_names` may be a function: the names of an episode are
    known once it has been reset. `format_penalty` (<= 0) is the cost of a reply that is not valid. `reserve_tokens` is the
    longest reply: where it would not fit, what `overflow` says happens. `max_invalid_turns` replies in a row of which nothing is
    executed end the episode; messages announce that and the other budgets.
    Raises ModelError if the chat template does not allow what the configuration asks for.
    """

    def __init__(
        self,
        template: ChatTemplate | TextChat,
        config: ContextConfig,
        env: EnvironmentConfig,
        action_names: ActionNames | Callable[[], ActionNames],
        format_penalty: float,
        reserve_tokens: int,
        max_invalid_turns: int,
    ) -> None:
        think = f"<{config.think_tag}>"
        if not isinstance(template, TextChat) and template.opens_with(think) and not config.think:
            switch = " or model.thinking=false" if template.source.think_switch else ""
            raise ModelError(
                f"{template.name}: the chat template opens a {think} block itself; set rollout.context.think=true{switch}"
            )
        self.config = config
        self.format = config.reply_format(min(env.max_actions_per_turn, env.max_actions))
        if env.max_turns > 1 and not (template.appends(config.think) and config.mode == "full" and config.overflow == "end"):
            template.require_prompts()
        self._template = template
        self._env = env
        self._action_names = action_names
        self._format_penalty = format_penalty
        self._reserve_tokens = reserve_tokens
        # The prompt may hold the first tag already, be it ours or the template's; the parser sees whole replies.
        opened = config.reply_prefix or template.opens_with(self.format.opening)
        self._reply_start = self.format.opening if opened else ""
        self._layout = Layout(config, self.format, env, max_invalid_turns)
        self._history = History(template, config, self.format, self._layout, reserve_tokens)
        self._turns: list[Turn] = []
        self._summaries: list[Summary] = []
        self._observation: str | None = None
        self._awaits_reply = False

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """What the next reply, or summary, is sampled from."""
        return self._history.transcript.ids

    @property
    def wants_summary(self) -> bool:
        """Whether the prompt asks for a summary, which `summarise` is to take."""
        return self._history.wants_summary

    @property
    def has_room(self) -> bool:
        """False once the next reply would not fit, whatever is forgotten: the prompt is then not made, and never cut."""
        return not self._history.num_lacking

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

    def sampling(self, sampling: Sampling, key: EpisodeKey) -> Sampling:
        """The request of the next completion: where it stops, and its own random stream.

        Members of a group differ in the dynamics seed, so their replies are drawn independently.
        """
        seed = (*sampling.seed, key.task_seed, key.dynamics_seed, len(self._turns) + len(self._summaries))
        request = replace(sampling, seed=seed, stop_ids=self._template.stop_ids)
        if self.wants_summary:
            return replace(request, stop_texts=(), max_new_tokens=self.config.summary_tokens)
        return replace(request, stop_texts=self.format.stop_texts)

    def is_truncation(self, end_reason: EndReason) -> bool:
        """Whether an end is one that the agent could not foresee, so that more reward might have followed."""
        return end_reason.is_truncation or (end_reason in _UNANNOUNCED and not self.config.show_budget)

    def observe(self, observation: Observation) -> None:
        """Take the environment's answer to the reset, or to the last reply's actions; prepare what the model reads next.

        Nothing is prepared once no reply will follow. Raises ConfigError if not even the first prompt leaves room for a reply;
        EnvironmentFailure if that is so although its observation was cut: such a text is nobody's setting.
        """
        assert not self._awaits_reply, "a reply is awaited, not an observation"
        is_first = self._observation is None
        self._observation = self._layout.capped(observation.text)
        if is_first:
            self._history.ask(self._layout.first(observation, self._names()))
            self._check_first_prompt(len(observation.text))
        else:
            self._complete_turn(observation)
            if observation.terminated or observation.truncated or len(self._turns) >= self._env.max_turns:
                return
            self._history.ask(
                self._layout.next(
                    observation,
                    self._turns[-1].reply,
                    num_turns=len(self._turns),
                    num_invalid=self.num_invalid_turns,
                    return_=sum(turn.reward for turn in self._turns),
                )
            )
        self._awaits_reply = True

    def reply(self, completion: Completion) -> Reply:
        """Take a sampled reply, ids and log-probs untouched, and read it.

        The text is cut behind the stop text, with which the last id may not end; the ids are not.
        """
        assert self._awaits_reply, "an observation is awaited, not a reply"
        assert not self.wants_summary, "a summary is awaited, not a reply"
        self._awaits_reply = False
        text = self._reply_start + self._up_to_stop(self._template.decode(completion.ids))
        message, state = self._history.message, self._history.state
        span = self._history.answer(completion, text)
        reply = self.format.parse(text, self._names(), finished=completion.finish_reason is FinishReason.STOP)
        self._turns.append(
            Turn(
                segment=span.segment,
                start=span.start,
                stop=span.stop,
                observation=message,
                state=state,
                reply=reply,
                executed=(),
                reward=0.0,
                format_penalty=self._penalty(reply),
                finish_reason=completion.finish_reason,
                policy_version=completion.policy_version,
                digest=span.digest,
            )
        )
        return reply

    def summarise(self, completion: Completion) -> None:
        """Take the summary that the model was asked for; the history goes on from it. A thought before it is not part of it."""
        assert self.wants_summary, "no summary was asked for"
        text = self._without_thought(self._template.decode(completion.ids))
        span = self._history.sum_up(completion, text)
        self._summaries.append(
            Summary(
                segment=span.segment,
                start=span.start,
                stop=span.stop,
                num_turns=len(self._turns),
                text=text,
                trained=self.config.train_summaries,
                finish_reason=completion.finish_reason,
                policy_version=completion.policy_version,
                digest=span.digest,
            )
        )

    def trajectory(self, *, key: EpisodeKey, end_reason: EndReason, success: bool, error: str = "") -> Trajectory:
        """What there is, up to the last sampled id. May be called in any state: a turn without answer has reward 0."""
        return Trajectory(
            key=key,
            segments=self._history.transcript.segments(),
            turns=tuple(self._turns),
            summaries=tuple(self._summaries),
            final_observation=self._observation or "",
            end_reason=end_reason,
            success=success,
            truncated=self.is_truncation(end_reason),
            error=error,
        )

    def _check_first_prompt(self, num_chars: int) -> None:
        """`num_chars`: of the first observation as the environment gave it."""
        if self.has_room:
            return
        if num_chars > self.config.max_observation_chars:
            raise EnvironmentFailure(
                f"environment {self._env.name!r}: a first observation of {num_chars} characters leaves no room for a reply,"
                f" even cut to rollout.context.max_observation_chars={self.config.max_observation_chars}"
            )
        window = self.config.max_context_tokens
        least = window + self._history.num_lacking
        length = least - self._history.needed
        summary = ", with room for a summary" if self.config.asks_for_summaries else ""
        raise ConfigError(
            f"rollout.context.max_context_tokens={window}: the first prompt of environment {self._env.name!r} has"
            f" {length} tokens and a reply may take {self._reserve_tokens}{summary}; must be at least {least}"
        )

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
        self._history.played(observation)

    def _names(self) -> ActionNames:
        return self._action_names() if callable(self._action_names) else self._action_names

    def _penalty(self, reply: Reply) -> float:
        return 0.0 if self.format.is_valid(reply.verdict) else self._format_penalty

    def _without_thought(self, text: str) -> str:
        """What stands behind a thought; nothing where the thought was never closed."""
        opening, closing = f"<{self.config.think_tag}>", f"</{self.config.think_tag}>"
        before, closed, behind = text.rpartition(closing)
        is_open = self._template.opens_with(opening) or opening in text
        return (behind if closed or not is_open else before).strip()

    def _up_to_stop(self, text: str) -> str:
        for stop in self.format.stop_texts:
            before, found, _ = text.partition(stop)
            text = before + found
        return text
