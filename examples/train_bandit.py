"""An environment of one's own, and the training loop by hand. Settings can be given as for `ragen train`."""

import asyncio
import sys

from ragen.config.load import load
from ragen.credit.samples import make_samples
from ragen.engines.torch_engine import TorchEngine
from ragen.environments.registry import register
from ragen.environments.text_env import StepAnswer, TextEnv
from ragen.models.chat import ChatTemplate
from ragen.models.policy import load_policy
from ragen.records import Sampling, Split
from ragen.rollout.collect import collect, context_factory
from ragen.rollout.state_manager import EnvStateManager
from ragen.training.update import Learner


class Doors(TextEnv):
    def _begin(self) -> str:
        self.action_names = ("Red", "Blue")
        self.instruction = "There are two doors, Red and Blue. One of them hides a prize."
        return "Open a door."

    def _play(self, action: str) -> StepAnswer:
        won = action == "Blue"
        return f"You opened {action}.", float(won), True, False, {"success": won, "effective": True}


register("doors", Doors, "two doors, one prize")
one_action = [f"environments.doors.{limit}=1" for limit in ("max_turns", "max_actions", "max_actions_per_turn")]
config = load("bandit", ["env=doors", *one_action, *sys.argv[1:]])
group_size, algorithm, sampling = config.rollout.group_size, config.algorithm, config.rollout.sampling
request = Sampling(max_new_tokens=sampling.max_new_tokens, temperature=sampling.temperature)

policy = load_policy(config.model, seed=config.seed)
engine = TorchEngine(policy)
environments = EnvStateManager(config.environments, group_size=group_size, run_seed=config.seed, split=Split.TRAIN)
make_context = context_factory(ChatTemplate(policy.tokenizer), config.rollout)  # a ContextManager per trajectory
learner = Learner(policy, algorithm, config.optimizer, temperature=request.temperature, run_seed=config.seed)

for step in range(config.trainer.steps):
    groups = asyncio.run(collect(environments.open(step), make_context, engine, request, config.rollout))
    samples = make_samples(groups, algorithm.advantage)
    learner.update(samples, step=step)
    won = [trajectory.success for group in groups for trajectory in group.trajectories]
    print(f"step {step + 1}: {sum(won)} of {len(won)} found the prize", flush=True)
