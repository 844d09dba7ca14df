"""Functions of one's own by import path, "module:function"."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ragen.environments.import_path import module_of_file
from ragen.errors import ConfigError, boundary, near_match


def import_function(path: str, where: str) -> Callable[..., Any]:
    """The function behind "module:function". Raises ConfigError, one line that begins with `where`."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{where}: must be 'module:function'")
    if dotted := module_of_file(module_name):
        raise ConfigError(f"{where} is a file's path: write {dotted}:{name}")
    with boundary(ConfigError, f"{where}: cannot be imported"):
        module = importlib.import_module(module_name)
    function = getattr(module, name, None)
    if function is not None and not callable(function):
        raise ConfigError(f"{where}: {module_name}.{name} is a {type(function).__name__}, not a function")
    if function is None:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(f"{where}: {module_name} has no function {name!r}{near_match(name, own)}")
    found: Callable[..., Any] = function
    return found
