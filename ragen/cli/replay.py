"""`ragen replay`: a recorded step once more, compared with what was recorded."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.output import Flag, Json, console, print_json, print_table

if TYPE_CHECKING:
    from ragen.replay import Replay

_ALWAYS = ("update/", "critic/", "rollout: ", "advantages")  # shown also where they are equal


def replay(run: str, /, *, step: int, rollout: Flag = False, as_json: Json = False) -> None:
    """Repeat the update of a recorded step and compare it with what was recorded; exit code 1 if anything differs.

    The step's rollout file and the checkpoint before it have to be there; the first step begins from the model as it is.

    Parameters
    ----------
    run
        the folder of a run, such as runs/bandit
    step
        which step, counted from 1
    rollout
        repeat the sampling too, and compare ids, log-probs and rewards
    as_json
        print every comparison as JSON, progress on stderr
    """
    from ragen.errors import ConfigError

    if step < 1:
        raise ConfigError(f"--step={step}: must be at least 1")
    from ragen.replay import replay as repeat
    from ragen.training.display import Display

    result = repeat(Path(run), step, rollout=rollout, display=Display(console(stderr=True)))
    if as_json:
        rows = [{**asdict(row), "equal": row.is_equal} for row in result.rows]
        print_json({"run": run, "step": step, "equal": not result.num_different, "rows": rows, "notes": result.notes})
    else:
        _print(result)
    if result.num_different:
        sys.exit(1)


def _print(result: Replay) -> None:
    """What the update is made of, and whatever differs; the rest as a number."""
    shown = [row for row in result.rows if not row.is_equal or row.what.startswith(_ALWAYS) or row.what.endswith(".safetensors")]
    cells = [(row.what, row.recorded, row.replayed, row.difference or "equal bit for bit") for row in shown]
    print_table(("", "recorded", "replayed", ""), cells)
    for note in result.notes:
        print(note)
    others = len(result.rows) - len(shown)
    also = f" (not shown: {others} more that are equal)" if others else ""
    if result.num_different:
        print(f"step {result.step}: {result.num_different} of {len(result.rows)} comparisons differ{also}")
    else:
        print(f"step {result.step}: all {len(result.rows)} comparisons are equal bit for bit{also}")
