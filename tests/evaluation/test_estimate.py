"""What an evaluation will ask and cost, said before anybody is asked."""

from __future__ import annotations

import pytest

from ragen.engines.server_config import ServerConfig
from ragen.evaluation.config import EvaluationConfig
from ragen.evaluation.estimate import forecast, total
from ragen.evaluation.usage import Usage
from ragen.rollout.config import RolloutConfig, SamplingConfig
from ragen.rollout.context_config import ContextConfig
from ragen.rollout.environment_config import EnvironmentConfig
from tests.support import corridor as _registered  # noqa: F401 - registers the environment

WALK = EnvironmentConfig(name="corridor", options={"start": 2}, max_turns=3, max_actions=3, max_actions_per_turn=1)
ROLLOUT = RolloutConfig(sampling=SamplingConfig(max_new_tokens=30), context=ContextConfig(reply_prefix=False))
PRICED = ServerConfig(price_per_million_prompt_tokens=10.0, price_per_million_sampled_tokens=100.0)


def test_a_short_evaluation_is_the_oracle_s_and_is_scaled_up() -> None:
    """From cell 2 the oracle needs two replies: 40 episodes x 2. Its reply: <|think|>|</|think|>|<|answer|>|Right|</|answer|>."""
    walk = forecast({"walk": WALK}, EvaluationConfig(num_episodes=20, samples_per_seed=2), ROLLOUT, PRICED)["walk"]
    assert (walk.num_episodes, walk.short.num_requests) == (40, 80)
    assert walk.short.num_sampled_tokens == 80 * walk_reply()
    assert walk.short.cost == pytest.approx((10 * walk.short.num_prompt_tokens + 100 * walk.short.num_sampled_tokens) / 1e6)


def walk_reply() -> int:
    """<|think|></|think|><|answer|>|Right|</|answer|>: signs come in pairs, so "></" is ">" with "<", then "/"."""
    from ragen.models.text_chat import num_pieces

    return num_pieces("<think></think><answer>Right</answer>")


def test_a_long_evaluation_fills_every_reply() -> None:
    walk = forecast({"walk": WALK}, EvaluationConfig(num_episodes=2), ROLLOUT, PRICED)["walk"]
    assert walk.long.num_sampled_tokens == 30 * walk.long.num_requests
    assert walk.long.num_prompt_tokens > walk.short.num_prompt_tokens


def test_costs_add_up_where_all_are_known() -> None:
    one = Usage(num_requests=1, num_prompt_tokens=2, num_sampled_tokens=3, cost=0.5)
    assert total([one, one]) == Usage(num_requests=2, num_prompt_tokens=4, num_sampled_tokens=6, cost=1.0)
    assert one.line() == "1 requests, 2 prompt tokens, 3 sampled, cost 0.5000"
