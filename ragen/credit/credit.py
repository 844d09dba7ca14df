"""What an estimator answers for one trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragen.credit.config import AdvantageConfig
from ragen.credit.view import FloatS, TrajectoryView


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Advantages of the trained tokens of one trajectory, and what its critic should have said, if there is one."""

    advantages: FloatS  # [S]
    targets: FloatS | None = None  # [S]


Estimator = Callable[[Sequence[TrajectoryView], AdvantageConfig], list[Credit]]
