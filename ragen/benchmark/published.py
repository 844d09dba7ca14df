"""Our environments beside published ones of the same game, where those are installed (see `ragen bench env`)."""

from __future__ import annotations

import importlib.util

from ragen.benchmark.report import PUBLISHED_ENV, Ratio
from ragen.config.environments import named
from ragen.environments.benchmark import PEERS, measure_all, speed_ratios


def environment_ratios() -> tuple[list[Ratio], dict[str, str]]:
    """Measure every game that has a peer here; also says which peers are not."""
    games = {peer.game: named(peer.game)[1] for peer in PEERS if importlib.util.find_spec(peer.package) is not None}
    absent = [f"{peer.name} (pip install {peer.package.replace('_', '-')})" for peer in PEERS if peer.game not in games]
    rows = list(measure_all({game: (values["name"], values.get("options") or {}) for game, values in games.items()}))
    ratios = [Ratio(peer=PUBLISHED_ENV, what=what, value=value) for what, value in speed_ratios(rows).items()]
    skipped = {PUBLISHED_ENV: f"{PUBLISHED_ENV}: not installed here: {', '.join(absent)}"} if absent else {}
    return ratios, skipped
