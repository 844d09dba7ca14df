"""Import paths as people type them."""

from __future__ import annotations

import os


def module_of_file(path: str) -> str | None:
    """The module that a file's path means, seen from the current folder; None if `path` is no file's path.

    `maze.py`, `./maze.py` and `/somewhere/else/maze.py` are `maze`, and `games/maze.py` is `games.maze`.
    """
    if not path.endswith(".py") and "/" not in path:
        return None
    relative = os.path.relpath(path.removesuffix(".py"))
    inside = not relative.startswith(os.pardir) and not os.path.isabs(relative)
    return relative.replace(os.sep, ".") if inside else os.path.basename(relative)
