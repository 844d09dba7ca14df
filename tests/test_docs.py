"""What the documents say is so: the example runs, links lead somewhere, commands and settings exist, figures are filled in."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ragen import cli
from ragen.config.environments import named
from ragen.config.evaluation import load_for_evaluation
from ragen.config.load import groups, load, recipes
from ragen.config.overrides import parse
from ragen.config.schema import Config, type_of
from ragen.config.suites import load_suite, suites
from ragen.credit.config import READS
from ragen.environments import registry
from ragen.environments.text_env import StepAnswer, TextEnv
from ragen.errors import ConfigError
from ragen.evaluation.export import KEEPS
from ragen.evaluation.kinds import Kind, kind_of
from ragen.metrics import find
from ragen.models.aliases import ALIASES
from ragen.rollout.recorder import SCHEMA
from ragen.training.display import Display
from tests.support.pages import FENCE, ROOT, blocks

PACKAGE = ROOT / "ragen"
EXAMPLE = ROOT / "examples" / "train_bandit.py"
SECTIONS = tuple(field.name for field in fields(Config))


def written_pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


PAGES = written_pages()


def spans(page: Path) -> list[str]:
    """The inline code of a page."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text(encoding="utf-8")))


def commands() -> Iterator[tuple[str, list[str]]]:
    """(page, words) of every line that starts with `ragen` in a block without a language."""
    for page in PAGES:
        for line in "".join(blocks(page, "")).splitlines():
            words = shlex.split(line, comments=True) if line.startswith("ragen ") else []
            if words[1:]:
                yield str(page.relative_to(ROOT)), words[1:]


COMMANDS = list(commands())


def slug(heading: str) -> str:
    """The anchor that a heading gets: lower case, punctuation dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_example_of_the_readme_is_the_file() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") in blocks(ROOT / "README.md", "python")


def test_every_python_block_of_the_readme_compiles() -> None:
    found = blocks(ROOT / "README.md", "python")
    assert len(found) == 2
    for block in found:
        ast.parse(block)


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["model=tiny", "trainer.steps=2", "rollout.group_size=2", "rollout.sampling.max_new_tokens=4"]
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), *overrides])
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))  # the example's environment is gone afterwards
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    for step, line in enumerate(out, start=1):  # 8 groups of 2
        assert re.fullmatch(rf"step {step}: \d+ of 16 found the prize", line), line


def test_the_example_s_environment_pays_for_the_blue_door() -> None:
    """The class alone, without model and training."""
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names: dict[str, object] = {"TextEnv": TextEnv, "StepAnswer": StepAnswer}
    exec(compile(tree, str(EXAMPLE), "exec"), names)
    doors = names["Doors"]
    assert isinstance(doors, type)
    rewards = {}
    for name in ("Red", "blue"):
        env = doors()
        env.reset(seed=1)
        _, rewards[name], terminated, _, info = env.step(name)
        assert terminated
        assert info["success"] is (name == "blue")
    assert rewards == {"Red": 0.0, "blue": 1.0}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), f"{target}: no such file"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}: no such heading"


def test_there_are_commands_to_check() -> None:
    assert {words[0] for _, words in COMMANDS} == {
        "train",
        "eval",
        "envs",
        "models",
        "play",
        "bench",
        "tokens",
        "check-algorithm",
        "compare",
        "replay",
        "faults",
        "suites",
        "export",
    }


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_every_command_line_is_one_that_the_program_takes(page: str, words: list[str]) -> None:
    if "--help" in words:
        assert words[0] in cli.app
        return
    _, bound, _ = cli.app.parse_args(words, exit_on_error=False, print_error=False)
    given = bound.arguments
    match words[0]:
        case "train" | "tokens":
            chosen = (f"env={given['env']}",) if "env" in given else ()
            check_settings(given["recipe"], (*chosen, *given.get("overrides", ())))
        case "eval":
            is_model = kind_of(given["target"])[0] is Kind.MODEL
            assert not is_model or given["target"] in ALIASES or given["target"].startswith("runs/")
            if "suite" in given:
                assert given["suite"] in suites() or given["suite"] == "my_suite.yaml"
                return
            names, options = given.get("env") or ["bandit"], given.get("option") or []
            load_for_evaluation("tiny", None, names=names, options=options, overrides=given.get("overrides", ()))
        case "envs" | "play":
            given_name = given.get("name") or given.get("env") or "bandit"
            if given_name.startswith("my_module:"):  # a reader's own
                return
            options, overrides = given.get("option") or (), given.get("overrides", ())
            load_for_evaluation("tiny", None, names=[given_name], options=options, overrides=overrides)
        case "bench":
            for name in given.get("names", ()):
                named(name)
        case "suites":
            assert given.get("name", "quick") in suites()
        case "export":
            assert given["source"].startswith("runs/")
            assert given["to"] in ("parquet", "chat", "datasets", "sft")
            assert given.get("keep", "all") in KEEPS
        case "compare":
            assert all("runs/" in source for source in given["sources"])
        case "check-algorithm":
            assert given["name"] in READS or ":" in given["name"]
        case "models":
            assert given.get("name", "tiny") in ALIASES


def check_settings(recipe: str, overrides: tuple[str, ...]) -> None:
    """Load a shipped recipe for real; of a run folder or a file of one's own only the overrides can be read."""
    if recipe in recipes():
        load(recipe, overrides)
    else:
        assert recipe.startswith("runs/") or recipe.endswith(".yaml"), recipe
        parse(overrides, groups=groups(), append_groups=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_is_named_exists(page: Path) -> None:
    """`trainer.steps`, `trainer.steps=5`, `environments.TAG.options.KEY`: whatever begins like a section and is no file."""
    for span in spans(page):
        for word in span.split():
            key = word.lstrip("~+").partition("=")[0]
            section, dot, _ = key.partition(".")
            if section in SECTIONS and dot and re.fullmatch(r"[\w.<>]+", key) and key.rpartition(".")[2] not in ("py", "yaml"):
                assert type_of(key) is not None, f"`{span}`: there is no setting {key}"


def test_the_check_of_settings_would_find_a_wrong_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("set `trainer.step=5`", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"no setting trainer\.step"):
        test_every_setting_that_is_named_exists(page)


def test_the_yaml_file_of_one_s_own_loads(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "configuration.md", "yaml")
    path = tmp_path / "my_recipe.yaml"
    path.write_text(block, encoding="utf-8")
    config = load(str(path))
    assert sorted(config.environments) == ["bandit", "phoenix"]
    assert config.environments["phoenix"].options == {"names": "phoenix_dragon"}
    assert config.trainer.steps == 20


def test_the_suite_of_one_s_own_loads_and_its_run_too(tmp_path: Path) -> None:
    """The two blocks of docs/suites.md."""
    suite, training = blocks(ROOT / "docs" / "suites.md", "yaml")
    path = tmp_path / "my_suite.yaml"
    path.write_text(suite, encoding="utf-8")
    loaded = load_suite(str(path))
    assert loaded.environments["sokoban"].options["num_boxes"] == 2
    assert [each.mode for each in loaded.settings] == ["greedy", "sampled"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"defaults: [bandit, _self_]\n{training}", encoding="utf-8")
    assert load(str(recipe)).evaluation.suites == ["quick"]


def test_every_shipped_suite_and_every_column_of_an_export_is_on_its_page() -> None:
    assert set(suites()) <= set(spans(ROOT / "docs" / "suites.md"))
    assert set(SCHEMA.names) <= set(spans(ROOT / "docs" / "export.md"))


def test_the_refusal_that_is_quoted_is_the_one_that_comes() -> None:
    (quoted,) = re.findall(r"^error: (.+)$", (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(ConfigError, match=re.escape(quoted)):
        load("bandit", ["trainer.step=1"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_that_is_named_exists(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"(rollout|update|eval|time|memory)/[\w<>/]+", span) and not (ROOT / "ragen" / span).exists():
            assert find(span) is not None, f"there is no metric {span}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_function_that_is_named_exists(page: Path) -> None:
    """`run.py`, `credit/outcome.py: grpo`; names are looked up in the root and in the package."""
    for span in spans(page):
        if not (named := re.fullmatch(r"([\w./-]+\.py)(?:: (\w+))?", span)):
            continue
        found = [base / named[1] for base in (ROOT, PACKAGE) if (base / named[1]).exists()]
        assert found, f"`{span}`: no such file"
        if named[2]:
            tree = ast.parse(found[0].read_text(encoding="utf-8"))
            defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            assert named[2] in defined, f"`{span}`: no such function or class"


def files_of_tree(tree: str) -> Iterator[Path]:
    """The files and folders of a captioned tree; two spaces of indentation are one level."""
    folders: list[str] = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = line.strip().partition("  ")[0].split()
        yield from (Path(*folders[:depth], name) for name in names)
        if names[0].endswith("/"):
            folders[depth:] = [names[0]]


def test_the_file_tree_of_the_readme_is_the_tree_there_is() -> None:
    (tree,) = (block for block in blocks(ROOT / "README.md", "") if block.startswith("ragen/\n"))
    listed = list(files_of_tree(tree))
    assert [str(path) for path in listed if not (ROOT / path).exists()] == []
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders <= {path.parts[1] for path in listed if path.parts[0] == "ragen" and len(path.parts) > 1}


def test_the_step_line_that_is_explained_is_the_one_that_is_shown() -> None:
    out = StringIO()
    Display(Console(file=out, width=200)).step_line(4, 40, {})
    titles = out.getvalue().splitlines()[0].split()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert out.getvalue().splitlines()[0] in readme
    for title in titles[1:]:
        assert f"\n| {title} |" in readme, f"{title} is not explained"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_figure_is_left_to_be_filled_in(page: Path) -> None:
    assert sorted(set(re.findall(r"TBD[\w-]*", page.read_text(encoding="utf-8")))) == []
