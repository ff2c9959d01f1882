"""Imports between modules, with those for type checking only, which ``make lint`` leaves out."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")


def modules() -> dict[str, Path]:
    """Return the modules of the packages by name."""
    files = [file.relative_to(ROOT) for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(file.with_suffix("").parts).removesuffix(".__init__"): ROOT / file for file in files}


def imported(file: Path) -> Iterator[str]:
    """Yield the modules that a file may import: of ``from a import b`` these are a and a.b."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names
            yield node.module


def test_no_files_import_each_other() -> None:
    """A type that two modules need is in the lower one, or in a third one."""
    files = modules()
    packages = {name for name, file in files.items() if file.name == "__init__.py"}
    graph = {
        name: {other for other in imported(file) if other in files and other not in packages}
        for name, file in files.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None
