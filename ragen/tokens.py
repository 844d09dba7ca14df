"""One episode, token by token: who wrote each id, whether it is trained, and what log-prob the model gave it.

The episode goes through the agent loop of training, with a chat template that remembers what it wrote. The model replies; or the
environment's oracle, chance or a script, which needs the model's tokenizer alone. Behind `ragen tokens RECIPE`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen.config.schema import Config
from ragen.engines.base import Engine
from ragen.errors import ConfigError, EnvironmentFailure
from ragen.evaluation.players import OraclePlayer, Player, RandomPlayer
from ragen.models.spelling import speller
from ragen.models.template_findings import Finding
from ragen.models.traced_template import Origin, Source, TracedTemplate, Written
from ragen.records import Completion, EndReason, EpisodeKey, FinishReason, Sample, Sampling, Split, Summary, Trajectory, Turn
from ragen.rollout.agent import Limits, run_trajectory
from ragen.rollout.collect import context_factory
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.env_handle import EnvHandle
from ragen.rollout.hosts import InlineHost
from ragen.training.provenance import verify

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

THOUGHT, SUMMARY = "I try this.", "I tried a few things, and go on from here."  # where no model writes


class Author(StrEnum):
    """Who writes the replies."""

    MODEL = "model"
    ORACLE = "oracle"
    CHANCE = "chance"
    SCRIPT = "script"


@dataclass(frozen=True, kw_only=True)
class Token:
    """One id of a trajectory."""

    id: int
    text: str  # of this id alone; bytes of a character that is spread over several ids come as \\xNN
    origin: Origin
    merged: bool  # it also covers text of another origin
    trained: bool
    logprob: float | None  # None unless a model sampled it


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Tokens in a row of one segment: a completion, or what was read before it."""

    segment: int
    completion: Turn | Summary | None  # None behind the last one, or where there is none
    is_completion: bool
    tokens: tuple[Token, ...]


@dataclass(frozen=True, kw_only=True)
class TokenTrace:
    """An episode in passages, and what the probe found about the chat template that made its prompts."""

    trajectory: Trajectory
    passages: tuple[Passage, ...]
    model: str
    author: Author
    is_cut: bool  # the episode would have gone on: as many turns were played as were asked for
    findings: tuple[Finding, ...]

    @property
    def tokens(self) -> list[Token]:
        """Of all segments."""
        return list(chain.from_iterable(passage.tokens for passage in self.passages))

    @property
    def counts(self) -> dict[Origin, int]:
        """Tokens by origin, in the order of `Origin`, those that occur."""
        counts = Counter(token.origin for token in self.tokens)
        return {origin: counts[origin] for origin in Origin if counts[origin]}

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON."""
        trajectory = self.trajectory
        segments = [
            [
                {**asdict(token), "turn": _number(trajectory.turns, passage), "summary": _number(trajectory.summaries, passage)}
                for passage in self.passages
                if passage.segment == index
                for token in passage.tokens
            ]
            for index in range(len(trajectory.segments))
        ]
        return {
            "model": self.model,
            "environment": trajectory.key.environment,
            "seed": trajectory.key.task_seed,
            "author": self.author,
            "end_reason": None if self.is_cut else trajectory.end_reason,
            "success": trajectory.success,
            "return": trajectory.return_,
            "counts": self.counts,
            "num_trained": sum(token.trained for token in self.tokens),
            "segments": segments,
            "findings": [asdict(finding) for finding in self.findings],
        }


def trace_episode(
    config: Config, tag: str, *, author: Author | None, seed: int, num_turns: int | None = None, replies: Sequence[str] = ()
) -> TokenTrace:
    """Play the environment `tag` of `config` from the task seed `seed`, for `num_turns` at most.

    Without an author the oracle plays, or chance where there is no oracle. The `replies` of a script are what a model would
    sample behind its prompts; the last one is said again for ever. Raises ConfigError for an oracle that there is not,
    EnvironmentFailure if the environment breaks off, and what the agent loop lets through.
    """
    environment = config.environments[tag]
    key = EpisodeKey(split=Split.TRAIN, step=0, group=0, member=0, environment=tag, task_seed=seed, dynamics_seed=seed)
    handle = EnvHandle(key, environment, InlineHost(environment), _never_replaced)
    tokenizer, model_engine = _load(config, with_weights=author is Author.MODEL)
    template = TracedTemplate.configured(tokenizer, config.model)
    context = context_factory(template, config.rollout)(handle)
    if model_engine is not None:
        author, engine = Author.MODEL, model_engine
    elif author is Author.SCRIPT:
        engine = _Writer(template, context, _script(replies))
    else:
        author, player = _player(author, handle, config.rollout.context.action_separator)
        engine = _Writer(template, context, lambda: _whole_reply(player.answer(), context, template, handle))
    max_turns = min(environment.max_turns, num_turns or environment.max_turns)
    limits = Limits(max_turns=max_turns, max_invalid_turns=config.rollout.max_invalid_turns)
    trajectory = asyncio.run(_play(handle, context, engine, _sampling(config), limits))
    if trajectory.end_reason.is_infrastructure and trajectory.end_reason is not EndReason.ENGINE_ERROR:
        raise EnvironmentFailure(trajectory.error)
    verify(_samples(trajectory))
    return TokenTrace(
        trajectory=trajectory,
        passages=tuple(passages(trajectory, template.written, tokenizer, sampled_by_model=author is Author.MODEL)),
        model=config.model.name,
        author=author,
        is_cut=limits.max_turns < environment.max_turns and trajectory.end_reason is EndReason.TURN_LIMIT,
        findings=template.findings,
    )


def passages(
    trajectory: Trajectory, written: Sequence[Written], tokenizer: PreTrainedTokenizerBase, *, sampled_by_model: bool
) -> Iterator[Passage]:
    """Cut a trajectory at its completions. `written` is what its template wrote, in the order of time."""
    spell = speller(tokenizer)
    prompts = iter(written)
    for sample in _samples(trajectory):
        end = 0
        for completion in _completions(trajectory, sample.segment):
            sources = _sources(sample.ids[end : completion.start].tolist(), prompts)
            read = _tokens(sample, end, sources, spell, has_logprobs=False)
            yield Passage(segment=sample.segment, completion=completion, is_completion=False, tokens=read)
            sources = [Source(origin=Origin.SAMPLED)] * (completion.stop - completion.start)
            said = _tokens(sample, completion.start, sources, spell, has_logprobs=sampled_by_model)
            yield Passage(segment=sample.segment, completion=completion, is_completion=True, tokens=said)
            end = completion.stop
        if end < len(sample.ids):
            sources = _sources(sample.ids[end:].tolist(), prompts)
            read = _tokens(sample, end, sources, spell, has_logprobs=False)
            yield Passage(segment=sample.segment, completion=None, is_completion=False, tokens=read)


def _tokens(
    sample: Sample, start: int, sources: Sequence[Source], spell: Callable[[int], str], *, has_logprobs: bool
) -> tuple[Token, ...]:
    """The tokens from `start` on, as many as there are sources."""
    return tuple(
        Token(
            id=int(sample.ids[t]),
            text=spell(int(sample.ids[t])),
            origin=source.origin,
            merged=source.merged,
            trained=bool(sample.mask[t]),
            logprob=float(sample.logprobs[t]) if has_logprobs else None,
        )
        for t, source in enumerate(sources, start)
    )


def _samples(trajectory: Trajectory) -> list[Sample]:
    """What would be trained, before anything is known of advantages."""
    blank = [np.zeros(len(segment.ids), dtype=np.float32) for segment in trajectory.segments]
    return [Sample(trajectory=trajectory, segment=index, advantages=zeros) for index, zeros in enumerate(blank)]


def _completions(trajectory: Trajectory, segment: int) -> list[Turn | Summary]:
    every: list[Turn | Summary] = [*trajectory.turns, *trajectory.summaries]
    return sorted((each for each in every if each.segment == segment), key=lambda each: (each.start, each.stop))


def _sources(ids: Sequence[int], prompts: Iterator[Written]) -> list[Source]:
    """The sources of ids that were read: the next prompts that say just this. Others were made, but found too long."""
    sources: list[Source] = []
    while len(sources) < len(ids):
        written = next(prompts)
        if list(written.ids) == ids[len(sources) : len(sources) + len(written.ids)]:
            sources += written.sources
    return sources


def _number(completions: Sequence[Turn | Summary], passage: Passage) -> int | None:
    """Which of them the passage is, or leads to, from 1."""
    return next((n for n, each in enumerate(completions, start=1) if each is passage.completion), None)


class _Writer:
    """An engine whose replies are made by a function and encoded as a model would have sampled them; log-probs are 0."""

    policy_version = 0

    def __init__(self, template: TracedTemplate, context: ContextManager, reply: Callable[[], str]) -> None:
        self._template = template
        self._context = context
        self._reply = reply

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        text = SUMMARY if self._context.wants_summary else self._reply()
        ids = self._template.encode_text(text)
        if not text.endswith(sampling.stop_texts or ("\0",)):
            ids += self._template.stop_ids[:1] if self._template.end_of_turn_id is None else [self._template.end_of_turn_id]
        kept = tuple(ids[: sampling.max_new_tokens])
        finish = FinishReason.STOP if len(kept) == len(ids) else FinishReason.LENGTH
        return Completion(ids=kept, logprobs=(0.0,) * len(kept), finish_reason=finish, policy_version=self.policy_version)

    def release(self, prompt_ids: Sequence[int]) -> None:
        """Nothing is cached."""

    async def close(self) -> None:
        """Nothing is held."""


def _script(replies: Sequence[str]) -> Callable[[], str]:
    """The replies in order, then the last one for ever."""
    assert replies, "a script without replies"
    told = chain(replies, repeat(replies[-1]))
    return lambda: next(told)


def _player(author: Author | None, handle: EnvHandle, separator: str) -> tuple[Author, Player]:
    """The oracle, or chance. Without an author, chance where there is no oracle."""
    if author is not Author.CHANCE:
        try:
            return Author.ORACLE, OraclePlayer(handle.key, handle.config, separator)
        except ConfigError:
            if author is Author.ORACLE:
                name = handle.config.name
                raise ConfigError(f"--oracle: environment {name!r} has no oracle; leave it out, and chance plays") from None
    return Author.CHANCE, RandomPlayer(lambda: handle.action_names, handle.key.task_seed)


def _whole_reply(answer: str, context: ContextManager, template: TracedTemplate, handle: EnvHandle) -> str:
    """What a model would have sampled behind the prompt, which may hold the first tag already."""
    form = context.format
    actions = [action.strip() for action in answer.split(form.action_separator)]
    reply = form.render(THOUGHT, actions, handle.action_names)
    is_open = form.prefix or (form.opening and template.opens_with(form.opening))
    return reply.removeprefix(form.opening) if is_open else reply


async def _play(handle: EnvHandle, context: ContextManager, engine: Engine, sampling: Sampling, limits: Limits) -> Trajectory:
    try:
        return await run_trajectory(handle, context, engine, sampling, limits)
    finally:
        await engine.close()


def _load(config: Config, *, with_weights: bool) -> tuple[PreTrainedTokenizerBase, Engine | None]:
    if not with_weights:
        from ragen.models.tokenizer import load_tokenizer

        return load_tokenizer(config.model.name), None
    from ragen.engines.torch_engine import TorchEngine
    from ragen.models.policy import load_policy

    policy = load_policy(config.model)
    policy.check_window(config.rollout.context.max_context_tokens)
    return policy.tokenizer, TorchEngine(policy)


def _sampling(config: Config) -> Sampling:
    chosen = config.rollout.sampling
    return Sampling(
        max_new_tokens=chosen.max_new_tokens,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        top_k=chosen.top_k,
        seed=(config.seed,),
    )


def _never_replaced(key: EpisodeKey) -> EnvHandle:
    raise AssertionError(f"{key}: an episode that is shown has no second attempt")
