"""Learning curves of every preset on one task, for docs/algorithms/presets: same model, budget and seeds for all.

    python benchmarks/preset_curves.py [--steps 60] [--seeds 2] [PRESET ...]

The task is `letters.py` beside this file, the model `tiny` with random weights, trained in full: about a minute a run. The
curves show that a preset learns and how it behaves, not which preset is better: that depends on the task.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console

from ragen.config.load import load
from ragen.run import train
from ragen.training.trackers import read_metrics

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "docs/algorithms/presets"
RUNS = Path("runs/preset_curves")
OVERRIDES = [
    "env=letters:Letters",
    "environments.Letters.num_groups=8",
    "environments.Letters.max_turns=3",
    "environments.Letters.max_actions=3",
    "environments.Letters.max_actions_per_turn=1",
    "rollout.group_size=8",
    "rollout.context.grammar=raw",
    "rollout.context.think=false",
    "rollout.context.reply_prefix=false",
    "rollout.context.show_budget=false",
    "rollout.sampling.max_new_tokens=8",
    "model.tuning=full",
    "optimizer.lr=0.003",
    "evaluation.num_episodes=16",
    "trainer.kl_groups=0",
    f"output_dir={RUNS}",
]
# What a preset needs on this task alone: its buffer is in tokens, and a reply has eight.
OWN = {"dapo": ["algorithm.overlong.buffer=2"]}


def curve(preset: str, seed: int, steps: int) -> np.ndarray:
    """Mean return of each step [steps]. A run that is there already is not made again."""
    folder = RUNS / f"{preset}-{seed}"
    if not (folder / "learning_curve.png").exists():
        shutil.rmtree(folder, ignore_errors=True)
        own = [f"algorithm={preset}", f"seed={seed}", f"name={folder.name}", f"trainer.steps={steps}", *OWN.get(preset, [])]
        train(load("bandit_tiny", [*OVERRIDES, *own]), console=Console(quiet=True))
    rows = [row for row in read_metrics(folder) if "rollout/return" in row]
    return np.array([row["rollout/return"] for row in rows])


def draw(preset: str, curves: dict[str, list[np.ndarray]]) -> None:
    """This preset's seeds in front of everybody's."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for other, theirs in curves.items():
        for values in theirs:
            mine = other == preset
            axes.plot(
                range(1, len(values) + 1),
                values,
                color="C0" if mine else "0.85",
                linewidth=2 if mine else 0.8,
                zorder=2 if mine else 1,
            )
    axes.set(xlabel="step", ylabel="mean return", title=f"{preset} (grey: the other presets)")
    axes.grid(alpha=0.3)
    figure.savefig(PAGES / f"{preset}.png", dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="default: all")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))  # where letters.py lies
    everybody = sorted(path.stem for path in PAGES.glob("*.md"))
    curves: dict[str, list[np.ndarray]] = {}
    for preset in arguments.presets or everybody:
        curves[preset] = [curve(preset, seed, arguments.steps) for seed in range(arguments.seeds)]
        first, last = (np.mean([values[part].mean() for values in curves[preset]]) for part in (slice(0, 5), slice(-5, None)))
        print(f"| `{preset}` | {first:.2f} | {last:.2f} |", flush=True)
    for preset in curves:
        draw(preset, curves)


if __name__ == "__main__":
    main()
