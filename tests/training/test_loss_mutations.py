"""Faults that other frameworks shipped, planted one by one in a copy of our code: a short probe of each file must catch them.

The probes are worked by hand, and small enough to be read as a whole; the full tests are beside the files they test.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ragen
from ragen.algorithms.config import AlgorithmConfig, KlConfig, LossConfig
from ragen.training.config import OptimizerConfig
from tests.support.gradients import stir
from tests.support.learners import on_policy, small_policy
from tests.support.samples import make_sample

PACKAGE = Path(ragen.__file__).parent
CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def logs(*values: float) -> Tensor:
    return torch.tensor([math.log(v) for v in values], requires_grad=True)


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def owner(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def assert_term(term_M: Tensor, new_M: Tensor, values: list[float], gradients: list[float]) -> None:
    assert term_M.requires_grad
    (found,) = torch.autograd.grad(term_M.sum(), new_M)
    torch.testing.assert_close(term_M.detach(), row(*values), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found, row(*gradients), atol=1e-4, rtol=1e-4)


# -- the probes --------------------------------------------------------------------------------------------------------------


def probe_losses(m: Any) -> None:
    new, old, zero = logs(1.5, 1.5, 0.5, 0.5), row(0, 0, 0, 0), row(0.0)
    assert_term(m.ppo(new, old, row(2, -2, 2, -2), **CLIP), new, [-2.56, 3, -1, 1.6], [0, 3, -1, 0])
    new = logs(5, 5)
    assert_term(m.ppo(new, row(0, 0), row(-2, 2), **CLIP, dual_clip=3.0), new, [6, -2.56], [0, 0])
    new, s = logs(2, 0.5, 1.1, 1.1), 1.1
    assert_term(m.gspo(new, old, row(1, 1, -1, 1), owner(0, 0, 1, 1), **CLIP), new, [-1, -1, s, -s], [-1, -1, s, -s])
    new = logs(5, 0.5)
    values = [-4 * math.log(5), -0.5 * math.log(0.5)]
    assert_term(m.cispo(new, row(0, 0), row(1, 1), clip_low=1.0, clip_high=3.0), new, values, [-4, -0.5])
    new = logs(1, 1, 3)
    values, slopes = [-2, 1.904762, -3.523188], [-1, 1, -1.259924]
    assert_term(m.sapo(new, row(0, 0, 0), row(1, -1, 1), positive=1.0, negative=1.05), new, values, slopes)
    for far in (-200.0, 200.0):
        assert m.ppo(row(far), zero, row(-1.0), **CLIP).isfinite().all()
    assert m.ppo(row(math.nan), zero, row(1.0), **CLIP).isnan().all()
    low, high = m.clipped_where(row(0.5, 2, 0.5, 2), row(1, 1, -1, -1), **CLIP)
    assert (low.tolist(), high.tolist()) == ([False, False, True, False], [False, True, False, False])


def probe_kl(m: Any) -> None:
    for estimator, value, slope in [("k2", 0.240227, 0.693147), ("k3", 0.193147, 0.5), ("unbiased", 0.241434, 0.866434)]:
        new = logs(0.5)
        assert_term(m.kl_loss(new, logs(0.4).detach(), logs(0.25).detach(), estimator=estimator), new, [value], [slope])
    assert m.kl_estimate(logs(0.5), logs(0.25), estimator="k1").item() == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match="k1"):
        m.kl_loss(row(0), row(0), row(0), estimator="k1")
    assert m.kl_estimate(row(-200.0), row(-1.0), estimator="k3").isfinite().all()
    controller = m.KlController(KlConfig(coef=1.0, target=0.1))
    controller.adapt(0.11)
    assert controller.coef == pytest.approx(1.01)


def probe_aggregation(m: Any) -> None:
    lengths = {"num_tokens": [1, 3], "trajectory_tokens": [1, 3], "episode_tokens": 10}
    for aggregation, divisor, weights in [
        ("token_mean", 4, (1, 1)),
        ("seq_mean_token_mean", 2, (1, 1 / 3)),
        ("seq_mean_token_sum", 2, (1, 1)),
        ("constant", 20, (1, 1)),
    ]:
        assert m.denominator(aggregation, **lengths) == divisor
        assert tuple(m.token_weight(aggregation, trajectory_tokens=n) for n in (1, 3)) == weights
        assert m.denominator(aggregation, num_tokens=[], trajectory_tokens=[], episode_tokens=10) == 1
    assert m.denominator("seq_mean_token_sum", num_tokens=[1, 3], trajectory_tokens=[4, 4]) == 1
    assert m.length_weights([1, 3]) == pytest.approx([2, 2 / 3])


def probe_importance(m: Any) -> None:
    learner, engine = logs(0.5, 0.1, 0.4, 0.1, 0.51).detach(), logs(0.1, 0.2, 0.1, 0.4, 0.5).detach()
    found = m.importance_weights(learner, engine, owner(0, 0, 1, 1, 2), cap=2.0, low=0.99, high=1.7)
    torch.testing.assert_close(found.weight_M, row(2, 0.5, 2, 0.25, 1.02))
    found = m.importance_weights(learner, engine, owner(0, 0, 1, 1, 2), cap=None, low=0.99, high=1.01)
    assert found.weight_M.tolist() == [0, 0, 1, 1, 0]


def probe_packing(m: Any) -> None:
    clean = make_sample([10, 11], [20, 21], [30], [40])
    unread = np.where(clean.mask, clean.logprobs, np.nan).astype(np.float32)
    advantages = np.where(clean.mask, clean.advantages, np.inf).astype(np.float32)
    (part,) = m.pack([replace(clean.with_logprobs(unread), advantages=advantages)], max_tokens=99, device="cpu")
    assert part.target_M.tolist() == [20, 21, 40]
    assert part.predictor_M.tolist() == [1, 2, 4]
    assert part.old_logprob_M.isfinite().all()
    assert part.advantage_M.isfinite().all()


def probe_update(m: Any) -> None:
    prompt = [5, 6, 7, 8]
    good, bad = on_policy(make_sample(prompt, [9]), make_sample(prompt, [20, 21, 22], advantage=-1.0, member=1))
    idle = [replace(s, advantages=np.zeros_like(s.advantages)) for s in (good, bad)]

    def gradient(samples: Any, *, max_tokens: int = 99, **algorithm: Any) -> Tensor:
        """Of one step over the samples, as one vector; the policy is not at its start, and is not moved."""
        policy = small_policy(with_reference=True)
        stir(policy)
        settings = AlgorithmConfig(**{"num_minibatches": 1, "entropy_coef": 0.0, **algorithm})
        learner = m.Learner(policy, settings, OptimizerConfig(), temperature=1.0, run_seed=0)
        kept: list[Tensor] = []

        def keep(parameters: Any, max_norm: float) -> Tensor:
            kept.extend(p.grad.flatten().clone() for p in parameters if p.grad is not None)
            return torch.tensor(math.nan)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learner.pack_size, "tokens", max_tokens)
            patch.setattr(torch.nn.utils, "clip_grad_norm_", keep)
            learner.update(samples, step=0)
        return torch.cat(kept)

    whole, single = gradient([good, bad]), gradient([good, bad], max_tokens=1)
    torch.testing.assert_close(single, whole, atol=1e-6, rtol=1e-4)
    parts = [gradient([each]) for each in (good, bad)]
    torch.testing.assert_close(whole, parts[0] / 4 + parts[1] * 3 / 4, atol=1e-6, rtol=1e-4)
    halves = gradient([good, bad], loss=LossConfig(aggregation="seq_mean_token_mean"))
    torch.testing.assert_close(halves, parts[0] / 2 + parts[1] / 2, atol=1e-6, rtol=1e-4)
    assert not gradient(idle).any()
    settings = {"entropy_coef": 0.5, "kl": KlConfig(coef=0.5)}
    assert not gradient(idle, **settings, loss=LossConfig(regularize_zero_advantage=False)).any()
    assert_descends(m, idle)
    spoiled = good.with_logprobs(np.where(good.mask, np.nan, good.logprobs).astype(np.float32))
    policy = small_policy()
    before = {name: p.detach().clone() for name, p in policy.trainable().items()}
    learner = m.Learner(policy, AlgorithmConfig(num_minibatches=1), OptimizerConfig(), temperature=1.0, run_seed=0)
    result = learner.update([spoiled, bad], step=0)
    assert (result.num_applied, result.metrics["update/skipped"]) == (0, 1)
    assert all(torch.equal(p, before[name]) for name, p in policy.trainable().items())


def assert_descends(m: Any, idle: Any) -> None:
    """The entropy bonus raises entropy, the KL term lowers the KL, both over some updates without any advantage."""
    for settings, key, sign in (
        ({"entropy_coef": 1.0}, "update/entropy", 1),
        ({"entropy_coef": 0.0, "kl": KlConfig(coef=1.0, estimator="k2")}, "update/kl_loss", -1),
    ):
        policy = small_policy(with_reference=True)
        stir(policy)
        algorithm = AlgorithmConfig(num_minibatches=1, **settings)  # type: ignore[arg-type]
        learner = m.Learner(policy, algorithm, OptimizerConfig(lr=1e-3), temperature=1.0, run_seed=0)
        first, *_, last = (learner.update(idle, step=step).metrics[key] for step in range(6))
        assert sign * (last - first) > 0


PROBES: dict[str, Callable[[Any], None]] = {
    "algorithms/losses.py": probe_losses,
    "algorithms/kl.py": probe_kl,
    "algorithms/aggregation.py": probe_aggregation,
    "algorithms/importance.py": probe_importance,
    "training/packing.py": probe_packing,
    "training/update.py": probe_update,
}


@contextmanager
def changed(file: str, right: str = "", wrong: str = "") -> Iterator[ModuleType]:
    """A copy of a module, `wrong` in the place of `right`, beside the module itself."""
    source = (PACKAGE / file).read_text(encoding="utf-8")
    assert source.count(right) == 1 or not right, f"{file}: {source.count(right)} times: {right}"
    name = f"changed_{Path(file).stem}"
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source.replace(right, wrong) if right else source, file, "exec"), vars(module))
        yield module
    finally:
        del sys.modules[name]


# -- the faults --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`row` of the bug log, or 0 for a fault of the same kind that nobody has reported."""

    row: int
    what: str
    file: str
    right: str
    wrong: str


L, K, A, W, P, U = PROBES

FAULTS = [
    Fault(63, "a loss that is no number is made one", L, "(new_M - old_M).clamp(", "(new_M - old_M).nan_to_num().clamp("),
    Fault(64, "a step that is not finite is taken", U, "if not bool(loss_M.isfinite().all()):", "if False:"),
    Fault(64, "a KL term without a bound", K, "log_ratio(policy_M, reference_M)", "(policy_M - reference_M)"),
    Fault(65, "exp of any log-ratio", L, ".clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)", ""),
    Fault(66, "0 / 0 tokens", A, "return total if total > 0 else 1", "return total"),
    Fault(67, "reduced before selected", P, "trained = sample.mask.nonzero()[0]", "trained = np.arange(P, len(sample.ids))"),
    Fault(70, "the sign of the KL term", U, "coef * kl_M - algorithm", "-coef * kl_M - algorithm"),
    Fault(70, "the sign of the entropy bonus", U, "kl_M - algorithm.entropy_coef", "kl_M + algorithm.entropy_coef"),
    Fault(70, "the sign of the policy term", L, "-advantages_M * ratio_M, -adv", "advantages_M * ratio_M, -adv"),
    Fault(70, "KL estimated the wrong way round", K, "torch.expm1(-d_M) + d_M", "torch.expm1(d_M) - d_M"),
    Fault(71, "a mean of means", U, ".sum() / scale.denominator", ".mean() / len(part.samples)"),
    Fault(71, "every pack has a denominator of its own", U, ".sum() / scale.denominator", ".sum() / part.num_trained"),
    Fault(71, "a token mean weighted by sample", U, "loss.aggregation, trajectory", "'seq_mean_token_mean', trajectory"),
    Fault(72, "the divisor is the longest that was seen", A, "* episode_tokens", "* max(num_tokens, default=1)"),
    Fault(0, "the pessimistic side is the other one", L, "torch.maximum(", "torch.minimum("),
    Fault(0, "the clip bounds are swapped", L, "ratio_M.clamp(1 - low, 1 + high)", "ratio_M.clamp(1 - high, 1 + low)"),
    Fault(0, "dual clip for good tokens", L, "advantages_M < 0, torch.min", "advantages_M > 0, torch.min"),
    Fault(0, "the sequence ratio is a product", L, "(sums_I / counts_I)[owner_M]", "sums_I[owner_M]"),
    Fault(0, "one sequence ratio for the batch", L, "(sums_I / counts_I)[owner_M]", "values_M.mean().expand_as(values_M)"),
    Fault(0, "a sequence ratio without gradient", L, " + token_M - token_M.detach()", ""),
    Fault(0, "the weight of CISPO has a gradient", L, ".exp().detach().clamp(", ".exp().clamp("),
    Fault(0, "the weight of CISPO is not clipped", L, ".detach().clamp(1 - clip_low, 1 + clip_high)", ".detach()"),
    Fault(0, "temperatures of SAPO swapped", L, "advantages_M > 0, ratio_M", "advantages_M <= 0, ratio_M"),
    Fault(0, "SAPO is not normalised", L, " * 4 / t_M", ""),
    Fault(0, "clipped tokens counted whatever the advantage", L, "low_M & (advantages_M < 0)", "low_M & (advantages_M > -9)"),
    Fault(0, "k1 in a loss", K, 'case "k2" | "k3":', 'case "k1" | "k2" | "k3":'),
    Fault(0, "no gradient through the ratio of unbiased", K, "old_M).exp() * kl", "old_M).exp().detach() * kl"),
    Fault(0, "the weight runs away from its target", K, "measured / self.config.target - 1", "1 - measured / self.config.target"),
    Fault(0, "a segment counts as a trajectory", A, "sum(own / whole for", "sum(1 for"),
    Fault(0, "engine over learner", W, "log_ratio(learner_M, engine_M)", "log_ratio(engine_M, learner_M)"),
    Fault(0, "the mask from an arithmetic mean", W, "mean_by_owner(log_M, owner_M).exp()", "mean_by_owner(log_M.exp(), owner_M)"),
    Fault(0, "the mask token by token", W, "mean_by_owner(log_M, owner_M).exp()", "log_M.exp()"),
    Fault(0, "no cap", W, "ratio_M.clamp(max=cap)", "ratio_M"),
    Fault(0, "the observation predicts from its own place", P, "start + trained - P - 1", "start + trained - P"),
]  # fmt: skip


@pytest.mark.parametrize("file", PROBES)
def test_the_probe_passes_without_a_fault(file: str) -> None:
    with changed(file) as module:
        PROBES[file](module)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"row-{fault.row}-{fault.what}")
def test_a_planted_fault_is_caught(fault: Fault) -> None:
    """Bug-log rows 63 to 67 and 70 to 72."""
    noticed = (AssertionError, pytest.fail.Exception)
    with changed(fault.file, fault.right, fault.wrong) as module, pytest.raises(noticed):
        PROBES[fault.file](module)
