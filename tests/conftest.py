"""How every test runs: one thread, a cache of its own, no hub, reproducible properties, the real model last."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

# Before anything imports torch or huggingface_hub, which read these once: two workers on two cores need one thread each, and
# a test that silently asks the hub passes or fails with the network.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "agg"

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background has them ignore Ctrl-C; tests that send it need Python's own answer to it.
signal.signal(signal.SIGINT, signal.default_int_handler)

USER_CACHE = os.environ.get("RAGEN_CACHE")
TEST_CACHE = tempfile.mkdtemp(prefix="ragen-test-cache-")
atexit.register(shutil.rmtree, TEST_CACHE, ignore_errors=True)
os.environ["RAGEN_CACHE"] = TEST_CACHE

TESTS = Path(__file__).parent
LONG = (
    "test_quality.py",  # in a fresh clone mypy reads torch
    *("test_grid.py", "faults/test_kill.py", "test_resume.py", "test_replay.py"),
    *("models/test_template_corpus.py", "test_docs.py", "environments/test_checker.py"),
)

# Wall-clock deadlines flake when two workers share a machine.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker inherits the environment of the process that started it, where the user's cache is no longer named."""
    node.workerinput["user_cache"] = USER_CACHE


def pytest_configure(config: pytest.Config) -> None:
    """Compiled operations stay in .pytest_cache from run to run: their file is named after source, compiler and processor."""
    global USER_CACHE
    USER_CACHE = getattr(config, "workerinput", {"user_cache": USER_CACHE})["user_cache"]
    if (kept := getattr(config, "cache", None)) is not None:
        Path(TEST_CACHE, "kernels").symlink_to(kept.mkdir("kernels"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The real model last: a typo shows before its minutes. Long files first: a worker goes through a whole one, and should not
    be the last at work."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        file = item.path.relative_to(TESTS).as_posix()
        return item.get_closest_marker("real_model") is not None, LONG.index(file) if file in LONG else len(LONG)

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only tests of the real model see the user's cache, where its weights lie. A hook, since it must come before any fixture."""
    if item.get_closest_marker("real_model") is None:
        os.environ["RAGEN_CACHE"] = TEST_CACHE
    elif USER_CACHE is None:
        os.environ.pop("RAGEN_CACHE", None)
    else:
        os.environ["RAGEN_CACHE"] = USER_CACHE


@pytest.fixture(autouse=True)
def _count_open_corridors_from_zero() -> None:
    corridor = sys.modules.get("tests.support.corridor")
    if corridor is not None:
        corridor.forget_open()
