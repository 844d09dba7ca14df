"""`ragen play`."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ragen.cli.output import Flag, Options, print_table
from ragen.errors import ConfigError


def play(
    env: str,
    /,
    *overrides: str,
    keys: Flag = False,
    oracle: Flag = False,
    random_agent: Annotated[bool, Parameter(name="--random", negative="")] = False,
    seed: int | None = None,
    model: str = "tiny",
    option: Options = None,
    save: Path | None = None,
) -> None:
    """Play one episode yourself, through the agent loop of training: you read what a model reads and answer in its place.

    Type actions, several in one answer separated as the prompt says, or a whole reply with its tags. Ctrl-D or quit leaves.

    Parameters
    ----------
    env
        a tag, a registered environment, or module:Class of your own
    overrides
        settings to change, as in `ragen train`, such as rollout.context.think=false
    keys
        single keys instead of lines: arrows or w, a, s, d for Up, Down, Left and Right, digits for other actions
    oracle
        watch the environment's oracle play
    random_agent
        watch an agent that plays at random
    seed
        the task seed; default: another one each time
    model
        whose chat template and tokenizer make the prompt
    option
        KEY=VALUE, an option of the environment; may be repeated
    save
        write the trajectory to this rollout file (Parquet)
    """
    from ragen.config.evaluation import load_for_evaluation
    from ragen.play import ROOM, Who, save_trajectory, summary, turn_rows
    from ragen.play import play as run

    chosen = [who for who, flag in ((Who.KEYS, keys), (Who.ORACLE, oracle), (Who.RANDOM, random_agent)) if flag]
    if len(chosen) > 1:
        raise ConfigError(f"--{chosen[0]} and --{chosen[1]}: give one of them")
    task_seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    if task_seed < 0:
        raise ConfigError(f"--seed={task_seed}: must be at least 0")
    config = load_for_evaluation(model, None, names=[env], options=option or (), overrides=[*ROOM, *overrides])
    trajectory = run(config, who=chosen[0] if chosen else Who.PERSON, seed=task_seed, stream=sys.stdin, show=print)
    if save is not None:
        save_trajectory(trajectory, save)
        print(f"saved as {save}")
    print(f"\n{summary(trajectory)}; --seed {task_seed} begins like this again")
    print_table(("turn", "actions", "reward", "format penalty", "verdict"), turn_rows(trajectory))
