"""From a recipe or a YAML file, plus overrides, to one checked Config.

    load("bandit", ["trainer.steps=5"])         a recipe of ragen/conf
    load("runs/bandit")                         the resolved configuration of a run
    load("my_recipe.yaml", ["algorithm=arpo"])  any file of values, with or without a defaults list

Hydra composes (groups, defaults lists, overrides); its objects never leave this folder.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragen.config import schema
from ragen.config.check import check
from ragen.config.environments import by_tag
from ragen.config.explain import one_line
from ragen.config.overrides import Overrides, parse
from ragen.config.schema import Config
from ragen.errors import ConfigError, boundary, near_match

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SCHEMA = "schema"  # the name under which the dataclass tree stands in a defaults list
_FILE = "from_file"
_UNICODE_LINE_ENDS = frozenset("\x85\u2028\u2029")
_CONF = files("ragen").joinpath("conf")


def recipes() -> list[str]:
    """The names of the shipped recipes."""
    return sorted(Path(entry.name).stem for entry in _CONF.iterdir() if entry.name.endswith(".yaml"))


def recipe_text(recipe: str) -> str:
    """A shipped recipe as it is written; its first comment says what it is for."""
    return _CONF.joinpath(f"{recipe}.yaml").read_text(encoding="utf-8")


def groups() -> dict[str, list[str]]:
    """The config groups (folders of conf/ but `suite`, which is no part of a configuration) and the options of each."""
    folders = sorted((e for e in _CONF.iterdir() if e.is_dir() and e.name != "suite"), key=lambda entry: entry.name)
    return {folder.name: sorted(Path(file.name).stem for file in folder.iterdir()) for folder in folders}


def load(target: str, overrides: Sequence[str] = ()) -> Config:
    """Load a recipe by name, a YAML file by path, or the configuration of a run by its folder; checked.

    Raises ConfigError, in one line, for whatever is wrong with the name, the file, an override or the values together.
    """
    path = Path(target)
    if target in recipes():
        return load_recipe(target, overrides)
    if path.is_dir():
        return load_file(path / "config.yaml", overrides)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return load_file(path, overrides)
    return load_recipe(target, overrides)


def load_recipe(recipe: str, overrides: Sequence[str] = ()) -> Config:
    """Load a shipped recipe; `recipes()` lists them."""
    if recipe not in recipes():
        hint = near_match(recipe, recipes())
        raise ConfigError(f"there is no recipe {recipe!r} (recipes: {', '.join(recipes())}; or the path of a YAML file){hint}")
    return _compose(recipe, parse(overrides, groups=groups(), append_groups=False), source=f"recipe {recipe!r}")


def load_file(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Load a YAML file: the config.yaml of a run, or a recipe of one's own.

    A defaults list may name a shipped recipe (`defaults: [bandit, _self_]`) or groups (`defaults: [{model: tiny}, _self_]`).
    """
    return load_values(read_file(path), overrides, source=str(path))


def load_values(values: Mapping[str, Any], overrides: Sequence[str] = (), *, source: str) -> Config:
    """Load what `read_file` gave, or values made elsewhere; `source` names them in errors."""
    from hydra.core.config_store import ConfigStore

    content = {key: value for key, value in values.items() if key != "defaults"}
    defaults = values.get("defaults")
    _check_keys(content, source)
    tokens = parse(overrides, groups=groups(), append_groups=defaults is None)
    if defaults is None:
        content = _without_sections_of(content, tokens.choices)
    ConfigStore.instance().store(name=_FILE, node={"defaults": _with_schema(defaults, source), **content})
    return _compose(_FILE, tokens, source)


def read_file(path: Path) -> dict[str, Any]:
    """The plain content of a YAML file with keys and values. Raises ConfigError if it is missing or something else."""
    from omegaconf import OmegaConf

    if not path.is_file():
        raise ConfigError(f"{path}: no such file (recipes: {', '.join(recipes())})")
    with boundary(ConfigError, str(path)):
        content = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold keys and values, found a {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


def dump(config: Config) -> str:
    """The configuration as YAML, every key with its value; `load_file` of it gives an equal Config."""
    from omegaconf import OmegaConf

    values = _escaped(asdict(config))
    text = OmegaConf.to_yaml(OmegaConf.create(values))
    if _UNICODE_LINE_ENDS.isdisjoint(text):
        return text
    # YAML would fold these like a line end. JSON can escape them, and is YAML but for its pairs of surrogates.
    text = json.dumps(values, indent=2, ensure_ascii=False)
    return "".join(c if c == "\n" or c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}" for c in text) + "\n"


def _compose(name: str, overrides: Overrides, source: str) -> Config:
    from omegaconf import OmegaConf

    with one_line(source):
        chosen = _choose(name, overrides.choices) if name == _FILE else copy.deepcopy(_choose_shipped(name, overrides.choices))
        if overrides.environments:
            chosen.environments = {}  # nothing of the former environments may stay, also not of one with the same tag
            OmegaConf.update(chosen, "environments", by_tag(overrides.environments), merge=True, force_add=True)
        overrides.check_tags(list(chosen.environments))
        for token in overrides.values:
            _set(chosen, token)
        config = cast(Config, OmegaConf.to_object(chosen))
    check(config)
    return config


def _choose(name: str, choices: Sequence[str]) -> DictConfig:
    """What the defaults list and the choices of groups amount to. The only place where Hydra's global state is touched."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name=_SCHEMA, node=_schema())
    with as_file(_CONF) as folder, _no_other_hydra(), initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        return compose(name, overrides=list(choices))


@functools.lru_cache(maxsize=64)
def _choose_shipped(recipe: str, choices: tuple[str, ...]) -> DictConfig:
    """The same of files that do not change, kept: Hydra takes a tenth of a second. Shared: copy before changing it."""
    return _choose(recipe, choices)


@functools.cache
def _schema() -> DictConfig:
    from omegaconf import OmegaConf

    return cast("DictConfig", OmegaConf.structured(Config))


def _set(config: DictConfig, token: str) -> None:
    """Set or remove one value, as Hydra does once everything is composed."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import ConfigCompositionException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    (override,) = OverridesParser.create().parse_overrides([token])
    key = override.key_or_group
    try:
        if not override.is_delete():
            OmegaConf.update(config, key, override.value(), merge=True, force_add=True)
            return
        parent, _, last = key.rpartition(".")
        section = OmegaConf.select(config, parent)
        if last not in section:
            raise ConfigError(f"override {token!r}: there is no {key} to remove")
        if (value := override.value()) not in (None, section[last]):
            raise ConfigError(f"override {token!r}: {key} is {section[last]}, not {value}")
        with open_dict(config):
            del section[last]
    except OmegaConfBaseException as error:
        raise ConfigCompositionException(f"override {token!r}") from error


@contextmanager
def _no_other_hydra() -> Iterator[None]:
    """Hydra has one global instance; a program that runs under Hydra and uses RAGEN as a library gets its own back."""
    from hydra.core.global_hydra import GlobalHydra

    theirs = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = theirs


def _check_keys(content: Mapping[str, Any], source: str, prefix: str = "") -> None:
    """Refuse unknown keys, and sections that are not sections; the values below are Hydra's to check."""
    for name, value in content.items():
        key = f"{prefix}{name}"
        hint = schema.type_of(key)
        if hint is None:
            raise ConfigError(f"{source}: {schema.unknown(key)}")
        if isinstance(value, Mapping):
            _check_keys(value, source, f"{key}.")
        elif is_dataclass(hint):
            raise ConfigError(f"{source}: {key}={'null' if value is None else value}: must be {schema.in_words(hint)}")


def _without_sections_of(content: dict[str, Any], choices: Sequence[str]) -> dict[str, Any]:
    """A choice such as algorithm=arpo says what the sections below it are to be: what a run had there would mix two algorithms.

    Single values below it stay, unless the choice has them.
    """
    chosen = {choice.lstrip("+").partition("=")[0] for choice in choices}
    return {
        key: {name: each for name, each in value.items() if not isinstance(each, Mapping)}
        if key in chosen and isinstance(value, Mapping)
        else value
        for key, value in content.items()
    }


def _with_schema(defaults: Any, source: str) -> list[Any]:
    """The defaults list with the dataclass tree below everything; a shipped recipe already brings it."""
    if defaults is None:
        return [_SCHEMA, "_self_"]
    if not isinstance(defaults, list):
        raise ConfigError(f"{source}: defaults={defaults}: must be a list, such as [bandit, _self_]")
    brings_it = any(entry in (_SCHEMA, *recipes()) for entry in defaults if isinstance(entry, str))
    return defaults if brings_it else [_SCHEMA, *defaults]


def _escaped(value: Any) -> Any:
    """`${` in text would be read back as a reference to another key."""
    match value:
        case str():
            return value.replace("${", "\\${")
        case dict():
            return {key: _escaped(item) for key, item in value.items()}
        case list():
            return [_escaped(item) for item in value]
        case _:
            return value
