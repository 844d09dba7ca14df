from __future__ import annotations

import pytest

from ragen.credit.config import AdvantageConfig
from ragen.credit.estimators import estimate
from ragen.errors import TrainingError
from tests.support.views import make_view

VIEWS = [make_view((2, 1), (1, 0)), make_view((3,), (3,))]


def of(name: str) -> AdvantageConfig:
    return AdvantageConfig(estimator=f"tests.support.plugins:{name}")


def test_an_estimator_of_one_s_own_is_asked() -> None:
    """Half of what GRPO says of 1 and 3 without division: -1 and 1. It is not whitened, though whitening is on by default."""
    config = AdvantageConfig(estimator="tests.support.plugins:half_grpo", method="mean")
    assert [credit.advantages.tolist() for credit in estimate(VIEWS, config)] == [[-0.5] * 3, [0.5] * 3]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_for_all", "must answer one Credit per trajectory, 2, not 1"),
        ("one_number", r"advantages must be an array \[S=3\] with one number per token, not \(1,\)"),
        ("plain_numbers", "must answer a list of ragen.credit.credit.Credit, not of float"),
        ("raises", "KeyError: 'bonus'"),
    ],
)
def test_what_an_estimator_of_one_s_own_answers_wrongly_is_said_in_one_line(name: str, message: str) -> None:
    """Bug-log row 32: one value for a batch is never copied to all."""
    with pytest.raises(TrainingError, match=rf"algorithm.advantage.estimator='tests.support.plugins:{name}': {message}"):
        estimate(VIEWS, of(name))
