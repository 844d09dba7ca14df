"""Overrides from the command line: read with Hydra's own grammar, refused here in one line if they could not act.

An override is `key=value`, a group choice `model=tiny` (a file of conf/model/), other environments `env=NAME` or `env=[A,B]`, one
more under a tag of your own, `+env@environments.TAG=NAME`, or the removal of one, `~environments.TAG`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen.config import schema
from ragen.errors import ConfigError, near_match

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Checked overrides as Hydra takes them: choices decide what the configuration is made of, values change it then.

    `environments` are the names that replace every environment there is, if any.
    """

    choices: tuple[str, ...]
    values: tuple[str, ...]
    environments: tuple[str, ...] = ()

    def check_tags(self, tags: Collection[str]) -> None:
        """Raise ConfigError for a value of an environment that is not there."""
        for token in self.values:
            key = token.lstrip("+~").partition("=")[0]
            section, _, rest = key.partition(".")
            tag = rest.partition(".")[0]
            if section == "environments" and tag and tag not in tags:
                raise ConfigError(
                    f"override {token.lstrip('+')!r}: no environment has the tag {tag!r} (tags: {', '.join(tags) or 'none'})"
                    f"{near_match(tag, tags)}; to add one: +env@environments.{tag}=NAME"
                )


def parse(overrides: Sequence[str], *, groups: Mapping[str, Collection[str]], append_groups: bool) -> Overrides:
    """Check each override against the keys and groups there are.

    `groups` maps a config group to its options. `append_groups`: the configuration has no defaults list (the resolved file of a
    run), so a group choice is laid over it instead of replacing an earlier choice.
    Raises ConfigError naming the override, what is allowed and the near match.
    """
    choices, values = [], []
    environments: tuple[str, ...] = ()
    for text in overrides:
        override = _parse(text)
        key = override.key_or_group
        if key == "env" and override.package is None and not override.is_delete() and not override.is_sweep_override():
            if environments:
                raise ConfigError(f"override {text!r}: env is given twice; several environments are written env=[a,b]")
            environments = _names(text, override)
            continue
        if override.is_sweep_override():
            raise ConfigError(
                f"override {text!r}: one run takes one value; a list is written {key}=[a,b], text with commas {key}='\"a,b\"'"
            )
        if override.package is not None or (
            key in groups and not override.is_delete() and not isinstance(override.value(), dict)
        ):
            choices.append(_group_choice(text, override, groups, append_groups))
        else:
            values.append(_value(text, override))
    return Overrides(choices=tuple(choices), values=tuple(values), environments=environments)


def _names(text: str, override: Override) -> tuple[str, ...]:
    value = override.value()
    names = tuple(str(name) for name in value) if isinstance(value, list) else (str(value),)
    if not all(names) or not names or isinstance(value, dict):
        raise ConfigError(f"override {text!r}: must name an environment, or several as env=[a,b]; `ragen envs` lists them")
    return names


def _parse(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    try:
        (override,) = OverridesParser.create().parse_overrides([text])
    except OverrideParseException as cause:
        raise ConfigError(
            f"override {text!r}: cannot be read as key=value; special characters need quotes inside quotes: key='\"a=b\"'"
        ) from cause
    if not override.key_or_group:
        raise ConfigError(f"override {text!r}: the key before '=' is missing")
    return override


def _group_choice(text: str, override: Override, groups: Mapping[str, Collection[str]], append_groups: bool) -> str:
    group, choice, package = override.key_or_group, override.value(), override.package
    if group not in groups:
        raise ConfigError(
            f"override {text!r}: there is no group {group!r}{near_match(group, groups)} (groups: {', '.join(sorted(groups))})"
        )
    if override.is_delete():
        raise ConfigError(f"override {text!r}: a group cannot be removed; an environment is removed with ~environments.TAG")
    if choice not in groups[group]:
        hint = near_match(str(choice), groups[group])
        folder = "; a folder or hub id is set as model.name=..." if group == "model" and not hint else ""
        raise ConfigError(f"override {text!r}: {group} must be one of {', '.join(sorted(groups[group]))}{hint}{folder}")
    if group == "env" and not (package or "").startswith("environments."):
        raise ConfigError(
            f"override {text!r}: env={choice} replaces the environments, +env@environments.TAG={choice} adds one under a tag"
        )
    if group != "env" and package is not None:
        raise ConfigError(f"override {text!r}: '@' is for environments only; write {group}={choice}")
    return f"+{text}" if append_groups and not override.is_add() else text


def _value(text: str, override: Override) -> str:
    key = override.key_or_group
    if schema.type_of(key) is None:
        raise ConfigError(f"override {text!r}: {schema.unknown(key)}")
    if override.is_delete():
        parts = key.split(".")
        if parts[0] == "environments" and (len(parts) == 2 or (len(parts) == 4 and parts[2] == "options")):
            return text
        raise ConfigError(f"override {text!r}: only an environment (~environments.TAG) or one of its options can be removed")
    if override.value() == {}:
        raise ConfigError(f"override {text!r}: a mapping is merged into what is there, so an empty one changes nothing")
    # Whether a key is already there makes no difference to the person who sets it: `key=`, `+key=` and `++key=` are one.
    return "++" + text.lstrip("+")
