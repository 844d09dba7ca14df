"""`ragen bench`: how fast the parts are, measured with the peers that are installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ragen.cli.output import Flag, Json, Repeated, console, print_json, print_table, print_text

if TYPE_CHECKING:
    from ragen.benchmark.report import Report
    from ragen.benchmark.suite import Options
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
    from ragen.environments.benchmark import measure_all, speed_ratios
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
            {
                "environments": [asdict(row) for row in rows],
                "manager": asdict(overhead) | {"overhead_us": overhead.overhead_us},
                "ratios": {"published_env": speed_ratios(rows)},
            }
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What `rollout`, `step` and `update` share.

    Parameters
    ----------
    model
        an alias, a folder or a hub id
    threads
        of every side; default: the cores that this process may use
    rounds
        fresh processes per side, in turn: ours, theirs, ours, theirs
    repeats
        timed in each process, after one that is not
    peer
        NAME=PYTHON, the interpreter of an environment with transformers, vllm or trl; may be repeated. Otherwise
        RAGEN_BENCH_<NAME>, or what benchmarks/make_peers.sh has made; a peer without any is skipped
    quick
        small sizes, to see that everything works
    as_json
        print JSON
    picture
        also draw the figures into this PNG file
    """

    model: str = "smollm2-135m"
    threads: int | None = None
    rounds: int = 2
    repeats: int = 3
    peer: Repeated = None
    quick: Flag = False
    as_json: Json = False
    picture: Annotated[Path | None, Parameter(negative="")] = None


@bench_app.command(name="rollout")
def bench_rollout(*, common: Common | None = None) -> None:
    """Sample replies end to end: groups of one turn, and five turns of Sokoban; beside transformers and vLLM on the CPU.

    Every side reads the same prompts and samples as many tokens. Also: decode steps against what the machine can do, and our
    environments beside published ones that are installed here.
    """
    _bench("rollout", common or Common())


@bench_app.command(name="step")
def bench_step(*, common: Common | None = None) -> None:
    """Take whole GRPO steps on the bandit: sampling, reward and update, seconds and peak memory; beside TRL."""
    _bench("step", common or Common())


@bench_app.command(name="update")
def bench_update(*, common: Common | None = None) -> None:
    """Take updates alone: against the matrix rate of the machine, and how the time grows with the group over one prompt."""
    _bench("update", common or Common())


def _bench(name: str, common: Common) -> None:
    from ragen.benchmark import suite
    from ragen.benchmark.report import HEADER, lines, table_rows

    benchmark: Callable[[Options, Callable[[str], None]], Report] = getattr(suite, f"bench_{name}")
    with console(stderr=True).status("starting") as status:
        report = benchmark(_options(common), lambda line: status.update(line))
    if common.picture is not None:
        from ragen.benchmark.picture import draw

        draw(report, common.picture)
    if common.as_json:
        print_json(report.to_json())
        return
    print_table(HEADER, table_rows(report))
    print_text("\n" + "\n".join(lines(report)))


def _options(common: Common) -> Options:
    from ragen.benchmark.machine import usable_cores
    from ragen.benchmark.sides import parse_peers
    from ragen.benchmark.sizes import FULL, QUICK
    from ragen.benchmark.suite import Options

    return Options(
        model=common.model,
        threads=common.threads if common.threads is not None else usable_cores(),
        rounds=common.rounds,
        repeats=common.repeats,
        peers=parse_peers(common.peer or ()),
        sizes=QUICK if common.quick else FULL,
    )
