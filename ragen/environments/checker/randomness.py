"""Where chance comes from: the task seed, the dynamics seed, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ragen.environments import registry
from ragen.environments.checker.report import Broken, NotApplicable, Weak, require
from ragen.environments.checker.subject import Subject, comparable, difference
from ragen.errors import ConfigError

NUM_TOLD = 3  # episodes compared with another process
START_S = 60.0  # for it to start, import and play


def determinism(subject: Subject) -> str:
    for episode in subject.random_episodes():
        found = difference(episode, subject.play(subject.make(), episode.seed))
        require(not found, f"equal seeds and actions must give equal episodes; {found}")
    return f"two copies agree from {len(subject.seeds)} seeds"


def history(subject: Subject) -> str:
    reused = subject.make()
    for episode in subject.random_episodes():
        found = difference(episode, subject.play(reused, episode.seed))
        require(not found, f"an episode must not depend on those before it; {found}")
    return f"{len(subject.seeds)} episodes in a row on one copy, each as on a fresh one"


def task_seed(subject: Subject) -> str:
    num = len(subject.seeds)
    if num < 2:
        raise NotApplicable("needs at least two seeds")
    starts = {
        (episode.start.instruction, episode.start.observation, episode.start.names) for episode in subject.random_episodes()
    }
    if len(starts) > 1:
        return f"{len(starts)} different first prompts from {num} seeds"
    # The first prompt may hide what was drawn; then the same choices lead elsewhere.
    first, *others = [subject.play(subject.make(), seed, choices=0) for seed in subject.seeds]
    if any(difference(first, other) for other in others):
        return f"one first prompt, but other episodes behind it from {num} seeds"
    fresh = np.random.default_rng(first.seed).bit_generator.state
    left = [_generator_after_reset(subject, seed) for seed in subject.seeds[:2]]
    if left[0] == fresh:
        raise NotApplicable("one start: reset draws nothing from np_random")
    require(left[0] != left[1], f"np_random and the start are the same from {num} seeds: reset must hand the seed on")
    raise Weak(f"reset draws from np_random, yet {num} seeds all give the same start")


def dynamics_seed(subject: Subject) -> str:
    chance = False
    for episode in subject.random_episodes():
        other = subject.play(subject.make(), episode.seed, dynamics_seed=8)
        require(other.start == episode.start, f"seed {episode.seed}: the dynamics seed must not change the first prompt")
        chance = chance or bool(difference(episode, other))
    return "the first prompt stays; " + ("later steps depend on it" if chance else "nothing is left to chance")


def global_randomness(subject: Subject) -> str:
    before = _global_states()
    subject.play(subject.make(), subject.seeds[0])
    after = _global_states()
    touched = [package for package, state in before.items() if after.get(package) != state]
    require(not touched, f"the global generators must not be used; changed: {', '.join(touched)}")
    return f"untouched: {', '.join(before)}"


def other_process(subject: Subject) -> str:
    """The order of a set of texts, for one, is another in every process."""
    try:
        name = registry.portable_name(subject.name)
    except ConfigError as error:
        raise NotApplicable(str(error)) from None
    question = json.dumps([name, subject.options, subject.seeds[:NUM_TOLD]])
    code = f"import sys; from {__name__} import tell; tell(sys.argv[1])"
    surroundings = {**os.environ, "PYTHONHASHSEED": "4321", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subject.touch(ahead_s=START_S)
    result = subprocess.run(
        [sys.executable, "-c", code, question], capture_output=True, text=True, env=surroundings, timeout=START_S, check=False
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise Broken(f"cannot be made and played in another process: {last[:200]}")
    theirs = result.stdout.strip().splitlines()[-1]
    require(theirs == _told(subject), "another process, with another PYTHONHASHSEED, must see equal episodes")
    return "equal episodes with another PYTHONHASHSEED"


def tell(question: str) -> None:
    """Print what `other_process` wants to know of this one."""
    name, options, seeds = json.loads(question)
    subject = Subject(name, options, tuple(seeds), None)
    print(_told(subject))
    subject.close()


def _told(subject: Subject) -> str:
    episodes = [subject.play(subject.make(), seed) for seed in subject.seeds[:NUM_TOLD]]
    return hashlib.sha256(repr([comparable(episode) for episode in episodes]).encode(errors="replace")).hexdigest()


def _generator_after_reset(subject: Subject, seed: int) -> Any:
    env = subject.make()
    subject.begin(env, seed)
    return env.np_random.bit_generator.state


def _global_states() -> dict[str, str]:
    """The states of the global generators of this process; of torch only if somebody has imported it."""
    states = {"random": repr(random.getstate()), "numpy": repr(np.random.get_state())}
    if torch := sys.modules.get("torch"):
        states["torch"] = repr(torch.get_rng_state().tolist())
    return states


@contextmanager
def global_states_kept() -> Iterator[None]:
    """Give random and numpy their states back, whatever the environment does to them.

    Inside they begin anywhere, so that nothing which leans on them comes out the same twice.
    """
    states = random.getstate(), np.random.get_state()
    random.seed()
    np.random.seed()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
