"""From the first call to the last: the order of calls, closing, copies in the middle of an episode, speed."""

from __future__ import annotations

import copy
import pickle

import numpy as np
from gymnasium.error import ResetNeeded

from ragen.environments.benchmark import TextPlayer, measure
from ragen.environments.checker.report import Broken, Weak, require
from ragen.environments.checker.subject import MAX_STEPS, Subject, ends, random_action
from ragen.environments.text_env import TextEnv
from ragen.errors import EnvironmentFailure, boundary

EPISODE_S = 60.0  # for an episode that is timed as a whole
MIN_STEPS_PER_S = 1000  # below, a rollout of a small model waits for its environments


def order_of_calls(subject: Subject) -> str:
    env = subject.make()
    require(_refuses_step(subject, env), "a step before reset must raise ResetNeeded")
    for seed in subject.seeds:
        episode = subject.play(env, seed)
        if ends(episode.answers[-1]):
            require(_refuses_step(subject, env), "a step after the end must raise ResetNeeded")
            subject.begin(env, seed)  # and an ended episode can be followed by another
            return "ResetNeeded before reset and after the end"
    return f"ResetNeeded before reset; no random episode ended within {MAX_STEPS} steps"


def close(subject: Subject) -> str:
    with boundary(EnvironmentFailure, "close"):
        subject.make().close()
        env = subject.make()
        subject.begin(env, subject.seeds[0])
        env.close()
        env.close()
    return "before reset, in the middle of an episode, and twice"


def copies(subject: Subject) -> str:
    for seed in subject.seeds[:3]:
        for how, copied in (("pickle", _pickled), ("deepcopy", copy.deepcopy)):
            env = subject.make()
            subject.begin(env, seed)
            source = np.random.default_rng(seed)
            if ends(subject.step(env, random_action(env, env.action_names, source))):
                subject.begin(env, seed)  # one-step episodes: copied before the step
            try:
                with boundary(EnvironmentFailure, how):
                    twin = subject.adopt(copied(env))
            except EnvironmentFailure as error:
                raise Weak(f"cannot be copied, so neither saved nor moved to another process: {error}") from None
            state = source.bit_generator.state
            theirs = subject.go_on(twin, source)
            source.bit_generator.state = state
            alike = f"seed {seed}: after {how}, copy and original must go on identically"
            try:
                require(theirs == subject.go_on(env, source), alike)
            except EnvironmentFailure as error:  # what the copy did has changed the original
                raise Broken(f"{alike}; the original: {error}") from None
    return "copies by pickle and deepcopy go on identically"


def speed(subject: Subject) -> str:
    seen = measure(TextPlayer(subject.make()), seconds=0.1, repeats=1, on_episode=lambda: subject.touch(ahead_s=EPISODE_S))
    text = f"{seen.steps_per_s:,.0f} steps/s, {1e6 / seen.reset_us:,.0f} resets/s"
    if seen.steps_per_s < MIN_STEPS_PER_S:
        raise Weak(f"{text}; below {MIN_STEPS_PER_S:,} steps/s a rollout of a small model waits for it")
    return text


def _pickled(env: TextEnv) -> TextEnv:
    copied: TextEnv = pickle.loads(pickle.dumps(env))
    return copied


def _refuses_step(subject: Subject, env: TextEnv) -> bool:
    subject.touch()
    try:
        env.step(env.action_names[0] if env.action_names else "hello")
    except ResetNeeded:
        return True
    return False
