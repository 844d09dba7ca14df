"""What all adapters share: when an outside environment counts as solved, and what becomes of its info."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragen.environments.adapters.base import SuccessRule, plain_numbers


@pytest.mark.parametrize(
    ("rule", "info", "ended", "episode_return", "solved"),
    [
        # neither key nor threshold: what info says, else terminated with a return above 0
        ({}, {}, "terminated", 1.0, True),
        ({}, {}, "terminated", 0.0, False),
        ({}, {}, "truncated", 1.0, False),
        ({}, {}, "", 1.0, False),
        ({}, {"success": False}, "terminated", 1.0, False),
        ({}, {"is_success": np.bool_(True)}, "", 0.0, True),
        ({}, {"success": 0, "is_success": True}, "", 0.0, False),
        ({}, {"success": None}, "terminated", 1.0, True),
        # a key: that alone
        ({"key": "won"}, {"won": 1.0}, "", 0.0, True),
        ({"key": "won"}, {"success": True}, "terminated", 1.0, False),
        # a threshold: any end with that return
        ({"threshold": 475.0}, {}, "truncated", 500.0, True),
        ({"threshold": 475.0}, {}, "terminated", 475.0, True),
        ({"threshold": 475.0}, {}, "terminated", 20.0, False),
        ({"threshold": -13.0}, {"success": False}, "terminated", -13.0, True),
        ({"threshold": 1.0}, {}, "", 5.0, False),
    ],
)
def test_when_an_outside_environment_counts_as_solved(
    rule: dict[str, Any], info: dict[str, Any], ended: str, episode_return: float, solved: bool
) -> None:
    found = SuccessRule(**rule).holds(
        info, terminated=ended == "terminated", truncated=ended == "truncated", episode_return=episode_return
    )
    assert found is solved


def test_of_info_only_finite_numbers_stay_and_as_plain_types() -> None:
    info = {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": "text", "e": np.zeros(2), "f": float("nan"), 7: 1}
    plain = plain_numbers(info)
    assert plain == {"a": 3, "b": 0.5, "c": True}
    assert [type(value) for value in plain.values()] == [int, float, bool]
