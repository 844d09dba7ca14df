"""Measure policies on every shipped environment and write them into docs/results.md.

    python benchmarks/results_table.py random oracle
    python benchmarks/results_table.py "SmolLM2-135M=smollm2-135m" "trained on bandit_reversed=runs/bandit"

Each argument is a column: whatever `ragen eval` takes, with a title before "=" if it is to have one. Columns that are not named
stay as they are, in docs/results.json, from which the page's tables are made. `--resume` goes on with a column that was stopped,
`--page-only` measures nothing. Settings such as rollout.sampling.max_new_tokens=64 hold for all columns that are named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.config.evaluation import load_for_suite
from ragen.config.schema import type_of
from ragen.config.suites import load_suite
from ragen.environments import registry
from ragen.errors import ConfigError
from ragen.evaluation.kinds import Kind
from ragen.evaluation.results import EvaluationResult
from ragen.evaluation.target import check_effect, evaluate_and_keep, find_target, run_folder_of
from ragen.files import write_text
from ragen.rollout.environment_config import EnvironmentConfig

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "results.json", DOCS / "results.md"
SUITE = "shipped"
BEGIN, END = "<!-- tables: made by benchmarks/results_table.py -->", "<!-- end of tables -->"
NONE = "no oracle"

Column = dict[str, Any]  # of docs/results.json


def main(arguments: Sequence[str]) -> None:
    """Measure the columns that are named, then write data and page."""
    words = [word for word in arguments if not word.startswith("--")]
    flags = set(arguments) - set(words)
    if unknown := flags - {"--resume", "--page-only"}:
        raise ConfigError(f"{', '.join(sorted(unknown))}: must be --resume or --page-only")
    settings = [word for word in words if type_of(word.partition("=")[0]) is not None]
    columns = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for word in words:
        if word not in settings and "--page-only" not in flags:
            title, target = named(word)
            columns[title] = measure(target, settings, resume="--resume" in flags)
            write_text(DATA, json.dumps(columns, indent=1, ensure_ascii=False) + "\n")
    write_text(PAGE, with_tables(PAGE.read_text(encoding="utf-8"), columns))


def named(word: str) -> tuple[str, str]:
    """(title of the column, target)."""
    title, equals, target = word.partition("=")
    return (title, target) if equals else (word, word)


def measure(target: str, settings: Sequence[str], *, resume: bool) -> Column:
    """Play one policy on all that it can play, as `ragen eval TARGET --suite shipped` does, and give its column."""
    run = run_folder_of(target)
    ((kind, config),) = load_for_suite(target, run, SUITE, overrides=settings)
    found = find_target(target, config.model, output_dir=Path(config.output_dir))
    check_effect(found, config.rollout, config.server, settings)
    played = {
        tag: environment
        for tag, environment in config.environments.items()
        if found.kind is not Kind.ORACLE or has_oracle(environment)
    }
    result, path = evaluate_and_keep(
        found,
        played,
        config.evaluation,
        config.rollout,
        server=config.server,
        kind=kind,
        resume=resume,
        or_begin=True,
        on_progress=lambda done, total, tokens: print(f"\r{target}: {done} of {total} episodes", end="", file=sys.stderr),
    )
    print(f"\n{target}: kept as {path}", file=sys.stderr)
    return column_of(result)


def has_oracle(environment: EnvironmentConfig) -> bool:
    """Whether the environment itself knows a best first action."""
    env = registry.make(environment.name, environment.options)
    try:
        env.reset(seed=1)
        return env.oracle_action() is not None
    finally:
        env.close()


def column_of(result: EvaluationResult) -> Column:
    """What the tables say of one policy."""
    return {
        "model": result.model,
        "step": result.step,
        "environments": {
            tag: {
                "num_episodes": each.num_episodes,
                "success": [each.success.mean, each.success.low, each.success.high],
                "return": [each.return_.mean, each.return_.low, each.return_.high],
            }
            for tag, each in result.environments.items()
        },
    }


def with_tables(page: str, columns: Mapping[str, Column]) -> str:
    """The page with its tables made anew between the two marks."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ConfigError(f"{PAGE}: must hold the lines {BEGIN} and {END}")
    tags = list(load_suite(SUITE).environments)
    parts = (
        BEGIN,
        "### Success",
        table(tags, columns, "success", "{:.0%}"),
        "### Return",
        table(tags, columns, "return", "{:+.2f}"),
        END,
    )
    return before + "\n\n".join(parts) + after


def table(tags: Sequence[str], columns: Mapping[str, Column], key: str, form: str) -> str:
    """Environments down, policies across."""
    lines = [f"| environment | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for tag in tags:
        measured = [column["environments"].get(tag) for column in columns.values()]
        cells = [NONE if each is None else interval(each[key], form) for each in measured]
        lines.append(f"| `{tag}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(values: Sequence[float | None], form: str) -> str:
    """A mean with its 95 % interval, where there is one."""
    mean, low, high = values
    if low is None or high is None:
        return form.format(mean)
    return f"{form.format(mean)} [{form.format(low)}, {form.format(high)}]"


if __name__ == "__main__":
    main(sys.argv[1:])
