"""What the policy and its start say about packs of sampled tokens: log-probs, entropies, and how far they are apart.

Axes: M trained tokens of one pack, C at most LOSS_CHUNK of them, D width of the hidden states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ragen.algorithms.kl import kl_divergence
from ragen.algorithms.losses import entropy
from ragen.models.policy import Policy
from ragen.training.packing import Pack

LOSS_CHUNK = 512  # trained tokens whose scores over the vocabulary exist at the same time


def score(policy: Policy, part: Pack, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of every trained token and entropy of its distribution, both [M] in float32.

    Only the positions that predict a trained token go through the output layer, LOSS_CHUNK at a time.
    """
    hidden_MD = predictors(policy, part)
    logprobs, entropies = [], []
    for hidden_CD, target_C in zip(hidden_MD.split(LOSS_CHUNK), part.target_M.split(LOSS_CHUNK), strict=True):
        log_softmax_CV = (policy.logits(hidden_CD) / temperature).log_softmax(-1)
        logprobs.append(log_softmax_CV.gather(1, target_C[:, None])[:, 0])
        entropies.append(entropy(log_softmax_CV))
    return torch.cat(logprobs), torch.cat(entropies)


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
        for own_CD, start_CD in zip(own_MD.split(LOSS_CHUNK), start_MD.split(LOSS_CHUNK), strict=True):
            own_CV = (policy.logits(own_CD) / temperature).log_softmax(-1)
            with policy.reference() as reference:
                start_CV = (reference.logits(start_CD) / temperature).log_softmax(-1)
            terms.append(kl_divergence(own_CV, start_CV))
    return torch.cat(terms).mean().item() if terms else None
