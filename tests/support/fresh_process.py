"""The first prompt of an episode as another process reads it, to see that it follows from the seed and from nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ragen.environments import registry

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import json, sys
from tests.support.fresh_process import first_prompt
name, options, seed = json.loads(sys.argv[1])
print(json.dumps(first_prompt(name, options, seed)))
"""


def first_prompt(name: str, options: dict[str, Any], seed: int) -> list[Any]:
    """[instruction, first observation, action names] of an episode."""
    env = registry.make(name, options)
    observation, _ = env.reset(seed=seed)
    return [env.instruction, observation, list(env.action_names or ())]


def first_prompt_elsewhere(name: str, options: dict[str, Any], seed: int, *, hash_seed: int) -> list[Any]:
    """The same from a new interpreter in which texts hash differently."""
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([name, options, seed])],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(_ROOT)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: list[Any] = json.loads(result.stdout)
    return found
