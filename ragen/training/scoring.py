"""What the policy and its start say about packs of sampled tokens: log-probs, entropies, and how far they are apart.

Axes: M trained tokens of one pack, C those of one chunk, D width of the hidden states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ragen.algorithms.kl import kl_divergence
from ragen.models.policy import Policy
from ragen.training.packing import Pack

CHUNK_SCORES = {"cpu": 2**22, "cuda": 2**26}  # scores over the vocabulary that exist at the same time, by device
ROWS = 16  # tokens whose scores are worked on at a time, so that they stay in a processor's cache


def score(policy: Policy, part: Pack, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of every trained token and entropy of its distribution, both [M] in float32.

    Only the positions that predict a trained token go through the output layer, a chunk at a time.
    """
    logprob_M, entropy_M = _Scored.apply(predictors(policy, part), part.target_M, policy, temperature)  # type: ignore[no-untyped-call]
    return logprob_M, entropy_M


class _Scored(torch.autograd.Function):
    """Hidden states and targets in, log-probs and entropies out. No scores are kept: the backward pass computes them again.

    With z the scores over temperature, p their softmax and H its entropy: d logprob / dz = onehot(target) - p and
    dH / dz = -p (log p + H).
    """

    @staticmethod
    def forward(ctx: Any, hidden_MD: Tensor, target_M: Tensor, policy: Policy, temperature: float) -> tuple[Tensor, Tensor]:
        logprobs, entropies, log_totals = [], [], []
        size = _chunk(policy)
        for hidden_CD, target_C in zip(hidden_MD.split(size), target_M.split(size), strict=True):
            scores_CV = _scores(policy, hidden_CD, temperature)
            for scores_BV, target_B in zip(scores_CV.split(ROWS), target_C.split(ROWS), strict=True):
                best_B1 = scores_BV.amax(-1, keepdim=True)
                below_BV = scores_BV - best_B1
                logprob_B1 = below_BV.gather(1, target_B[:, None])
                weights_BV = below_BV.exp()
                total_B = weights_BV.sum(-1)
                # H = log total - sum of p z, and p z is 0 where z is -inf
                mean_B = torch.linalg.vecdot(weights_BV, below_BV.clamp_(min=torch.finfo().min)) / total_B
                logprobs.append(logprob_B1[:, 0] - total_B.log())
                entropies.append(total_B.log() - mean_B)
                log_totals.append(best_B1[:, 0] + total_B.log())
        logprob_M, entropy_M = torch.cat(logprobs), torch.cat(entropies)
        ctx.save_for_backward(hidden_MD, target_M, entropy_M, torch.cat(log_totals))
        ctx.policy, ctx.temperature = policy, temperature
        return logprob_M, entropy_M

    @staticmethod
    def backward(ctx: Any, by_logprob_M: Tensor, by_entropy_M: Tensor) -> tuple[Tensor, None, None, None]:
        hidden_MD, *known = ctx.saved_tensors
        known += [by_logprob_M, by_entropy_M]
        size = _chunk(ctx.policy)
        grads = []
        for hidden_CD, *known_C in zip(hidden_MD.split(size), *(x.split(size) for x in known), strict=True):
            leaf_CD = hidden_CD.detach().requires_grad_()
            with torch.enable_grad():
                scores_CV = _scores(ctx.policy, leaf_CD, ctx.temperature)
            grad_CV = torch.empty_like(scores_CV)
            rows = zip(scores_CV.detach().split(ROWS), grad_CV.split(ROWS), *(x.split(ROWS) for x in known_C), strict=True)
            for scores_BV, grad_BV, *known_B in rows:
                _gradient_of_scores(scores_BV, *known_B, out_BV=grad_BV)
            torch.autograd.backward(scores_CV, grad_CV)  # also into the output layer, where it is trained
            assert leaf_CD.grad is not None
            grads.append(leaf_CD.grad)
        return torch.cat(grads), None, None, None


def _gradient_of_scores(
    scores_BV: Tensor,
    target_B: Tensor,
    entropy_B: Tensor,
    log_total_B: Tensor,
    by_logprob_B: Tensor,
    by_entropy_B: Tensor,
    *,
    out_BV: Tensor,
) -> None:
    """Write by_logprob (onehot - p) - by_entropy p (log p + H) into `out_BV`."""
    log_probs_BV = scores_BV - log_total_B[:, None]
    torch.exp(log_probs_BV, out=out_BV)
    if bool(by_entropy_B.any()):
        constant_B1 = -(by_entropy_B * entropy_B + by_logprob_B)[:, None]
        log_probs_BV.clamp_(min=torch.finfo().min)
        out_BV.mul_(torch.addcmul(constant_B1, log_probs_BV, -by_entropy_B[:, None], out=log_probs_BV))
    else:
        out_BV.mul_(-by_logprob_B[:, None])
    out_BV.scatter_add_(1, target_B[:, None], by_logprob_B[:, None])


def _scores(policy: Policy, hidden_CD: Tensor, temperature: float) -> Tensor:
    scores_CV = policy.logits(hidden_CD)
    return scores_CV if temperature == 1 else scores_CV / temperature


def _chunk(policy: Policy) -> int:
    """Tokens per chunk."""
    return max(1, chunk_scores(policy.device) // policy.num_ids)


def chunk_scores(device: torch.device) -> int:
    """Scores over the vocabulary that exist at the same time on such a device."""
    return CHUNK_SCORES.get(device.type, CHUNK_SCORES["cuda"])


def predictors(policy: Policy, part: Pack) -> Tensor:
    """The final hidden states [M, D] from which the trained tokens are predicted."""
    return policy.hidden(part.ids_L, part.positions_L, part.view())[part.predictor_M]


@torch.no_grad()
def reference_logprobs(policy: Policy, part: Pack, temperature: float) -> Tensor:
    """Log-prob [M] of every trained token under the policy as it was at the start of training."""
    with policy.reference() as reference:
        return score(reference, part, temperature)[0]


@torch.no_grad()
def kl_to_start(policy: Policy, packs: Iterable[Pack], temperature: float) -> float | None:
    """KL(policy || start policy) per sampled token; None without a token.

    Summed over the vocabulary: an estimate from the sampled token alone is ruled by the rare token that the policy has all but
    given up.
    """
    terms = []
    for part in packs:
        own_MD = predictors(policy, part)
        with policy.reference() as reference:
            start_MD = predictors(reference, part)
        for own_CD, start_CD in zip(own_MD.split(_chunk(policy)), start_MD.split(_chunk(policy)), strict=True):
            own_CV = (policy.logits(own_CD) / temperature).log_softmax(-1)
            with policy.reference() as reference:
                start_CV = (reference.logits(start_CD) / temperature).log_softmax(-1)
            terms.append(kl_divergence(own_CV, start_CV))
    return torch.cat(terms).mean().item() if terms else None
