"""A file's path is known for one, and the module that it means is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen.environments.import_path import module_of_file


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("maze.py", "maze"),
        ("./maze.py", "maze"),
        ("games/maze.py", "games.maze"),
        ("games/maze", "games.maze"),
        ("../other/maze.py", "maze"),
        ("/no/such/maze.py", "maze"),
        ("games.maze", None),
        ("maze", None),
        ("", None),
    ],
)
def test_a_file_s_path_names_its_module(path: str, module: str | None) -> None:
    assert module_of_file(path) == module


def test_an_absolute_path_into_the_current_folder_is_one_inside_it() -> None:
    assert module_of_file(str(Path.cwd() / "games" / "maze.py")) == "games.maze"
