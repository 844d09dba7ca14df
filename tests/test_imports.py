"""Imports point one way, and `import ragen` needs only numpy and gymnasium."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragen
from ragen.environments import registry
from ragen.environments.bandit.env import BanditConfig

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ragen"

# A part imports only from those before it (and from itself). The order of ARCHITECTURE.md.
ORDER = (
    "records",
    "redaction",
    "errors",
    "files",
    "metrics",
    "environments",
    "kernels",
    "models",
    "engines",
    "rollout",
    "credit",
    "algorithms",
    "testing",
    "diagnostics",
    "training",
    "scaling",
    "evaluation",
    "viewer",
    "config",
    "run_folder",
    "assembly",
    "run",
    "replay_rows",
    "replay",
    "faults",
    "play",
    "tokens",
    "check_apart",
    "benchmark",
    "cli",
    "__main__",
)

MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported_modules(source: str) -> Iterator[str]:
    """Dotted names of everything imported from ragen, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "ragen")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            if node.module == "ragen":
                yield from (f"ragen.{alias.name}" for alias in node.names if alias.name != "__version__")
            elif node.module and node.module.startswith("ragen."):
                yield node.module


def part(dotted: str) -> str:
    return dotted.split(".")[1]


def upward(path: Path, source: str) -> list[str]:
    """The imports of a module that point to a part later than its own."""
    own = part(".".join(path.with_suffix("").parts))
    return [name for name in imported_modules(source) if ORDER.index(part(name)) > ORDER.index(own)]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_from_parts_before_its_own(path: Path) -> None:
    found = upward(path, (ROOT / path).read_text(encoding="utf-8"))
    assert found == [], f"{path} imports upwards"


def test_an_upward_import_is_found_wherever_it_hides() -> None:
    source = """
from ragen.errors import ConfigError

def f():
    from ragen.config.schema import Config
    import ragen.training.update
"""
    assert upward(Path("ragen/rollout/agent.py"), source) == ["ragen.config.schema", "ragen.training.update"]


def test_importing_the_root_module_imports_nothing_else_of_the_package() -> None:
    code = "import sys, ragen; print([name for name in sys.modules if name.startswith('ragen.')])"
    assert run_blocked(code).stdout == "[]\n"


def test_what_a_person_needs_for_an_environment_is_at_the_root() -> None:
    assert ragen.register is registry.register
    assert ragen.make("bandit").config == BanditConfig()
    assert set(ragen._HOMES) | {"__version__"} == set(ragen.__all__)
    with pytest.raises(AttributeError, match="no attribute 'regsiter'"):
        ragen.regsiter  # noqa: B018


BLOCKED = """
import importlib.abc, sys

HEAVY = {"torch", "transformers", "peft", "safetensors", "huggingface_hub", "gguf", "hydra", "omegaconf", "pyarrow", "rich",
         "cyclopts", "matplotlib", "tensorboardX", "wandb", "trackio", "mlflow"}

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ImportError(f"{name} is blocked in this test")

sys.meta_path.insert(0, Block())
"""


def run_blocked(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, cwd=ROOT, check=False)


def test_import_ragen_works_without_any_heavy_package() -> None:
    """bug-log row 88."""
    result = run_blocked("import ragen; print(ragen.__version__)")
    assert result.returncode == 0, result.stderr


def test_an_environment_is_played_and_settings_are_checked_without_any_heavy_package() -> None:
    """bug-log row 88: environments and the typed settings belong to the light part."""
    result = run_blocked("""
from ragen.config.check import check
from ragen.config.schema import Config, EnvironmentConfig
from ragen.environments import registry

env = registry.make("bandit")
env.reset(seed=1, options={"dynamics_seed": 2})
_, _, terminated, _, _ = env.step(env.action_names[0])
assert terminated
check(Config(environments={"bandit": EnvironmentConfig(name="bandit")}))
""")
    assert result.returncode == 0, result.stderr


def test_the_block_of_the_two_tests_above_does_block() -> None:
    result = run_blocked("import torch")
    assert result.returncode == 1
    assert "blocked in this test" in result.stderr
