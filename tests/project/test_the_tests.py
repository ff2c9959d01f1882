"""What is asked of every test, so that none can pass without having looked."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = [*sorted(TESTS.glob("**/*.py")), *sorted((TESTS.parent / "watcher" / "testing").glob("*.py"))]


def each_test(source: str) -> Iterator[ast.FunctionDef]:
    """Yield every test function and method."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function itself and not in those that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from statements(child)


def endings(source: str) -> list[str]:
    """Return the tests that may end early."""
    return [test.name for test in each_test(source) if any(isinstance(part, ast.Return) for part in statements(test))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_test_ends_early(file: Path) -> None:
    """A test that does not apply is not parametrized; ``return`` would show it as passed."""
    assert endings(file.read_text()) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_test_says_what_it_proves(file: Path) -> None:
    """It has a docstring."""
    assert [test.name for test in each_test(file.read_text()) if not ast.get_docstring(test)] == []


def test_the_check_sees_an_early_end() -> None:
    """A return in a branch is seen, and one in a function inside the test is not."""
    early = "def test_a(x):\n    if x:\n        return\n    assert x\n"
    inside = "def test_a(x):\n    def f():\n        return x\n    assert f()\n"
    assert endings(early) == ["test_a"]
    assert endings(inside) == []


@pytest.mark.parametrize(("ci", "refused"), [("true", 3), ("false", 0)])
@pytest.mark.slow
def test_a_skip_fails_in_ci(tmp_path: Path, ci: str, refused: int) -> None:
    """With CI=true a skip fails the run, whether of a module, of a test or in a fixture."""
    for name, skips in {
        "module": "pytest.skip('no server', allow_module_level=True)",
        "test": "def test_a():\n    pytest.skip('no server')",
        "fixture": "@pytest.fixture\ndef f():\n    pytest.skip('no server')\ndef test_a(f):\n    pass",
    }.items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{skips}\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "-rfEs", str(tmp_path)]
    command += ["--continue-on-collection-errors"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    said = done.stdout.partition("short test summary info")[2]
    assert said.count("no server") == 3, done.stdout + done.stderr
    assert len(re.findall(r"^(?:FAILED|ERROR)", said, re.MULTILINE)) == refused
