"""Which groups of a rollout are trained on, and with what weight. Formulas and sources: docs/algorithms/filters.md.

Everything reads raw returns, as the trajectories hold them before any normalisation: after division by the group's own spread
all spreads are 1 and there is nothing left to choose by.
"""

from __future__ import annotations

from ragen.credit.filters.config import FilterConfig
from ragen.credit.filters.refill import tags_to_add
from ragen.credit.filters.selection import Selection, select, weigh

__all__ = ["FilterConfig", "Selection", "select", "tags_to_add", "weigh"]
