"""RAGEN: train and evaluate language-model agents by multi-turn reinforcement learning (StarPO).

    import ragen

    ragen.register("doors", Doors, "three doors, a prize behind one")   # from now on an environment by name

Importing the package needs only numpy and gymnasium; torch, transformers and the rest are imported where they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen.environments.registry import make, register
    from ragen.environments.text_env import StepAnswer, TextEnv, TextEnvConfig, option
    from ragen.errors import ConfigError

__version__ = "0.1.0"
__all__ = ["ConfigError", "StepAnswer", "TextEnv", "TextEnvConfig", "__version__", "make", "option", "register"]

_HOMES = {
    "ConfigError": "ragen.errors",
    "StepAnswer": "ragen.environments.text_env",
    "TextEnv": "ragen.environments.text_env",
    "TextEnvConfig": "ragen.environments.text_env",
    "make": "ragen.environments.registry",
    "option": "ragen.environments.text_env",
    "register": "ragen.environments.registry",
}


def __getattr__(name: str) -> Any:
    """What a person needs to add an environment, imported when it is first asked for: `ragen --help` must not wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
