"""What a benchmark found: raw figures, ratios by peer, shares of the machine's ceilings; as JSON and as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ragen.benchmark.machine import Machine
from ragen.benchmark.sides import OWN, PEERS, Timing

PUBLISHED_ENV = "published_env"
RATIO_KEYS = (*PEERS, PUBLISHED_ENV)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times better we are than a peer: its seconds or bytes over ours, or our steps per second over its."""

    peer: str
    what: str  # the workload, with a suffix if it is not seconds that are compared
    value: float


@dataclass(frozen=True, kw_only=True)
class Share:
    """A measured rate as a share of a ceiling of the machine."""

    what: str
    measured: float
    ceiling: float
    unit: str

    @property
    def value(self) -> float:
        return self.measured / self.ceiling


@dataclass(frozen=True, kw_only=True)
class Result:
    """One workload: who took how long."""

    name: str
    what: str  # in words
    timings: tuple[Timing, ...]

    def ratios(self) -> list[Ratio]:
        """Of the medians of seconds, against every peer that did the same work."""
        by_side = {timing.side: timing for timing in self.timings}
        if OWN not in by_side:
            return []
        own = by_side.pop(OWN)
        return [Ratio(peer=name, what=self.name, value=timing.median_s / own.median_s) for name, timing in by_side.items()]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one `ragen bench` found."""

    benchmark: str  # rollout, update or step
    machine: Machine
    model: str
    dtype: str
    threads: int
    results: tuple[Result, ...]
    shares: tuple[Share, ...] = ()
    more_ratios: tuple[Ratio, ...] = ()  # beside those of the results' seconds
    skipped: Mapping[str, str] = field(default_factory=dict)  # peer -> why
    ceilings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)  # what else was measured, by name

    @property
    def ratios(self) -> dict[str, dict[str, float]]:
        """By peer, then by what was compared; a peer that was not measured has none."""
        table: dict[str, dict[str, float]] = {peer: {} for peer in RATIO_KEYS}
        for ratio in (*(ratio for result in self.results for ratio in result.ratios()), *self.more_ratios):
            table[ratio.peer][ratio.what] = ratio.value
        return table

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "machine": asdict(self.machine) | {"ceilings": dict(self.ceilings)},
            "model": self.model,
            "dtype": self.dtype,
            "threads": self.threads,
            "workloads": [_workload_json(result) for result in self.results],
            "efficiency": {
                share.what: {"share": share.value, "measured": share.measured, "ceiling": share.ceiling, "unit": share.unit}
                for share in self.shares
            },
            "figures": dict(self.figures),
            "ratios": self.ratios,
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
        }


def _workload_json(result: Result) -> dict[str, Any]:
    sides = [
        {
            "side": timing.side,
            "package": timing.package,
            "seconds": list(timing.seconds),
            "median_s": timing.median_s,
            "num_tokens": timing.num_tokens,
            "tokens_per_s": timing.tokens_per_s,
            "peak_bytes": timing.peak_bytes,
            "details": [dict(answer.details) for answer in timing.answers],
        }
        for timing in result.timings
    ]
    return {"name": result.name, "what": result.what, "sides": sides}


HEADER = ("workload", "side", "seconds", "spread", "tokens/s", "peak memory", "we are")


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """One row per workload and side; the last cell says how many times faster we are."""
    rows: list[tuple[str, ...]] = []
    for result in report.results:
        ratios = {ratio.peer: ratio.value for ratio in result.ratios()}
        for timing in result.timings:
            faster = f"{ratios[timing.side]:.2f} x as fast" if timing.side in ratios else ""
            rows.append(
                (
                    result.name,
                    timing.package,
                    f"{timing.median_s:.2f}",
                    f"{timing.spread:.0%}",
                    f"{timing.tokens_per_s:,.0f}",
                    f"{timing.peak_bytes / 2**30:.2f} GiB",
                    faster,
                )
            )
    return rows


def lines(report: Report) -> list[str]:
    """What the table does not hold: what the workloads are, shares of the ceilings, other ratios, notes, what was skipped."""
    return [
        *(f"{result.name}: {result.what}" for result in report.results),
        *(f"{s.what}: {_number(s.measured)} of {_number(s.ceiling)} {s.unit}, {s.value:.0%}" for s in report.shares),
        *(f"{ratio.what}: {ratio.value:.2f} x {ratio.peer}" for ratio in report.more_ratios),
        *report.notes,
        *(f"skipped: {reason}" for reason in report.skipped.values()),
    ]


def _number(value: float) -> str:
    """Three figures, with the prefixes of large rates."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:.3g} "
