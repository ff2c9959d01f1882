"""Random numbers: each object draws from a generator of its own, never from the one that a process shares.

hypothesis and pytest plugins seed the shared generators, and a thread that draws from them makes their tests fail at
random. A library that draws from them changes the numbers of the program that embeds it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "trimaran", "watcher", "client", "scoring", "runtime", "tools", "benchmarks", "research", "examples",
    "requirements", "tests",
)  # fmt: skip
# Everything else in these modules draws from the shared generator, or changes it. Reading its state does neither, which
# the guard of the tests does, and a test that runs a library which draws from it puts the state back.
ALLOWED = {
    "random.Random", "random.SystemRandom",
    "numpy.random.BitGenerator", "numpy.random.Generator", "numpy.random.SeedSequence", "numpy.random.default_rng",
    "random.getstate", "random.setstate", "numpy.random.get_state",
}  # fmt: skip


def shared_draws(source: str) -> list[str]:
    """Return the names that a module uses of the shared generators of Python and numpy, with their lines."""
    tree = ast.parse(source)
    names = dict(_imported(tree))
    found = [(node.lineno, name) for node, name in _uses(tree, names)]
    return [f"line {line}: {name}" for line, name in sorted(found)]


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each imported name with what it stands for: ``np`` stands for ``numpy``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _uses(tree: ast.AST, names: dict[str, str]) -> Iterator[tuple[ast.expr | ast.ImportFrom, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_shared(name := _full_name(node, names)):
            yield node, name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            used = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from ((node, name) for name in used if _is_shared(name))


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, names)}.{node.attr}"
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def _is_shared(name: str) -> bool:
    return name.rpartition(".")[0] in {"random", "numpy.random"} and name not in ALLOWED


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_draws_from_a_shared_generator(folder: str) -> None:
    """No module uses a function of the global generators of ``random`` and ``numpy.random``."""
    sources = {file: file.read_text() for file in sorted((ROOT / folder).glob("**/*.py"))}
    found = {file: shared_draws(source) for file, source in sources.items() if "random" in source}
    assert {str(file.relative_to(ROOT)): lines for file, lines in found.items() if lines} == {}
    assert sources


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import random\nrandom.uniform(0, 1)", "random.uniform"),
        ("import random as dice\ndice.seed", "random.seed"),
        ("def draw():\n    from random import Random, choice", "random.choice"),
        ("import numpy as np\nnp.random.normal()", "numpy.random.normal"),
        ("import numpy.random\nnumpy.random.RandomState(1)", "numpy.random.RandomState"),
        ("from numpy import random\nrandom.shuffle([])", "numpy.random.shuffle"),
        ("from numpy.random import default_rng, rand", "numpy.random.rand"),
    ],
)
def test_the_check_detects_a_shared_generator(source: str, name: str) -> None:
    """Each way to use a shared generator is detected, whatever its import is called."""
    assert shared_draws(source) == [f"line 2: {name}" if "\n" in source else f"line 1: {name}"]


def test_the_check_allows_own_generators() -> None:
    """Generators of one's own pass, and so does a variable that is called ``random``."""
    modules = "import random\nimport numpy as np\nrandom.Random(1).uniform(0, 1)\nnp.random.default_rng(1).normal()"
    assert shared_draws(modules) == []
    assert shared_draws("def draw(random):\n    return random.uniform(0, 1)") == []
