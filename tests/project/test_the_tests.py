"""Rules for every test, so that no test passes without a check."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.waiting import LIMIT_SECONDS

TESTS = Path(__file__).parents[1]
FILES = [*sorted(TESTS.glob("**/*.py")), *sorted((TESTS.parent / "watcher" / "testing").glob("*.py"))]


@cache
def text(file: Path) -> str:
    """Return the text of a file, which several rules read."""
    return file.read_text()


@cache
def parsed(source: str) -> ast.Module:
    """Return the tree of a source, which several rules read."""
    return ast.parse(source)


def each_test(source: str) -> Iterator[ast.FunctionDef]:
    """Yield every test function and method."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from statements(child)


def returning_tests(source: str) -> list[str]:
    """Return the names of tests that contain a return statement."""
    return [test.name for test in each_test(source) if any(isinstance(part, ast.Return) for part in statements(test))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_test_ends_early(file: Path) -> None:
    """No test contains ``return``, which would show a test that does not apply as passed."""
    assert returning_tests(text(file)) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_test_has_a_docstring(file: Path) -> None:
    """Every test has a docstring."""
    assert [test.name for test in each_test(text(file)) if not ast.get_docstring(test)] == []


def test_the_check_detects_an_early_return() -> None:
    """A return in a branch is detected; a return in a nested function is not."""
    early = "def test_a(x):\n    if x:\n        return\n    assert x\n"
    nested = "def test_a(x):\n    def f():\n        return x\n    assert f()\n"
    assert returning_tests(early) == ["test_a"]
    assert returning_tests(nested) == []


def unguarded(function: ast.FunctionDef) -> list[int]:
    """Return the lines after a ``yield`` that a failure in the block skips; assertions and ``finally`` may follow."""
    lines: list[int] = []

    def visit(block: list[ast.stmt], after: list[ast.stmt]) -> None:
        for number, statement in enumerate(block):
            rest = [*block[number + 1 :], *after]
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
                lines.extend(each.lineno for each in rest if not isinstance(each, ast.Assert))
            if not any(
                ast.unparse(each.type or each) == "BaseException" for each in getattr(statement, "handlers", ())
            ):
                visit(getattr(statement, "body", []), rest)
                visit(getattr(statement, "orelse", []), rest)

    visit(function.body, [])
    return lines


def context_managers(source: str) -> Iterator[ast.FunctionDef]:
    """Yield every function that is a context manager."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef) and "contextmanager" in map(ast.unparse, node.decorator_list):
            yield node


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_context_managers_clean_up_after_failures(file: Path) -> None:
    """A context manager cleans up after a block that fails or skips, too."""
    assert {each.name: unguarded(each) for each in context_managers(text(file)) if unguarded(each)} == {}


def test_the_check_detects_an_unguarded_cleanup() -> None:
    """A statement after ``yield`` is detected, also within ``try`` with ``finally``; in ``finally`` it is not."""
    head = "@contextmanager\ndef f():\n    try:\n        yield\n"
    for text, lines in (
        ("@contextmanager\ndef f():\n    with a:\n        yield\n    b()\n", [5]),
        (f"{head}        a()\n    finally:\n        b()\n", [5]),
        (f"{head}    finally:\n        b()\n    assert c\n", []),
    ):
        (function,) = context_managers(text)
        assert unguarded(function) == lines


def test_a_pytest_of_a_test_has_no_options_of_this_run() -> None:
    """Options from the environment, such as a random order, end with the run that they are for."""
    assert "PYTEST_ADDOPTS" not in os.environ


@pytest.mark.parametrize(("ci", "refused"), [("true", 3), ("false", 0)])
@pytest.mark.slow
def test_a_skip_fails_in_ci(tmp_path: Path, ci: str, refused: int) -> None:
    """With CI=true a skip in a module, a test or a fixture fails the run."""
    for name, skips in {
        "module": "pytest.skip('no server', allow_module_level=True)",
        "test": "def test_a():\n    pytest.skip('no server')",
        "fixture": "@pytest.fixture\ndef f():\n    pytest.skip('no server')\ndef test_a(f):\n    pass",
    }.items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{skips}\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "-rfEs", str(tmp_path)]
    command += ["--continue-on-collection-errors", "--basetemp", str(tmp_path / "base")]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    summary = done.stdout.partition("short test summary info")[2]
    assert summary.count("no server") == 3, done.stdout + done.stderr
    assert len(re.findall(r"^(?:FAILED|ERROR)", summary, re.MULTILINE)) == refused


_REQUESTS = {"get", "post", "put", "patch", "delete", "head", "options", "request"}


def impatient(source: str) -> list[int]:
    """Return the lines of requests that give up before a busy machine answers, unless they are asked again.

    A limit below a second is what a test is about.
    """
    asked_again = {
        id(part) for node in ast.walk(parsed(source)) if isinstance(node, ast.Lambda) for part in ast.walk(node)
    }
    return [
        node.lineno
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REQUESTS
        and id(node) not in asked_again
        for option in node.keywords
        if option.arg == "timeout" and isinstance(option.value, ast.Constant)
        and 1 <= option.value.value < LIMIT_SECONDS
    ]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_request_waits_for_a_busy_machine(file: Path) -> None:
    """A request of a test has the limit of a wait; only a poll, which is a lambda, may give up earlier."""
    assert impatient(text(file)) == []


def test_the_check_detects_an_impatient_request() -> None:
    """A short timeout is detected; in a poll it is not."""
    assert impatient("x = 1\nrequests.get(url, timeout=10)\nsession.post(url, timeout=5)\n") == [2, 3]
    assert impatient("wait_until(lambda: requests.get(url, timeout=5).ok)\nrequests.get(url, timeout=60)\n") == []


def test_pods_of_manifests_run_in_a_network_of_their_own() -> None:
    """Their ports are fixed, so two tests at once, or a service of this machine, would take them from each other."""
    runs = re.compile(r"\bPod(Runner|Processes)\(")
    users = [file for file in FILES if file.parent.name == "e2e" and runs.search(text(file))]
    assert len(users) >= 3
    assert [file.stem for file in users if 'usefixtures("own_network")' not in text(file)] == []
