"""`ragen bench`: how fast the parts are, measured with the peers that are installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING

from cyclopts import App

from ragen.cli.output import Json, console, print_json, print_table, print_text

if TYPE_CHECKING:
    from ragen.environments.benchmark import Measured

NUM_LIVE = 1000  # episodes held by the state manager while it is measured

bench_app = App(name="bench", help_format="plaintext", help="Benchmarks, on this machine, with the peers that are installed.")


@bench_app.command(name="env")
def bench_env(*names: str, as_json: Json = False) -> None:
    """Steps per second and microseconds per reset on one core, text observation included, under a random agent.

    Exit code 1 if one cannot be played; of all tags, those that need an option or a package of yours do not count.

    Parameters
    ----------
    names
        tags, registered environments or module:Class of your own; default: all tags
    as_json
        print JSON
    """
    from ragen.config.environments import named, tags
    from ragen.environments.benchmark import measure_all
    from ragen.rollout.benchmark import manager_overhead

    chosen = {name: named(name)[1] for name in names or tags()}
    rows = []
    with console(stderr=True).status("measuring") as status, redirect_stdout(sys.stderr):  # what an environment itself prints
        for row in measure_all({name: (settings["name"], settings.get("options") or {}) for name, settings in chosen.items()}):
            rows.append(row)
            status.update(f"measured {row.name}")
        overhead = manager_overhead(NUM_LIVE)
    if as_json:
        print_json(
            {"environments": [asdict(row) for row in rows], "manager": asdict(overhead) | {"overhead_us": overhead.overhead_us}}
        )
    else:
        peers = [row for row in rows if row.is_peer]
        print_table(("environment", "steps/s", "us per reset", "beside"), [_cells(row, peers) for row in rows])
        print_text(f"\nthe state manager adds {overhead.overhead_us:.1f} us to a step, with {overhead.num_live:,} episodes alive")
    if any(row.speed is None and not row.is_peer and (names or not row.is_unmade) for row in rows):
        sys.exit(1)


def _cells(row: Measured, peers: Sequence[Measured]) -> tuple[str, str, str, str]:
    """One line of the table; beside an environment of ours how many times faster it is than its peers."""
    if row.speed is None:
        return row.name, "-", "-", row.problem
    ratios = [
        f"{peer.name}: {row.speed.steps_per_s / peer.speed.steps_per_s:.1f} x the steps, "
        f"{peer.speed.reset_us / row.speed.reset_us:.1f} x the resets"
        for peer in peers
        if peer.game == row.game and peer.speed is not None and not row.is_peer
    ]
    return row.name, f"{row.speed.steps_per_s:,.0f}", f"{row.speed.reset_us:,.0f}", "\n".join(ratios)
