"""Problems of any generator of reasoning-gym, scored by its own scorer. Described in docs/environments/reasoning_gym.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen.environments.answers.attempts import SOLVED_SCORE
from ragen.environments.answers.env import AnswerConfig, AnswerEnv, Verdict
from ragen.environments.reasoning import library
from ragen.environments.text_env import option
from ragen.errors import ConfigError


@dataclass(kw_only=True)
class ReasoningGymConfig(AnswerConfig):
    dataset: str = option("chain_sum", "name of the generator, one of reasoning-gym's hundred")
    dataset_config: dict[str, Any] = option({}, "the generator's own settings; they override those of a level")
    levels: list[int] = option([], "levels of the generator's curriculum, one drawn per task; empty: the generator's defaults")
    partial_credit: bool = option(True, "pay scores between 0 and 1; false: only the full score counts")

    @property
    def settings(self) -> str:
        """`dataset_config` as JSON text. Raises ConfigError if it holds anything else than JSON does."""
        try:
            return json.dumps(self.dataset_config, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"dataset_config={self.dataset_config}: must hold plain values ({error})") from None

    def check(self) -> None:
        super().check()
        for key in ("seed", "size"):
            if key in self.dataset_config:
                raise ConfigError(f"dataset_config.{key}: is set by the environment; leave it out")
        library.check(self.dataset, self.settings, tuple(self.levels))


class ReasoningGymEnv(AnswerEnv):
    """A generated problem. Success is the full score of the generator's scorer."""

    Config = ReasoningGymConfig
    config: ReasoningGymConfig

    def _pose(self) -> str:
        levels = self.config.levels
        seed = problem_seed(self.np_random, self.np_random_seed)
        level = levels[int(self.np_random.integers(len(levels)))] if levels else None
        self._source = library.Source(dataset=self.config.dataset, config=self.config.settings, level=level, seed=seed)
        self._problem = library.make(self._source)
        return self._problem.question

    def _judge(self, answer: str) -> Verdict:
        verdict = library.score(self._source, answer)
        if 0.0 < verdict.score < SOLVED_SCORE and not self.config.partial_credit:
            return Verdict(score=0.0)
        return verdict

    def _terms(self) -> str:
        return super()._terms() + (" A partly right answer earns a part of it." if self.config.partial_credit else "")

    def oracle_action(self) -> str | None:
        return self._problem.answer


def problem_seed(random: np.random.Generator, task_seed: int) -> int:
    """A seed below 2**32 for a generator: drawn, but as even or odd as the task seed, so training and validation seeds differ."""
    return 2 * int(random.integers(2**31)) + task_seed % 2
