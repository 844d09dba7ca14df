from __future__ import annotations

import logging

import pytest
import torch

from ragen.errors import TrainingError
from ragen.training.memory_plan import LARGEST_PACK, SMALLEST_PACK
from ragen.training.pack_size import PackSize
from ragen.training.packing import Pack
from ragen.training.update import Learner
from tests.support.learners import make_learner, random_samples, same_tensors, small_policy, weights

TORCH_ON_THE_CPU = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
)


def shortage(kind: str) -> Exception:
    return {
        "torch": RuntimeError(TORCH_ON_THE_CPU),
        "cuda": torch.OutOfMemoryError("CUDA out of memory"),
        "python": MemoryError(),
    }[kind]


@pytest.mark.parametrize("kind", ["torch", "cuda", "python"])
def test_work_is_done_again_with_half_the_size_after_what_it_left_is_undone(kind: str) -> None:
    size, seen = PackSize(1000), []

    def work() -> str:
        seen.append(size.tokens)
        if size.tokens > 300:
            raise shortage(kind)
        return "done"

    assert size.attempt(work, undo=lambda: seen.append(0)) == "done"
    assert seen == [1000, 0, 500, 0, 250]
    assert size.take_count() == 2
    assert size.take_count() == 0


def test_the_smallest_size_that_does_not_fit_ends_the_run_with_what_to_do() -> None:
    size = PackSize(LARGEST_PACK)

    def work() -> None:
        raise shortage("torch")

    with pytest.raises(TrainingError, match=r"out of memory in the update with packs of 64 tokens .*max_context_tokens"):
        size.attempt(work)
    assert size.tokens == SMALLEST_PACK


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("can't allocate memory")])
def test_other_errors_are_not_taken_for_a_shortage(error: Exception) -> None:
    size = PackSize()

    def work() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        size.attempt(work)
    assert size.tokens == LARGEST_PACK


def test_an_update_that_runs_out_of_memory_ends_as_one_that_began_with_smaller_packs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The shortage comes in the backward pass of the second pack: the gradient of the first must not count twice."""
    samples = random_samples(12)
    small, short = small_policy(), small_policy()
    largest = max(len(s.ids) - s.prompt_length for s in samples)
    assert largest < SMALLEST_PACK  # so that a pack of the smallest size still holds several
    expected = make_learner(small, num_minibatches=1)
    expected.pack_size.tokens = SMALLEST_PACK
    metrics = expected.update(samples, step=0).metrics

    learner = make_learner(short, num_minibatches=1)
    learner.pack_size.tokens = 2 * SMALLEST_PACK
    honest, calls = Learner._backward, []

    def short_of_memory(self: Learner, part: Pack, scale: object) -> object:
        calls.append(self.pack_size.tokens)
        done = honest(self, part, scale)  # type: ignore[arg-type]
        if len(calls) == 2:
            raise shortage("torch")
        return done

    monkeypatch.setattr(Learner, "_backward", short_of_memory)
    with caplog.at_level(logging.WARNING, logger="ragen"):
        found = learner.update(samples, step=0)
    assert calls[:3] == [2 * SMALLEST_PACK, 2 * SMALLEST_PACK, SMALLEST_PACK]
    assert same_tensors(weights(short), weights(small))
    assert found.metrics["update/out_of_memory"] == 1
    assert found.metrics["update/policy_loss"] == metrics["update/policy_loss"]
    assert found.num_applied == 1
    assert "once more with packs of 64 tokens" in caplog.text
    assert learner.state_dict()["pack_tokens"] == SMALLEST_PACK  # a resumed run goes on with it
