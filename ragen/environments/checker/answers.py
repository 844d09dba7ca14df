"""What reset and step answer: types, sizes, names and flags; each check returns a line that says what was seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ragen.environments.checker.report import require
from ragen.environments.checker.subject import MAX_STEPS, Subject, random_action
from ragen.environments.spaces import normalise
from ragen.errors import EnvironmentFailure, boundary

# The defaults of rollout.context: a longer text is cut before a model reads it; a name with the separator in it could never be
# answered.
MAX_OBSERVATION_CHARS = 8000
ACTION_SEPARATOR = "||"


def make(subject: Subject) -> str:
    return f"a {type(subject.make()).__name__}"


def reset(subject: Subject) -> str:
    for seed in subject.seeds:
        env = subject.make()
        subject.touch()
        with boundary(EnvironmentFailure, f"reset(seed={seed})"):
            answer = env.reset(seed=seed, options={"dynamics_seed": 7})
        require(isinstance(answer, tuple) and len(answer) == 2, f"reset must answer (observation, info), not {_kind(answer)}")
        require(isinstance(answer[0], str), f"the observation of reset must be a str, not {_kind(answer[0])}")
        require(isinstance(answer[1], dict), f"the info of reset must be a dict, not {_kind(answer[1])}")
        require(
            isinstance(env.instruction, str) and bool(env.instruction.strip()),
            "after reset, instruction must be a non-empty text",
        )
        require(env.observation_space.contains(answer[0]), "the observation must lie in observation_space")
    return f"(str, dict) and an instruction of {len(env.instruction)} characters"


def random_agent(subject: Subject) -> str:
    episodes = subject.random_episodes()
    texts = f", {len(subject.hostile_episodes())} hostile texts" if subject.hostile_episodes() else ""
    return f"{len(episodes)} episodes, {sum(len(episode.answers) for episode in episodes)} steps{texts}"


def answers(subject: Subject) -> str:
    for episode in (*subject.random_episodes(), *subject.hostile_episodes()):
        for answer in episode.answers:
            require(isinstance(answer, tuple) and len(answer) == 5, f"step must answer a tuple of five, not {_kind(answer)}")
            observation, reward, terminated, truncated, info = answer
            require(isinstance(observation, str), f"the observation must be a str, not {_kind(observation)}")
            require(_encodes(observation), "the observation must be text that UTF-8 can write")
            require(type(reward) is float and math.isfinite(reward), f"the reward must be a finite float, not {_kind(reward)}")
            for flag, value in (("terminated", terminated), ("truncated", truncated)):
                require(type(value) is bool, f"{flag} must be a bool, not {_kind(value)}")
            require(isinstance(info, dict), f"info must be a dict, not {_kind(info)}")
            for key in ("success", "effective"):
                require(type(info.get(key)) is bool, f"info[{key!r}] must be a bool after every step, not {_kind(info.get(key))}")
            for key, value in info.items():
                require(not isinstance(value, float) or math.isfinite(value), f"info[{key!r}] must be finite, not {value!r}")
    return "(str, float, bool, bool, dict with success and effective)"


def flags(subject: Subject) -> str:
    num_ended = 0
    for episode in subject.random_episodes():
        for number, (_, _, terminated, truncated, info) in enumerate(episode.answers, start=1):
            where = f"seed {episode.seed}, step {number}"
            require(not (terminated and truncated), f"{where}: terminated and truncated must never be set together")
            require(
                not (truncated and info.get("success")),
                f"{where}: an episode that ends with success is terminated, not truncated",
            )
            num_ended += bool(terminated or truncated)
    return f"{num_ended} of {len(subject.seeds)} random episodes ended within {MAX_STEPS} steps"


def text_size(subject: Subject) -> str:
    longest = 0
    for episode in (*subject.random_episodes(), *subject.hostile_episodes()):
        texts = (episode.start.instruction, episode.start.observation, *(answer[0] for answer in episode.answers))
        longest = max(longest, *map(len, texts))
    require(
        longest <= MAX_OBSERVATION_CHARS,
        f"a text of {longest} characters: beyond {MAX_OBSERVATION_CHARS} it is cut (rollout.context.max_observation_chars)",
    )
    return f"at most {longest} characters"


def action_names(subject: Subject) -> str:
    counts: set[int] = set()
    for seed in subject.seeds:
        env = subject.make()
        names = subject.begin(env, seed).names
        require(names is None or isinstance(names, tuple), f"action_names must be a tuple of names, or None, not {_kind(names)}")
        if names is None:
            continue
        counts.add(len(names))
        folded = {normalise(name) for name in names}
        require(len(folded) == len(names), f"action names must differ by more than case: {', '.join(names)}")
        for name in names:
            require(ACTION_SEPARATOR not in name, f"action name {name!r} must not contain the separator {ACTION_SEPARATOR!r}")
            require(not set("<>\n") & set(name), f"action name {name!r} must not contain '<', '>' or a line end")
            require(env.action_space.contains(name), f"action name {name!r} must lie in action_space")
        subject.step(env, random_action(env, names, np.random.default_rng(seed)))
        require(env.action_names == names, "action_names must not change within an episode")
    if not counts:
        return "any text is an action"
    return f"{min(counts)} names" if len(counts) == 1 else f"{min(counts)} to {max(counts)} names"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    """A value in few words: numbers as they are, the rest by type."""
    return repr(value) if isinstance(value, (bool, int, float, type(None))) else type(value).__name__
