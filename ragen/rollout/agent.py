"""The agent: one trajectory, start to end, as one coroutine. Training and evaluation run this same coroutine."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.engines.base import Engine
from ragen.errors import EngineFailure, EnvironmentFailure, PromptTooLong
from ragen.records import EndReason, FinishReason, Observation, Sampling, Trajectory
from ragen.rollout.context_manager import ContextManager
from ragen.rollout.deadline import EnvironmentTimeout
from ragen.rollout.env_handle import EnvHandle


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What ends a trajectory whose environment goes on; the action budget is the environment handle's own."""

    max_turns: int  # >= 1
    max_invalid_turns: int  # >= 1; replies in a row of which nothing was executed


async def run_trajectory(
    env: EnvHandle, context: ContextManager, engine: Engine, sampling: Sampling, limits: Limits
) -> Trajectory:
    """Play one episode. The environment is closed and the engine's cache released in every exit.

    `sampling` says how to sample; where a reply stops is the context's to say, and so is the random stream of a turn, from
    `sampling.seed` and the episode's key. Failures of environment or engine end the trajectory with an infrastructure end reason
    and are kept as its `error`; every other exception is a bug, or a setting at fault, and passes through.
    """
    end: EndReason | None = None
    success, error = False, ""
    try:
        context.observe(await env.reset())
        while end is None:
            prompt_ids = context.prompt_ids
            completion = await engine.generate(prompt_ids, context.sampling(sampling, env.key))
            if context.wants_summary:
                context.summarise(completion)
                end = None if context.has_room else EndReason.CONTEXT_LIMIT
            else:
                observation = await env.step(context.reply(completion).actions)
                context.observe(observation)
                end = _end_reason(observation, context, limits)
            said = (*prompt_ids, *completion.ids)
            if context.prompt_ids[: len(said)] != said:
                engine.release(said)  # the next prompt begins anew
        success = observation.success
    except EnvironmentTimeout as failure:
        end, error = EndReason.TIMEOUT, str(failure)
    except EnvironmentFailure as failure:
        end, error = EndReason.ENVIRONMENT_ERROR, str(failure)
    except PromptTooLong:
        end = EndReason.CONTEXT_LIMIT
    except EngineFailure as failure:
        end, error = EndReason.ENGINE_ERROR, str(failure)
    finally:
        env.close()
        engine.release(context.prompt_ids)
    return context.trajectory(key=env.key, end_reason=end, success=success, error=error)


def _end_reason(observation: Observation, context: ContextManager, limits: Limits) -> EndReason | None:
    """Why the episode ends with this observation; None if it goes on.

    The environment's own end comes first: a goal reached with the last allowed action is a success, not a limit, be it the
    environment's limit or ours.
    """
    if observation.terminated or observation.truncated:
        if observation.success:
            return EndReason.SOLVED
        return EndReason.FAILED if observation.terminated else EndReason.TRUNCATED
    if context.turns[-1].finish_reason is FinishReason.REFUSAL:
        return EndReason.REFUSED
    if context.num_invalid_turns >= limits.max_invalid_turns:
        return EndReason.PARSE_FAILURE
    if observation.actions_left == 0:
        return EndReason.ACTION_LIMIT
    if context.num_turns >= limits.max_turns:
        return EndReason.TURN_LIMIT
    if not context.has_room:
        return EndReason.CONTEXT_LIMIT
    return None
