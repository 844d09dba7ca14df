"""An environment that fails in every way there is, now and then: raises, hangs, answers nonsense, ends its own process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
from ragen.errors import ConfigError

HUGE = 5_000_000  # characters
HARMLESS = ("raise", "hang", "none", "number", "huge")  # whatever the place
EXIT = "exit"


@dataclass(kw_only=True)
class FlakyConfig(TextEnvConfig):
    fault_frac: float = option(0.02, "share of the episodes that fail, 0 to 1")
    hang_s: float = option(3.0, "seconds that a hanging one takes")
    faults: list[str] = option([*HARMLESS], f"which, of {', '.join((*HARMLESS, EXIT))}; the last only with runs_in=process")

    def check(self) -> None:
        for fault in self.faults:
            if fault not in (*HARMLESS, EXIT):
                raise ConfigError(f"faults={self.faults}: must be of {', '.join((*HARMLESS, EXIT))}")
        if not self.faults:
            raise ConfigError("faults=[]: must name at least one")
        if not 0 <= self.fault_frac <= 1:
            raise ConfigError(f"fault_frac={self.fault_frac}: must be within 0..1")
        if not self.hang_s > 0:
            raise ConfigError(f"hang_s={self.hang_s}: must be above 0")


class Flaky(TextEnv):
    """Say go: one action, one point. What fails and how follows from the dynamics seed, so a replacement may go well."""

    Config = FlakyConfig
    config: FlakyConfig

    def _begin(self) -> Any:
        self.instruction, self.action_names = "Say go.", ("go",)
        if self.dynamics_random.random() >= self.config.fault_frac:
            return "Ready."
        return self._fail(self.config.faults[int(self.dynamics_random.integers(len(self.config.faults)))])

    def _play(self, action: str) -> StepAnswer:
        return "Gone.", 1.0, True, False, {"success": True, "effective": True}

    def _fail(self, fault: str) -> Any:
        match fault:
            case "raise":
                raise RuntimeError("broken on purpose")
            case "hang":
                time.sleep(self.config.hang_s)
                return "Ready at last."
            case "none":
                return None
            case "number":
                return float("nan")
            case "huge":
                return "x" * HUGE
        os._exit(3)
