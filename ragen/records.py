"""The records that cross a folder: what one stage hands to the next.

Completion -> Turn -> Trajectory -> Group (rollout) -> Sample (credit) -> loss (training). Every record is frozen; a stage makes
new records, it never edits one. Token ids are int32, log-probs float32, masks bool; the axis T runs over the tokens of one
segment, prompt included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

UNKNOWN_ID = -1  # stands for a token that somebody else's tokenizer made: a server's, which counts tokens but does not name them

IdsT = NDArray[np.int32]
FloatT = NDArray[np.float32]
MaskT = NDArray[np.bool_]


class FinishReason(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"  # a stop id or a stop text
    LENGTH = "length"  # max_new_tokens reached
    REFUSAL = "refusal"  # a server's model, or a filter in front of it, would not answer


class EndReason(StrEnum):
    """Why a trajectory ended. Set by the agent alone."""

    SOLVED = "solved"  # the environment ended the episode with success
    FAILED = "failed"  # the environment ended the episode without success
    TRUNCATED = "truncated"  # the environment broke the episode off, for a limit of its own that the agent cannot know
    TURN_LIMIT = "turn_limit"  # announced in every prompt, like the next: running out of it is a failure
    ACTION_LIMIT = "action_limit"
    CONTEXT_LIMIT = "context_limit"  # no room left in the context window for an observation and a reply
    PARSE_FAILURE = "parse_failure"  # too many replies in a row without one valid action
    REFUSED = "refused"  # a server's model refused to reply; asked again it would refuse again
    ENVIRONMENT_ERROR = "environment_error"
    ENGINE_ERROR = "engine_error"
    TIMEOUT = "timeout"  # the environment did not answer within its deadline

    @property
    def is_truncation(self) -> bool:
        """True if a limit that the agent could not know cut the episode short: what it was worth from there on is not zero.

        False for an announced budget: that the agent ran out of turns, actions or valid replies is how the task ended.
        """
        return self in (EndReason.TRUNCATED, EndReason.CONTEXT_LIMIT)

    @property
    def is_infrastructure(self) -> bool:
        """True if nobody's policy is to blame: such a trajectory is never scored, only counted."""
        return self in (EndReason.ENVIRONMENT_ERROR, EndReason.ENGINE_ERROR, EndReason.TIMEOUT)


class Split(StrEnum):
    """Which seeds an episode may use. The splits are disjoint by construction (rollout/state_manager.py)."""

    TRAIN = "train"
    VALIDATION = "validation"


class Verdict(StrEnum):
    """What the reply parser found: the gravest deviation from the format, or none.

    Which of them are played and which cost the format penalty is the grammar's to say (rollout/replies/grammar.py).
    """

    VALID = "valid"
    EMPTY = "empty"  # nothing sampled, or an answer without a single action
    TRUNCATED = "truncated"  # cut at max_new_tokens before the answer was complete
    NO_ANSWER = "no_answer"  # no answer block, or none behind the thought
    MISORDERED = "misordered"  # every tag once, in another order
    NESTED = "nested"  # a block inside another, so that the answer is in doubt
    UNOPENED_ANSWER = "unopened_answer"  # a closing answer tag that closes nothing
    UNCLOSED_ANSWER = "unclosed_answer"
    DUPLICATE_ANSWER = "duplicate_answer"  # several answer blocks one after the other
    MISSING_THOUGHT = "missing_thought"
    UNWANTED_THOUGHT = "unwanted_thought"  # a thought tag where the answer alone is asked for
    UNOPENED_THOUGHT = "unopened_thought"  # a closing thought tag that closes nothing
    UNCLOSED_THOUGHT = "unclosed_thought"
    DUPLICATE_THOUGHT = "duplicate_thought"  # a thought is opened more than once
    ANSWER_IN_THOUGHT = "answer_in_thought"  # the thought holds an answer tag; the answer follows behind it
    TEXT_AROUND = "text_around"  # text outside the blocks
    WRONG_CASE = "wrong_case"  # a tag such as <Answer>
    SPACED_TAG = "spaced_tag"  # a tag such as < answer >
    LOOKALIKE_TAG = "lookalike_tag"  # a tag of characters that only look like the right ones, or with invisible ones inside
    MALFORMED = "malformed"  # a parser of one's own could not read the answer
    UNKNOWN_ACTION = "unknown_action"  # at least one action name the environment does not know
    LOOKALIKE_ACTION = "lookalike_action"  # the same, and each of them looks like a name that it does know
    TOO_MANY_ACTIONS = "too_many_actions"  # more actions than a turn may hold
    NOT_JSON = "not_json"  # tool calls: broken off, or no JSON at all
    BAD_NUMBER = "bad_number"  # tool calls: a number that is not finite, or that no float can hold
    DUPLICATE_KEY = "duplicate_key"  # tool calls: a key twice in one object
    TOO_DEEP = "too_deep"  # tool calls: nested beyond every use
    TOO_LONG = "too_long"  # tool calls: longer than every use
    NOT_A_CALL = "not_a_call"  # tool calls: JSON, but neither a call nor a list of calls
    BAD_ARGUMENTS = "bad_arguments"  # tool calls: arguments that the tool does not take
    UNKNOWN_TOOL = "unknown_tool"  # tool calls: another tool than the one there is


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Everything an engine needs to know to sample one reply; no field is ever filled from a checkpoint's own settings."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # (0, 1]
    top_k: int = 0  # 0 is off
    stop_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    seed: tuple[int, ...] = (0,)  # entropy of this request's own random stream


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Tokens of one request, as the server that answered it counted them."""

    num_prompt: int  # with whatever its chat template writes
    num_sampled: int  # with thoughts that it keeps to itself


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled reply, exactly as sampled: ids include the stop token, log-probs are of the distribution sampled from.

    Of a policy that writes text, the ids are those of a `TextChat` and the log-probs 0: for evaluation alone.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: int
    counted: Counted | None = None

    def __post_init__(self) -> None:
        assert len(self.ids) == len(self.logprobs), (len(self.ids), len(self.logprobs))


def digest_of(ids: Sequence[int] | IdsT, logprobs: Sequence[float] | FloatT) -> str:
    """Checksum of a completion where it was sampled, 16 hexadecimal digits; the same for tuples and for arrays.

    `ids` are those of its segment from the first one to the completion's last, `logprobs` those of the completion alone.
    """
    digest = hashlib.blake2b(np.asarray(ids, dtype=np.int32).tobytes(), digest_size=8)
    digest.update(np.asarray(logprobs, dtype=np.float32).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class EpisodeKey:
    """Where a trajectory stands in the run; every random stream of it is a function of this and the run seed."""

    split: Split
    step: int
    group: int
    member: int
    environment: str  # the tag under which the environment is configured
    task_seed: int  # shared by the group: the initial state
    dynamics_seed: int  # the member's own: what chance does afterwards
    attempt: int = 0  # above 0: played in the place of a member whose infrastructure failed, with another dynamics seed


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the environment answers to a reset or to the actions of one turn."""

    text: str
    instruction: str = ""  # task text; only set by reset
    reward: float = 0.0  # sum over the actions executed in this turn
    executed: tuple[str, ...] = ()  # actions that reached the environment, in order
    rejected: tuple[str, ...] = ()  # parsed names that the environment does not know
    terminated: bool = False
    truncated: bool = False  # the environment's own limit, not ours
    success: bool = False
    actions_left: int = 0  # of the trajectory's action budget
    info: Mapping[str, float] = field(default_factory=dict)  # numbers after the turn's last action; "effective" counts actions


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A completion read as text: what the parser made of it."""

    text: str  # decoded ids, cut at the stop text, with the reply prefix (such as '<think>') in front
    thought: str
    actions: tuple[str, ...]  # stripped names, in order; empty unless the answer could be read
    verdict: Verdict
    feedback: str = ""  # what a parser of one's own says about it to the model, in place of the usual line


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One model reply and what came of it. [start, stop) is the span of the sampled ids on the T axis of its segment."""

    segment: int = 0  # index into the trajectory's segments
    start: int
    stop: int
    observation: str  # what the agent read before replying
    state: str = ""  # the environment's part of it alone, without budgets, feedback or history
    reply: Reply
    executed: tuple[str, ...]
    reward: float  # from the environment
    format_penalty: float  # 0 or negative, never shown to the model
    finish_reason: FinishReason
    policy_version: int
    info: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)  # weighted, by name, once credit has mixed in other rewards
    digest: str = ""  # `digest_of` prompt and completion when it arrived; what is trained is compared with it

    @property
    def total_reward(self) -> float:
        """What this turn adds to the return: its parts, or reward plus format penalty where nothing was mixed in."""
        return float(sum(self.parts.values())) if self.parts else self.reward + self.format_penalty


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the model wrote for itself when its history was about to get too long; the next segment starts from it."""

    segment: int  # index into the trajectory's segments
    start: int  # [start, stop) on the T axis of that segment
    stop: int
    num_turns: int  # turns before it
    text: str
    trained: bool  # whether its tokens are trained like those of a reply
    finish_reason: FinishReason
    policy_version: int
    digest: str = ""  # as of a turn


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One message of a chat as text."""

    role: str  # system, user or assistant
    content: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Segment:
    """One token sequence that the policy saw and wrote: a prompt, then in turn what it sampled and what it read next.

    A trajectory has a single one where turns are appended to each other. It has several where the prompt is built anew on the
    way: by a context mode that forgets, or a chat template that rewrites earlier turns.
    """

    ids: IdsT  # [T]; UNKNOWN_ID throughout if the policy read and wrote text
    mask: MaskT  # [T], True exactly where the engine sampled the id
    logprobs: FloatT  # [T], engine log-probs; 0 where mask is False
    prompt: tuple[ChatMessage, ...] = ()  # the chat that its first prompt renders; empty where the ids were not made of one

    def __post_init__(self) -> None:
        shapes = (self.ids.shape, self.mask.shape, self.logprobs.shape)
        assert self.ids.ndim == 1 and len(set(shapes)) == 1, shapes

    def __repr__(self) -> str:
        """Without the numbers, which nobody reads: `asyncio.run` of Python 3.11 forms the repr of its result, a whole rollout."""
        return f"{type(self).__name__}({len(self.ids)} tokens, {self.num_sampled} of them sampled)"

    @property
    def has_ids(self) -> bool:
        """False for an episode of a policy that wrote text: its tokens are counted, but nobody knows which they were."""
        return UNKNOWN_ID not in self.ids

    @property
    def num_sampled(self) -> int:
        """Number of sampled tokens."""
        return int(self.mask.sum())

    @property
    def prompt_length(self) -> int:
        """Number of ids before the first sampled one; the whole length if nothing was sampled."""
        return int(self.mask.argmax()) if self.mask.any() else len(self.ids)


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One episode from reset to end, as the token sequences that the policy saw and wrote."""

    key: EpisodeKey
    segments: tuple[Segment, ...]  # at least one, in the order of time
    turns: tuple[Turn, ...]
    summaries: tuple[Summary, ...] = ()
    final_observation: str
    end_reason: EndReason
    success: bool
    truncated: bool = False  # ended by a limit that the agent could not know, so that more reward might have followed
    error: str = ""  # one line, for the infrastructure end reasons

    @property
    def rewards(self) -> float:
        """Sum of the environment's rewards."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def format_penalties(self) -> float:
        return float(sum(turn.format_penalty for turn in self.turns))

    @property
    def return_(self) -> float:
        """What StarPO optimises: rewards plus format penalties, or the weighted parts that credit made of them."""
        if not any(turn.parts for turn in self.turns):
            return self.rewards + self.format_penalties
        return float(sum(turn.total_reward for turn in self.turns))

    @property
    def num_actions(self) -> int:
        return sum(len(turn.executed) for turn in self.turns)

    @property
    def num_sampled(self) -> int:
        """Number of sampled tokens, summaries included."""
        return sum(segment.num_sampled for segment in self.segments)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The trajectories that share an initial state.

    Infrastructure failures are kept apart in `failed`, replaced or not, and never scored; `abstained` are those that no reward
    function would judge.
    """

    trajectories: tuple[Trajectory, ...]
    failed: tuple[Trajectory, ...] = ()
    abstained: tuple[Trajectory, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One trained token sequence, a segment of a trajectory, with its advantage per token."""

    trajectory: Trajectory
    segment: int = 0  # index into the trajectory's segments
    advantages: FloatT  # [T]; only positions with mask True are read

    def __post_init__(self) -> None:
        assert self.advantages.shape == self.ids.shape, (self.advantages.shape, self.ids.shape)

    @property
    def tokens(self) -> Segment:
        return self.trajectory.segments[self.segment]

    @property
    def ids(self) -> IdsT:
        """[T]"""
        return self.tokens.ids

    @property
    def logprobs(self) -> FloatT:
        """[T]"""
        return self.tokens.logprobs

    @property
    def prompt_length(self) -> int:
        """Number of ids before the first sampled one."""
        return self.tokens.prompt_length

    @cached_property
    def mask(self) -> MaskT:
        """[T], True where a token is trained: where it was sampled, but for summaries that are not to be trained."""
        untrained = [each for each in self.trajectory.summaries if each.segment == self.segment and not each.trained]
        if not untrained:
            return self.tokens.mask
        mask = self.tokens.mask.copy()
        for summary in untrained:
            mask[summary.start : summary.stop] = False
        return mask

    def with_logprobs(self, logprobs: FloatT) -> Sample:
        """The same sample with other log-probs [T] of its tokens."""
        segments = list(self.trajectory.segments)
        segments[self.segment] = replace(self.tokens, logprobs=logprobs)
        return replace(self, trajectory=replace(self.trajectory, segments=tuple(segments)))
