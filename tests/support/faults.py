"""Published faults, each planted by one or two edits in a copy of our own code, for the invariance kit to find."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ragen.algorithms.config import LossConfig
from ragen.credit.config import AdvantageConfig
from ragen.credit.filters import FilterConfig
from ragen.environments.checker.report import Report
from ragen.testing.aggregations import check_aggregation
from ragen.testing.estimators import check_estimator
from ragen.testing.filters import check_filter
from ragen.testing.losses import check_kl_term, check_policy_loss
from tests.support.pages import ROOT

Load = Callable[[str], ModuleType]  # "credit.samples" -> that module of the copy
Edits = tuple[tuple[str, str, str], ...]  # file in ragen/, what stands there once, what shall stand there


def estimator(**settings: Any) -> Callable[[Load], Report]:
    return lambda load: check_estimator(AdvantageConfig(**settings), assign=load("credit.samples").assign_credit)


def policy_loss(**settings: Any) -> Callable[[Load], Report]:
    config = LossConfig(**settings)
    return lambda load: check_policy_loss(lambda *batch: load("algorithms.losses").policy_term(*batch, config).loss_M)


def kl_term(name: str) -> Callable[[Load], Report]:
    return lambda load: check_kl_term(partial(load("algorithms.kl").kl_loss, estimator=name))


def aggregation(name: str) -> Callable[[Load], Report]:
    def check(load: Load) -> Report:
        module = load("algorithms.aggregation")
        parts = {key: partial(getattr(module, key), name) for key in ("token_weight", "denominator")}
        return check_aggregation(SimpleNamespace(**parts))

    return check


def group_filter(*, by_spread: bool = True, **settings: Any) -> Callable[[Load], Report]:
    config = FilterConfig(**settings)

    def check(load: Load) -> Report:
        select = load("credit.filters").select
        return check_filter(lambda groups: select(groups, config, num_planned=max(1, len(groups))).kept, by_spread=by_spread)

    return check


@dataclass(frozen=True, kw_only=True)
class Fault:
    row: str  # of the bug log; a few words where it has none
    what: str
    edits: Edits
    check: Callable[[Load], Report]


UNJUDGED = "(*group.trajectories, *group.abstained)"
UNJUDGED_AT_ZERO = (
    "(*group.trajectories, *(replace(t, turns=tuple(replace(k, reward=0.0) for k in t.turns)) for t in group.abstained))"
)


def counting(abstained: str) -> Edits:
    """Abstained members in the statistics, but not in the loss."""
    return (
        ("credit/view.py", "for trajectory in group.trajectories\n", f"for trajectory in {abstained}\n"),
        ("credit/samples.py", "for trajectory in group.trajectories]", f"for trajectory in {UNJUDGED}]"),
        ("credit/samples.py", "            if mask.any():\n", "            if mask.any() and trajectory.key.member < 10:\n"),
    )


FAULTS = (
    Fault(
        row="17",
        what="a lone member is divided by the spread of one number",
        edits=(
            (
                "credit/normalize.py",
                (
                    "    if len(numbers) < 2 or all_equal(numbers):\n"
                    "        return [0.0] * len(numbers)\n"
                    "    mean = fmean(numbers)\n"
                    "    scale"
                ),
                ("    if len(numbers) < 2:\n        return [float('nan')] * len(numbers)\n    mean = fmean(numbers)\n    scale"),
            ),
        ),
        check=estimator(),
    ),
    Fault(row="18", what="who was abstained about counts as 0", edits=counting(UNJUDGED_AT_ZERO), check=estimator(method="mean")),
    Fault(
        row="19",
        what="an advantage that is no number is trained on",
        edits=(
            ("credit/view.py", "if not abs(view.return_) <= MAX_RETURN:", "if False:"),
            ("credit/samples.py", "        _check_finite(trajectory, credit, config)\n", ""),
        ),
        check=estimator(method="mean"),
    ),
    Fault(
        row="20",
        what="members without a trained token of theirs move mean and spread",
        edits=counting(UNJUDGED),
        check=estimator(),
    ),
    Fault(
        row="21",
        what="equal totals are not exactly 0: a mean of float32, and no look at whether there is a spread",
        edits=(
            (
                "credit/normalize.py",
                (
                    "    if len(numbers) < 2 or all_equal(numbers):\n"
                    "        return [0.0] * len(numbers)\n"
                    "    mean = fmean(numbers)\n"
                    "    scale"
                ),
                (
                    "    if len(numbers) < 2:\n"
                    "        return [0.0] * len(numbers)\n"
                    "    mean = float(np.mean(np.array(numbers, dtype=np.float32)))\n"
                    "    scale"
                ),
            ),
        ),
        check=estimator(),
    ),
    Fault(
        row="22",
        what="every turn is credited with the outcome of the whole trajectory",
        edits=(
            (
                "credit/turns.py",
                "return _to_go(view.rewards_per_turn(), ",
                "return np.full(len(view.lengths), view.return_) + 0 * _to_go(view.rewards_per_turn(), ",
            ),
        ),
        check=estimator(estimator="turn_rloo"),
    ),
    Fault(
        row="23",
        what="only the reward of the last turn arrives",
        edits=(
            (
                "credit/view.py",
                "rewards=tuple(turn.reward for turn in turns),",
                "rewards=tuple(turn.reward if turn is turns[-1] else 0.0 for turn in turns),",
            ),
        ),
        check=estimator(estimator="gae"),
    ),
    Fault(
        row="24",
        what="observation tokens are steps that discount",
        edits=(
            (
                "credit/view.py",
                "advantages=zeros).mask for index, zeros in enumerate(empty)]",
                "advantages=zeros).mask.cumsum() > 0 for index, zeros in enumerate(empty)]",
            ),
        ),
        check=estimator(estimator="reinforce_pp", gamma=0.99, discount_per="token", whiten=False),
    ),
    Fault(
        row="25",
        what="whitening divides by n - 1 = 0",
        edits=(
            (
                "credit/normalize.py",
                (
                    "    if len(flat) < 2:\n"
                    "        return list(parts)\n"
                    "    if np.ptp(flat) <= ROUNDING * np.abs(flat).max():\n"
                    "        return [np.zeros_like(part) for part in parts]\n"
                ),
                "",
            ),
        ),
        check=estimator(estimator="gae"),
    ),
    Fault(
        row="33",
        what="groups are formed by trajectory, so that each holds one",
        edits=(("credit/outcome.py", "[view.group for view in views], leave_one_out", "list(range(len(views))), leave_one_out"),),
        check=estimator(estimator="rloo"),
    ),
    Fault(
        row="65",
        what="exp of an unbounded log-ratio",
        edits=(("algorithms/losses.py", ".clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)", ""),),
        check=kl_term("k3"),
    ),
    Fault(
        row="65",
        what="the same in the policy loss",
        edits=(("algorithms/losses.py", ".clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)", ""),),
        check=policy_loss(),
    ),
    Fault(
        row="66",
        what="a step without a token is divided by 0",
        edits=(("algorithms/aggregation.py", "return total if total > 0 else 1", "return total"),),
        check=aggregation("token_mean"),
    ),
    Fault(
        row="67",
        what="numbers of tokens that were not sampled are multiplied by 0 instead of left out",
        edits=(("credit/filters/scores.py", "segment.logprobs[segment.mask]", "(segment.logprobs * segment.mask)"),),
        check=group_filter(by_spread=False, rule="top_k", value=2, score="entropy"),
    ),
    Fault(
        row="70",
        what="the KL term pushes away from the reference",
        edits=(
            (
                "algorithms/kl.py",
                "            return kl_estimate(new_M, reference_M, estimator=estimator)\n",
                "            return -kl_estimate(new_M, reference_M, estimator=estimator)\n",
            ),
        ),
        check=kl_term("k2"),
    ),
    Fault(
        row="70",
        what="the advantage has the wrong sign",
        edits=(
            (
                "credit/normalize.py",
                "return [(x - mean) * n / (n - 1) for x in numbers]",
                "return [(mean - x) * n / (n - 1) for x in numbers]",
            ),
        ),
        check=estimator(estimator="rloo"),
    ),
    Fault(
        row="71",
        what="the divisor depends on what is padded together",
        edits=(
            (
                "algorithms/aggregation.py",
                "total: float = sum(num_tokens)",
                "total: float = max(num_tokens, default=0) * len(num_tokens)",
            ),
        ),
        check=aggregation("token_mean"),
    ),
    Fault(
        row="71",
        what="the ratio of a sequence is a mean over whatever shares its micro-batch",
        edits=(
            ("algorithms/losses.py", "    return (sums_I / counts_I)[owner_M]", "    return values_M.mean().expand_as(values_M)"),
        ),
        check=policy_loss(name="gspo", clip_low=3e-4, clip_high=4e-4),
    ),
    Fault(
        row="72",
        what="the constant divisor is the longest reply there is, not the longest episode that may be",
        edits=(
            (
                "algorithms/aggregation.py",
                "total = num_trajectories * episode_tokens",
                "total = num_trajectories * max(num_tokens, default=1)",
            ),
        ),
        check=aggregation("constant"),
    ),
    Fault(
        row="published RAGEN",
        what="bi-level GAE takes a reward other than 0 for the end of a turn",
        edits=(
            (
                "credit/gae.py",
                "    last = np.array(view.stops) - 1\n",
                "    last = np.array(view.stops) - 1\n    last = last[rewards[last] != 0]\n",
            ),
            ("credit/gae.py", "inner_K = view.sum_per_turn(rewards) - rewards[last]", "inner_K = np.zeros(len(last))"),
        ),
        check=estimator(estimator="bi_level_gae", whiten=False),
    ),
    Fault(
        row="published RAGEN",
        what="the filter by spread reads normalised returns",
        edits=(
            (
                "credit/filters/scores.py",
                "returns=tuple(t.return_ for t in group.trajectories),",
                (
                    "returns=tuple((t.return_ - fmean(r)) / (stdev(r) + 1e-6) for r in [[t.return_ for t in "
                    "group.trajectories] + [0.0] * 2] for t in group.trajectories),"
                ),
            ),
        ),
        check=group_filter(rule="top_k", value=2),
    ),
    Fault(
        row="no report",
        what="the value behind the end is added where the task is over",
        edits=(
            (
                "credit/view.py",
                "said.after if said is not None and trajectory.truncated else 0.0",
                "said.after if said is not None else 0.0",
            ),
        ),
        check=estimator(estimator="turn_gae"),
    ),
    Fault(
        row="no report",
        what="a truncated trajectory is taken for one that is over",
        edits=(("credit/view.py", "said.after if said is not None and trajectory.truncated else 0.0", "0.0"),),
        check=estimator(estimator="gae"),
    ),
    Fault(
        row="no report",
        what="anchor states are compared across groups",
        edits=(
            (
                "credit/turns.py",
                "[[(view.group, state) for state in view.states] for view in views]",
                "[[len(state) for state in view.states] for view in views]",
            ),
        ),
        check=estimator(estimator="gigpo"),
    ),
)


@contextmanager
def planted(edits: Edits, folder: Path, name: str) -> Iterator[Load]:
    """A copy of `ragen.credit` and `ragen.algorithms` under another name, with these edits, importable inside the block."""
    package = folder / name
    for part in ("credit", "algorithms"):
        shutil.copytree(ROOT / "ragen" / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for file, old, new in edits:
            if path == package / file:
                assert source.count(old) == 1, (file, old, source.count(old))
                source = source.replace(old, new)
        for part in ("credit", "algorithms"):
            source = source.replace(f"ragen.{part}", f"{name}.{part}")
        path.write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield lambda module: importlib.import_module(f"{name}.{module}")
    finally:
        sys.path.remove(str(folder))
        for module in [key for key in sys.modules if key.partition(".")[0] == name]:
            del sys.modules[module]
