"""Environments as a person names them: a tag of conf/env (options and budget), a registered name, or "module:Class"."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragen.environments import registry
from ragen.errors import ConfigError, near_match

_FOLDER = files("ragen").joinpath("conf", "env")


def tags() -> dict[str, str]:
    """The shipped tags, each with what its file says of it first."""
    found = sorted((Path(file.name).stem, file.read_text(encoding="utf-8")) for file in _FOLDER.iterdir())
    return {tag: text.partition("\n")[0].lstrip("# ") for tag, text in found}


def named(name: str) -> tuple[str, dict[str, Any]]:
    """(tag, settings of `environments.<tag>`) of an environment by name. Raises ConfigError with the near match.

    A tag goes before a registered name; of "module:Class" the class is the tag.
    """
    from omegaconf import OmegaConf

    if name in tags():
        content = OmegaConf.to_container(OmegaConf.create(_FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8")))
        assert isinstance(content, dict), name
        return name, {str(key): value for key, value in content.items()}
    if ":" in name or name in registry.names():
        return name.rpartition(":")[2], {"name": name}
    known = sorted({*tags(), *registry.names()})
    raise ConfigError(
        f"there is no environment {name!r}{near_match(name, known)} (known: {', '.join(known)}; or your own as module:Class)"
    )


def by_tag(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The section `environments` that holds the environments `names`. Raises ConfigError if two would share a tag."""
    section: dict[str, dict[str, Any]] = {}
    for name in names:
        tag, values = named(name)
        if tag in section:
            raise ConfigError(
                f"env=[{','.join(names)}]: two environments would have the tag {tag!r}; raise its num_groups instead"
            )
        section[tag] = values
    return section
