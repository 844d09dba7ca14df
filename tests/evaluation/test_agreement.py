"""What training logs of a checkpoint, what `ragen eval` measures of it and what `ragen compare` prints are one set of numbers."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from ragen.engines.torch_engine import TorchEngine
from ragen.evaluation.arms import find_arms
from ragen.evaluation.compare import compare
from ragen.evaluation.evaluate import evaluate
from ragen.evaluation.results import read_result
from ragen.evaluation.target import evaluate_target, find_target
from ragen.models.chat import ChatTemplate
from ragen.models.policy import load_policy
from tests.support.runs import metrics_of, run, small_config


def test_a_greedy_evaluation_says_the_same_twice_and_whatever_the_batch(tmp_path: Path) -> None:
    """bug-log row 92: all eight episodes at once, one after the other, and eight beside each other again."""
    config = small_config(tmp_path, "evaluation.num_episodes=8", "evaluation.temperature=0")
    policy = load_policy(config.model)

    def replies(concurrency: int | None) -> list[list[str]]:
        result = asyncio.run(
            evaluate(
                TorchEngine(policy),
                ChatTemplate.configured(policy.tokenizer, config.model),
                config.environments,
                config.evaluation,
                config.rollout,
                model="m",
                step=0,
                concurrency=concurrency,
            )
        )
        return [[turn.reply.text for turn in trajectory.turns] for trajectory in result.trajectories]

    assert replies(None) == replies(1) == replies(8)


def test_the_log_the_file_the_offline_evaluation_and_the_comparison_agree_exactly(tmp_path: Path) -> None:
    """bug-log row 93: two samples of each of five seeds, after two steps; every figure, and every log-prob, to the last digit.

    Three rows at a time: who shares a batch decides about last bits, so the engine's limits are the run's own.
    """
    config = small_config(tmp_path, "evaluation.samples_per_seed=2", "evaluation.temperature=1.0", "engine.max_rows=3")
    folder = run(config)[0].folder
    target = find_target(str(folder), config.model, output_dir=tmp_path, engine=config.engine)
    offline = evaluate_target(target, config.environments, config.evaluation, config.rollout)
    stored = read_result(folder / "eval" / "step-000002.json")
    logged = {key: value for key, value in metrics_of(folder)[-1].items() if key.startswith("eval/")}
    assert offline.metrics() == stored.metrics() == logged
    assert {"eval/bandit/success", "eval/bandit/pass_at_2", "eval/bandit/pass_all_2"} <= set(logged)
    assert offline.settings == stored.settings
    sampled = [[s.logprobs.tolist() for t in each.trajectories for s in t.segments] for each in (offline, stored)]
    assert sampled[0] == sampled[1]
    assert dataclasses.replace(offline, kind=stored.kind, seconds=stored.seconds, groups=()) == stored
    comparison = compare(find_arms([str(folder)]))
    shown = {row.figure.key: row.cells[0].interval for row in comparison.tables[0].rows}
    assert shown["success"] == stored.environments["bandit"].success
    assert shown["pass@2"] == stored.environments["bandit"].pass_at[1]
