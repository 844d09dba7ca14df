"""The settings of a held-out evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragen.errors import ConfigError

# Of each environment. All of them are put in line before the first is played and kept in memory until the last has ended: a slip
# of the keyboard would fill it without a word. With as many, a success rate is known to 0.1 points (95 %), which no policy needs.
MAX_EPISODES = 1_000_000


@dataclass(kw_only=True)
class EvaluationConfig:
    """Which held-out episodes are played, how replies are sampled (as in the paper: 256, temperature 0.5), and when."""

    num_episodes: int = 256  # held-out task seeds per environment tag
    samples_per_seed: int = 1  # episodes from each of these seeds, for pass@k; they differ in chance and in what is sampled
    temperature: float = 0.5  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    before_training: bool = True  # measure the untrained model too, for the table "before / after"
    every: int = 0  # training steps between evaluations; 0 evaluates before and after training only
    beside: bool = False  # each of them in a process of its own while the next step is played; needs room for a second model
    suites: list[str] = field(default_factory=list)  # played at each of these evaluations too: names or files, `ragen suites`
    show_episodes: int = 4  # per environment, shown as text by the trackers at each evaluation in training; 0 is none

    def check(self) -> None:
        """Raise ConfigError for a value out of range. Whether the suites are there is checked with the whole configuration."""
        for key in ("num_episodes", "samples_per_seed"):
            if getattr(self, key) < 1:
                raise ConfigError(f"evaluation.{key}={getattr(self, key)}: must be at least 1")
            if getattr(self, key) > MAX_EPISODES:
                raise ConfigError(f"evaluation.{key}={getattr(self, key)}: must be at most {MAX_EPISODES}")
        if (num_played := self.num_episodes * self.samples_per_seed) > MAX_EPISODES:
            raise ConfigError(
                f"evaluation.samples_per_seed={self.samples_per_seed}: with evaluation.num_episodes={self.num_episodes} that is "
                f"{num_played} episodes of each environment; must be at most {MAX_EPISODES}"
            )
        if not self.temperature >= 0:
            raise ConfigError(f"evaluation.temperature={self.temperature}: must be at least 0 (0 is greedy)")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"evaluation.top_p={self.top_p}: must lie in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"evaluation.top_k={self.top_k}: must be at least 0 (0 is off)")
        for key in ("every", "show_episodes"):
            if getattr(self, key) < 0:
                raise ConfigError(f"evaluation.{key}={getattr(self, key)}: must be at least 0")
        if self.beside and not self.every:
            raise ConfigError("evaluation.beside=true: has no effect with evaluation.every=0; set evaluation.every=N")
        if len(set(self.suites)) < len(self.suites):
            raise ConfigError(f"evaluation.suites={self.suites}: names a suite twice")
