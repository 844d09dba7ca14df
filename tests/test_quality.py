"""The quality gates as tests, so that the one command that CI runs enforces them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_gate(*command: str) -> None:
    result = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


def test_every_file_is_formatted() -> None:
    run_gate("ruff", "format", "--check", ".")


def test_no_lint_is_found() -> None:
    run_gate("ruff", "check", ".")


@pytest.mark.timeout(600)  # the first run reads the stubs of torch
def test_the_package_is_typed_strictly() -> None:
    run_gate("mypy")
