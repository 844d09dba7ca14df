"""The oracle: it scores the maximum where that is known, and is no worse than chance elsewhere."""

from __future__ import annotations

import math

import numpy as np

from ragen.environments.checker.report import NotApplicable, require
from ragen.environments.checker.subject import MAX_STEPS, Episode, Subject, ends, random_action, shown
from ragen.environments.text_env import TextEnv


def oracle(subject: Subject) -> str:
    limit = subject.max_actions or 10 * MAX_STEPS
    num_solved = num_played = num_exact = 0
    clueless = None
    for seed in subject.seeds:
        env = subject.make()
        subject.begin(env, seed)
        best = env.max_return()
        require(best is None or (type(best) is float and math.isfinite(best)), f"max_return must be a finite float, not {best!r}")
        if env.oracle_action() is None:
            clueless = seed
            continue
        num_played += 1
        return_, success, num_actions = _play_oracle(subject, env, limit)
        num_solved += success
        if best is None:
            continue
        budget = f" within the budget of {subject.max_actions} actions" if subject.max_actions else ""
        require(success, f"seed {seed}: the oracle must solve it{budget}; after {num_actions} actions it has not")
        require(abs(return_ - best) <= 1e-9, f"seed {seed}: the oracle returns {return_!r}, but max_return says {best!r}")
        num_exact += 1
    if not num_played:
        raise NotApplicable("no oracle")
    require(clueless is None, f"seed {clueless}: there is an oracle, but it knows no first action")
    _replan(subject)
    if num_exact == num_played:
        return f"scores the maximum from all {num_played} seeds"
    num_random = sum(_solves(episode, limit) for episode in subject.random_episodes())
    # Where chance has a say, a few episodes may go the other way: two binomial counts differ by less in 97 of 100 cases.
    require(
        num_random - num_solved <= 1.9 * math.sqrt(num_random + num_solved),
        f"the oracle succeeds in {num_solved} of {num_played} episodes, the random agent in {num_random}",
    )
    return f"succeeds in {num_solved} of {num_played} episodes, the random agent in {num_random}"


def _solves(episode: Episode, limit: int) -> bool:
    return len(episode.answers) <= limit and bool(episode.answers[-1][4]["success"])


def _play_oracle(subject: Subject, env: TextEnv, limit: int) -> tuple[float, bool, int]:
    """(return, success, number of actions) of the oracle from here, in at most `limit` actions."""
    rewards: list[float] = []
    success = False
    while len(rewards) < limit:
        subject.touch()
        action = env.oracle_action()
        if action is None:
            break
        require(env.action_space.contains(action), f"oracle_action {shown(action)} is not an action")
        answer = subject.step(env, action)
        rewards.append(answer[1])
        success = bool(answer[4]["success"])
        if ends(answer):
            break
    return math.fsum(rewards), success, len(rewards)


def _replan(subject: Subject) -> None:
    """The oracle must have an answer, or None, after any action, not only along its own path."""
    for seed in subject.seeds:
        env = subject.make()
        subject.begin(env, seed)
        source = np.random.default_rng(seed)
        for _ in range(5):
            if ends(subject.step(env, random_action(env, env.action_names, source))):
                break
            subject.touch()
            action = env.oracle_action()
            require(action is None or env.action_space.contains(action), f"oracle_action {action!r} is not an action")
