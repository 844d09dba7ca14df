"""Who is measured: this package and its peers, each a program in an interpreter of its own, turn and turn about."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from ragen.benchmark.work import Answer, CeilingsWork, RolloutWork, StepWork, answer_from_json
from ragen.errors import ConfigError, RagenError, near_match

AnyWork = RolloutWork | StepWork | CeilingsWork

OWN = "ragen"
FOLDER = Path(__file__).parents[2] / "benchmarks"  # of the repository; an installed package has none
TIMEOUT_S = 3600.0


class SideFailure(RagenError):
    """A side could not do the work. Of a peer it means that it is left out, of our own that the benchmark fails."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A program that does pieces of work."""

    name: str
    command: tuple[str, ...]  # the work's file comes behind it

    def ask(self, work: AnyWork) -> Answer:
        """Start the program for this piece of work and wait for its answer. Raises SideFailure, in one line."""
        with tempfile.TemporaryDirectory(prefix="ragen-bench-") as folder:
            path = Path(folder, "work.json")
            path.write_text(json.dumps(asdict(work)), encoding="utf-8")
            try:
                done = subprocess.run(
                    [*self.command, str(path)],
                    capture_output=True,
                    text=True,
                    cwd=folder,
                    env=environment(work.threads),
                    timeout=TIMEOUT_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SideFailure(f"{self.name}: {error}") from None
        return self._answer(done)

    def _answer(self, done: subprocess.CompletedProcess[str]) -> Answer:
        """The last line of the output; libraries may have talked before."""
        last = done.stdout.strip().rpartition("\n")[2]
        if done.returncode != 0:
            reason = done.stderr.strip().rpartition("\n")[2] or last
            raise SideFailure(f"{self.name}: exit code {done.returncode}: {reason}")
        try:
            return answer_from_json(json.loads(last))
        except (ValueError, KeyError, TypeError):
            raise SideFailure(f"{self.name}: its last line is no answer: {last[:200]!r}") from None


def environment(threads: int) -> dict[str, str]:
    """As many threads for every side, and no network: models are on this disk."""
    fixed = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    return {**os.environ, **fixed}


def own_side() -> Side:
    return Side(name=OWN, command=(sys.executable, "-m", "ragen.benchmark.native"))


PEERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {  # peer -> its scripts in benchmarks/peers, by kind of work
        "transformers": ("rollout",),
        "vllm": ("rollout",),
        "trl": ("step",),
    }
)


def find_peer(name: str, kind: str, given: Mapping[str, str]) -> Side | str:
    """The peer as a side, or why it is skipped.

    Its interpreter: from `given`, from the variable RAGEN_BENCH_<NAME>, or benchmarks/.venv-<name>, which
    benchmarks/make_peers.sh makes. transformers is what we run on ourselves, so it is measured in this interpreter by default.
    """
    script = FOLDER / "peers" / f"{name}_{kind}.py"
    if not script.exists():
        return f"{name}: {script} is not there; benchmarks run from a checkout of the repository"
    variable, own_environment = f"RAGEN_BENCH_{name.upper()}", FOLDER / f".venv-{name}" / "bin" / "python"
    chosen = given.get(name) or os.environ.get(variable) or (str(own_environment) if own_environment.exists() else "")
    if not chosen and name == "transformers":
        chosen = sys.executable
    if not chosen:
        return f"{name}: no environment; make one with benchmarks/make_peers.sh {name}, or name one: --peer {name}=PYTHON"
    if not Path(chosen).is_file():
        return f"{name}: {chosen} is not there"
    return Side(name=name, command=(chosen, str(script)))


def parse_peers(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=PYTHON for each. Raises ConfigError for an unknown peer or one without a path."""
    given = {}
    for pair in pairs:
        name, _, python = pair.partition("=")
        if name not in PEERS:
            raise ConfigError(f"--peer {pair}: peers are {', '.join(PEERS)}{near_match(name, PEERS)}")
        if not python:
            raise ConfigError(f"--peer {pair}: must be {name}=PYTHON, the interpreter of an environment with {name}")
        given[name] = python
    return given


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one side took, over all rounds."""

    side: str
    package: str
    seconds: tuple[float, ...]
    num_tokens: int
    peak_bytes: int  # the median over processes
    answers: tuple[Answer, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.median_s

    @property
    def spread(self) -> float:
        """Slowest minus fastest, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s


def alternate(
    sides: Sequence[Side], work: AnyWork, rounds: int, say: Callable[[str], None]
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Each side once in every round, in the same order: what else the machine does then meets all of them alike.

    Returns the timings by side, and why a peer has none. Raises SideFailure if it is our own that fails.
    """
    answers: dict[str, list[Answer]] = {side.name: [] for side in sides}
    failed: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for side in sides:
            if side.name in failed:
                continue
            say(f"{side.name}, round {number} of {rounds}")
            try:
                answers[side.name].append(side.ask(work))
            except SideFailure as failure:
                if side.name == OWN:
                    raise
                failed[side.name] = str(failure)
    return {name: _timing(name, given) for name, given in answers.items() if name not in failed}, failed


def _timing(side: str, answers: Sequence[Answer]) -> Timing:
    return Timing(
        side=side,
        package=answers[0].package,
        seconds=tuple(seconds for answer in answers for seconds in answer.seconds),
        num_tokens=answers[0].num_tokens,
        peak_bytes=int(statistics.median(answer.peak_bytes for answer in answers)),
        answers=tuple(answers),
    )
