"""`ragen tokens`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragen.cli.output import Flag, Json, Repeated, console, print_json
from ragen.errors import ConfigError

if TYPE_CHECKING:
    from ragen.config.schema import Config


def tokens(
    recipe: str,
    /,
    *overrides: str,
    env: str | None = None,
    model: str | None = None,
    sampled: Flag = False,
    oracle: Flag = False,
    scripted: Repeated = None,
    seed: int = 0,
    turns: int | None = None,
    as_json: Json = False,
) -> None:
    """Show an episode token by token: who wrote each, which are trained, and what is so with the model's chat template.

    Without --sampled no weights are loaded: the environment's oracle replies, or chance where there is none.

    Parameters
    ----------
    recipe
        a recipe, a YAML file, or the folder of an earlier run
    overrides
        settings to change, as in `ragen train`, such as rollout.context.mode=window
    env
        a tag of the recipe, or another environment by name; default: the recipe's first
    model
        whose tokenizer and chat template it is, instead of the recipe's
    sampled
        sample the replies from the model, as it is before training, and show their log-probs
    oracle
        have the environment's oracle reply; an error where there is none
    scripted
        a reply, as a model would write it behind the prompt; may be repeated, the last one goes on
    seed
        the task seed
    turns
        show so many turns at most; the prompts stay as they are
    as_json
        print everything as JSON, progress on stderr
    """
    from ragen.cli.token_page import print_page
    from ragen.config.check import check_trainable
    from ragen.models.aliases import resolve
    from ragen.tokens import Author, trace_episode
    from ragen.training.display import Display

    flags = {Author.MODEL: ("--sampled", sampled), Author.ORACLE: ("--oracle", oracle), Author.SCRIPT: ("--scripted", scripted)}
    chosen = [author for author, (_, given) in flags.items() if given]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(flags[author][0] for author in chosen)}: give one of them")
    if seed < 0:
        raise ConfigError(f"--seed={seed}: must be at least 0")
    if turns is not None and turns < 1:
        raise ConfigError(f"--turns={turns}: must be at least 1")
    config, tag = _load(recipe, overrides, env, model)
    check_trainable(config)
    display = Display(console(stderr=True))
    resolve(config.model.name, display.download)
    display.end_download()
    trace = trace_episode(config, tag, author=next(iter(chosen), None), seed=seed, num_turns=turns, replies=scripted or ())
    if as_json:
        print_json(trace.to_json())
    else:
        print_page(console(), trace)


def _load(recipe: str, overrides: Sequence[str], env: str | None, model: str | None) -> tuple[Config, str]:
    """The configuration and the tag of the environment to play."""
    from ragen.config.load import load

    if env is not None and env not in load(recipe).environments:
        overrides = (f"env={env}", *overrides)
        config = load(recipe, overrides)
        tag = next(iter(config.environments))
    else:
        config = load(recipe, overrides)
        tag = env or next(iter(config.environments))
    if model is not None:
        config = replace(config, model=replace(config.model, name=model))
    return config, tag
