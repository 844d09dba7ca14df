"""What each changed setting means for a run that is resumed: from when it acts, or why the run cannot go on with it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ragen.config.changes import Change, changes
from ragen.config.schema import Config
from ragen.errors import ConfigError

NEXT_STEP = "takes effect from the next step"

# The first pattern that fits a key counts, in this order of tables.
PATIENCE = tuple((f"environments.*.{key}", NEXT_STEP) for key in ("runs_in", "num_workers", "step_timeout_s", "max_seconds"))
# What may change though the group that it belongs to may not.
AT_WILL = (("model.kernels", f"{NEXT_STEP}; the last bits of what is sampled change"), *PATIENCE)
REFUSED = (
    ("seed", "every random stream of the run is a function of it"),
    ("model.*", "the checkpoint's weights, and the prompts that they were trained on, are of the model as it was set up"),
    ("rollout.group_size", "advantages compare the members of a group, so steps before and after would be of two runs"),
    ("algorithm.critic.kind", "the checkpoint holds a critic of the other kind"),
    ("algorithm.critic.model", "the checkpoint holds a critic of the other model"),
    ("algorithm.critic.lora_rank", "the checkpoint holds a critic of the other rank"),
    ("environments.*", "episodes, their seeds and the held-out ones are those of the environments that the run began with"),
)
ALLOWED = (
    ("name", "the run folder has been renamed; nothing else depends on it"),
    ("output_dir", "the run folder has been moved; nothing else depends on it"),
    ("trainer.steps", "where the run ends"),
    ("trainer.on_signal", "takes effect at once"),
    ("trainer.updates_per_rollout", f"{NEXT_STEP}, counted from the first step of the run"),
    ("trainer.pack_tokens", f"{NEXT_STEP}; the last bits of gradients change"),
    ("trainer.memory_budget", "has no effect: the run keeps the size of its packs"),
    ("trainer.keep_*", "takes effect with the next file that is written"),
    ("optimizer.warmup_steps", "still counted from the first optimiser step of the run"),
    ("optimizer.*", f"{NEXT_STEP}; the optimiser keeps its moments"),
    ("algorithm.critic.*", f"{NEXT_STEP} of the critic"),
    ("algorithm.*", NEXT_STEP),
    ("rewards.*", f"{NEXT_STEP}; returns before and after it are not on one scale"),
    ("rollout.curriculum.rule", f"{NEXT_STEP}; a curriculum that is switched on has seen nothing yet"),
    ("evaluation.before_training", "has no effect: the run has begun"),
    ("evaluation.every", NEXT_STEP),
    ("evaluation.beside", NEXT_STEP),
    ("evaluation.*", "takes effect from the next evaluation; earlier ones cannot be compared with it"),
    ("tracking.*", "trackers that are added begin with the next step"),
    ("*", NEXT_STEP),
)


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """A changed setting and what it means."""

    change: Change
    meaning: str
    is_refused: bool

    def __str__(self) -> str:
        return f"{self.change}: {self.meaning}"


def consequences(old: Config, new: Config) -> list[Consequence]:
    """One for each setting in which a resumed run differs from the configuration that it was last run with, in order of keys."""
    return [_consequence(change, old, new) for change in changes(old, new)]


def refuse_what_cannot_continue(found: list[Consequence]) -> None:
    """Raise ConfigError, naming every change that the run cannot go on with and why, if there is any."""
    refused = [each for each in found if each.is_refused]
    if refused:
        because = "; ".join(f"{each.change}: {_cannot(each)}" for each in refused)
        raise ConfigError(f"{because}. Leave it as it was, or start a new run with name=...")


def _cannot(refused: Consequence) -> str:
    return f"cannot change when a run is resumed, since {refused.meaning}"


def _consequence(change: Change, old: Config, new: Config) -> Consequence:
    key = change.key
    at_will = _first(AT_WILL, key)
    reason = None if at_will else _first(REFUSED, key) or _of_state(change, old, new)
    if reason:
        return Consequence(change=change, meaning=reason, is_refused=True)
    meaning = at_will or _of_critic(key, old, new) or _first(ALLOWED, key)
    assert meaning is not None, key
    return Consequence(change=change, meaning=meaning, is_refused=False)


def _of_state(change: Change, old: Config, new: Config) -> str | None:
    """Why what the checkpoint holds, or lacks, stands against a change."""
    needs = [config.algorithm.advantage.needs_critic for config in (old, new)]
    if change.key.startswith("algorithm.advantage.") and needs == [False, True]:
        return "the run began without a critic, so the checkpoint holds none"
    if change.key == "algorithm.kl.coef" and new.algorithm.kl.target is not None:
        return "with algorithm.kl.target the weight is led by the run, which goes on with the one in the checkpoint"
    return None


def _of_critic(key: str, old: Config, new: Config) -> str | None:
    needs = [config.algorithm.advantage.needs_critic for config in (old, new)]
    if key.startswith("algorithm.advantage.") and needs == [True, False]:
        return f"{NEXT_STEP}; the critic is left behind, and later checkpoints hold none"
    return None


def _first(rules: tuple[tuple[str, str], ...], key: str) -> str | None:
    return next((meaning for pattern, meaning in rules if fnmatchcase(key, pattern)), None)
