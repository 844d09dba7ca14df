"""Every environment has a page with Gymnasium's headings, and its table of arguments is the code's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragen.environments import registry

PAGES = Path(__file__).parents[2] / "docs" / "environments"
HEADINGS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Rewards",
    "Episode End",
    "Information",
    "Arguments",
    "Source",
]


def built_in() -> list[str]:
    """Those registered by the package itself, not by tests."""
    return [name for name in registry.names() if str(registry._entries[name].target).startswith("ragen.")]


def arguments(page: str) -> dict[str, str]:
    """option -> default, as the table of the page gives them."""
    section = re.split(r"^## ", page.split("## Arguments\n", 1)[1], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", section, flags=re.MULTILINE))


def typed(default: Any) -> str:
    """A default as it would be typed on the command line."""
    match default:
        case None | bool():
            return json.dumps(default)
        case list():
            return "[" + ",".join(map(typed, default)) + "]"
        case dict():
            return json.dumps(default)
        case _:
            return str(default)


@pytest.mark.parametrize("name", built_in())
def test_the_page_has_the_headings_in_order(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    found = [heading for heading in re.findall(r"^## (.+)$", page, flags=re.MULTILINE) if heading not in ("Oracle", "Tags")]
    assert found == HEADINGS


@pytest.mark.parametrize("name", built_in())
def test_the_arguments_of_the_page_are_those_of_the_code(name: str) -> None:
    described = registry.describe(name)
    expected = {option.name: typed(option.default) for option in described.options}
    assert arguments((PAGES / f"{name}.md").read_text(encoding="utf-8")) == expected


def test_no_page_describes_what_is_not_there() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == built_in()
