"""What a person may set about the context: how the model has to answer, what it reads, what it forgets."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ragen.errors import ConfigError, near_match
from ragen.rollout.memory import MODES, load_memory, load_summariser
from ragen.rollout.replies import ReplyConfig

OVERFLOWS = ("end", "drop", "summarise")
MODEL = "model"  # the one that writes summaries by default


@dataclass(kw_only=True)
class ContextConfig(ReplyConfig):
    """What the model sees and how it has to answer. docs/context.md shows what each of these does to a prompt."""

    show_reward: bool = True  # tell the model the environment's reward of its last turn
    show_return: bool = False  # and the sum of its rewards so far
    show_budget: bool = True  # announce turns and actions left; a limit that is not announced truncates
    show_turn: bool = False  # number the turns
    max_context_tokens: int = 2048  # of one prompt with its reply, and of a whole trajectory while nothing is forgotten
    max_observation_chars: int = 8000  # longer observations are cut before they are encoded
    mode: str = "full"  # what a prompt shows: full, window, single_turn, or a memory of your own as "module:Class"
    window: int = 4  # turns that window and single_turn show, the current one included
    overflow: str = "end"  # where the next reply would not fit: end the trajectory, drop the oldest turns, or summarise them
    summarise_every: int = 0  # with overflow=summarise: also after so many turns; 0 is only where it has to be
    summariser: str = MODEL  # who writes summaries: the model, or a function of your own as "module:function"
    summary_tokens: int = 64  # of a summary that the model writes
    train_summaries: bool = True  # train the model's summaries like its replies

    def check(self) -> None:
        """Raise ConfigError for a value out of range or without effect."""
        self._check_choice("overflow", OVERFLOWS)
        if ":" not in self.mode:
            self._check_choice("mode", MODES)
        for key in ("max_context_tokens", "max_observation_chars", "window", "summary_tokens"):
            if getattr(self, key) < 1:
                raise ConfigError(f"rollout.context.{key}={getattr(self, key)}: must be at least 1")
        if self.summarise_every < 0:
            raise ConfigError(f"rollout.context.summarise_every={self.summarise_every}: must be at least 0 (0 is where needed)")
        if self.show_return and not self.show_reward:
            raise ConfigError("rollout.context.show_return=true: goes with rollout.context.show_reward=true")
        if self.overflow == "summarise" and self.mode != "full":
            raise ConfigError(
                f"rollout.context.overflow=summarise: replaces a full history; set rollout.context.mode=full, not {self.mode}"
            )
        self._check_effect()
        load_memory(self.mode, self.window)
        if self.summariser != MODEL:
            load_summariser(self.summariser)
        self.check_replies("rollout.context")

    @property
    def asks_for_summaries(self) -> bool:
        """Whether the model itself writes summaries."""
        return self.overflow == "summarise" and self.summariser == MODEL

    def _check_choice(self, key: str, known: tuple[str, ...]) -> None:
        value = getattr(self, key)
        if value not in known:
            raise ConfigError(f"rollout.context.{key}={value!r}: must be one of {', '.join(known)}{near_match(value, known)}")

    def _check_effect(self) -> None:
        """A setting that only acts beside another one is refused without it."""
        defaults = {f.name: f.default for f in fields(ContextConfig)}
        idle = []
        if self.mode not in ("window", "single_turn"):
            idle.append(("window", "rollout.context.mode=window or single_turn"))
        if self.overflow != "summarise":
            idle += [(key, "rollout.context.overflow=summarise") for key in ("summarise_every", "summariser")]
        if not self.asks_for_summaries:
            idle += [
                (key, "rollout.context.overflow=summarise and summariser=model") for key in ("summary_tokens", "train_summaries")
            ]
        for key, needs in idle:
            if getattr(self, key) != defaults[key]:
                raise ConfigError(f"rollout.context.{key}={getattr(self, key)}: has no effect without {needs}")
