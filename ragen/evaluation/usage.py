"""What episodes have used: requests, tokens and, where prices are known, money. Read off the trajectories themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragen.engines.budget import Usage
from ragen.engines.server_config import ServerConfig
from ragen.records import Group, Trajectory


def usage_of(groups: Sequence[Group], server: ServerConfig) -> Usage:
    """Count the replies of `groups`: a reply's prompt is all that stands before it in its segment."""
    spans = [span for group in groups for span in _spans((*group.trajectories, *group.abstained, *group.failed))]
    num_prompt, num_sampled = sum(start for start, _ in spans), sum(stop - start for start, stop in spans)
    return Usage(
        num_requests=len(spans),
        num_prompt_tokens=num_prompt,
        num_sampled_tokens=num_sampled,
        cost=server.cost(num_prompt, num_sampled),
    )


def _spans(trajectories: Iterable[Trajectory]) -> Iterable[tuple[int, int]]:
    for trajectory in trajectories:
        yield from ((turn.start, turn.stop) for turn in trajectory.turns)
        yield from ((summary.start, summary.stop) for summary in trajectory.summaries)
