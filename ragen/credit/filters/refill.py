"""Which groups to play in the place of those that were dropped. The trainer plays them, the state manager knows their seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragen.credit.filters.config import FilterConfig
from ragen.credit.filters.selection import Selection


def tags_to_add(selection: Selection, tags: Sequence[str], config: FilterConfig, *, num_planned: int) -> list[str]:
    """The environment tags of the groups to play next, one a group; none if the batch is full or the budget used up.

    `tags` are those of the groups played so far, the first `num_planned` as the step had planned them. As many groups are
    added as are missing, each of the tag that is furthest behind its planned share of the kept groups; of equals, the one
    planned first.
    Source: Yu et al. 2025 (DAPO, arXiv 2503.14476), "dynamic sampling". Differs from the paper: the budget is finite.
    """
    num_missing = selection.num_wanted - len(selection.kept)
    budget_left = config.num_extra(num_planned) - (len(tags) - num_planned)
    planned = Counter(tags[:num_planned])
    kept = Counter(tags[position] for position in selection.kept)
    added: list[str] = []
    for _ in range(min(num_missing, budget_left)):
        tag = max(planned, key=lambda each: planned[each] * selection.num_wanted / num_planned - kept[each])
        kept[tag] += 1
        added.append(tag)
    return added
