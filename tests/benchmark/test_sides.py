"""Who is measured, in what order, and what becomes of a side that cannot do the work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ragen.benchmark import sides
from ragen.benchmark.sides import OWN, Side, SideFailure, alternate, find_peer, parse_peers
from ragen.benchmark.work import Answer, CeilingsWork
from ragen.errors import ConfigError
from tests.support.benchmarks import peer, saying

WORK = CeilingsWork(model="m", dtype="float32", threads=3, repeats=1, products=((1, 2, 3),))
ANSWER: dict[str, object] = {"package": "peer 1.0", "seconds": [2.0], "num_tokens": 8, "peak_bytes": 5}


def test_a_peer_reads_the_work_and_its_last_line_is_the_answer(tmp_path: Path) -> None:
    body = "import os\nprint('hello')\nprint(json.dumps({'package': work['dtype'], 'seconds': [1, 2], 'num_tokens': "
    body += "work['products'][0][2], 'peak_bytes': int(os.environ['OMP_NUM_THREADS'])}))"
    answer = peer(tmp_path, body).ask(WORK)
    assert answer == Answer(package="float32", seconds=(1.0, 2.0), num_tokens=3, peak_bytes=3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import nothing_of_that_name", "vllm: exit code 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("print('done')", "vllm: its last line is no answer: 'done'"),
        ("print('{}')", "vllm: its last line is no answer: '{}'"),
    ],
)
def test_a_side_that_fails_says_why_in_one_line(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SideFailure) as raised:
        peer(tmp_path, body).ask(WORK)
    assert str(raised.value) == message


class Recorded(Side):
    """Answers from memory, and writes down that it was asked."""

    def ask(self, work: sides.AnyWork) -> Answer:
        self.log.append(self.name)
        if self.name == "broken":
            raise SideFailure("broken: it does not run")
        return Answer(package=self.name, seconds=(float(len(self.log)),), num_tokens=1, peak_bytes=len(self.log))

    log: list[str]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(Recorded, "log", asked, raising=False)
    return asked


def test_sides_take_turns_and_all_rounds_count(log: list[str]) -> None:
    both = [Recorded(name=OWN, command=()), Recorded(name="vllm", command=())]
    timings, failed = alternate(both, WORK, 3, lambda line: None)
    assert log == [OWN, "vllm", OWN, "vllm", OWN, "vllm"]
    assert failed == {}
    assert (timings[OWN].seconds, timings["vllm"].seconds) == ((1.0, 3.0, 5.0), (2.0, 4.0, 6.0))
    own = timings[OWN]
    assert (own.median_s, own.peak_bytes, own.spread) == (3.0, 3, (5 - 1) / 3)


def test_a_peer_that_fails_is_left_out_and_the_others_go_on(log: list[str]) -> None:
    both = [Recorded(name=OWN, command=()), Recorded(name="broken", command=())]
    timings, failed = alternate(both, WORK, 2, lambda line: None)
    assert (list(timings), failed) == ([OWN], {"broken": "broken: it does not run"})
    assert log == [OWN, "broken", OWN]


def test_our_own_failure_is_not_skipped(tmp_path: Path) -> None:
    with pytest.raises(SideFailure, match="ragen: exit code 1"):
        alternate([peer(tmp_path, "raise SystemExit(1)", name=OWN)], WORK, 1, lambda line: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of benchmarks with a script for vLLM and nothing else; no variable names an environment."""
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "vllm_rollout.py").touch()
    monkeypatch.setattr(sides, "FOLDER", tmp_path)
    monkeypatch.delenv("RAGEN_BENCH_VLLM", raising=False)
    return tmp_path


def test_an_interpreter_is_given_or_named_by_a_variable_or_made_by_the_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(**given: str) -> str:
        side = find_peer("vllm", "rollout", given)
        assert isinstance(side, Side), side
        return side.command[0]

    made = folder / ".venv-vllm" / "bin" / "python"
    made.parent.mkdir(parents=True)
    made.touch()
    assert chosen() == str(made)
    (folder / "other").touch()
    monkeypatch.setenv("RAGEN_BENCH_VLLM", str(folder / "other"))
    assert chosen() == str(folder / "other")
    assert chosen(vllm=sys.executable) == sys.executable


def test_a_peer_without_an_environment_is_skipped_with_a_line_that_says_what_to_do(folder: Path) -> None:
    assert find_peer("vllm", "rollout", {}) == (
        "vllm: no environment; make one with benchmarks/make_peers.sh vllm, or name one: --peer vllm=PYTHON"
    )
    assert find_peer("vllm", "rollout", {"vllm": "/no/such/python"}) == "vllm: /no/such/python is not there"
    missing = find_peer("trl", "step", {})
    assert isinstance(missing, str)
    assert missing.endswith("is not there; benchmarks run from a checkout of the repository")


def test_the_scripts_of_all_peers_are_there_and_compile() -> None:
    for name, kinds in sides.PEERS.items():
        for kind in kinds:
            path = sides.FOLDER / "peers" / f"{name}_{kind}.py"
            compile(path.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("vlm=python", "--peer vlm=python: peers are transformers, vllm, trl; did you mean 'vllm'?"),
        ("vllm", "--peer vllm: must be vllm=PYTHON, the interpreter of an environment with vllm"),
    ],
)
def test_a_wrong_peer_is_refused(pair: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_peers([pair])
    assert str(raised.value) == message


def test_what_a_peer_says_before_its_answer_does_not_matter(tmp_path: Path) -> None:
    assert peer(tmp_path, saying(ANSWER)).ask(WORK).package == "peer 1.0"
