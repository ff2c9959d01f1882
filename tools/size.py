"""Count the lines of the packages: there are at most so many as ``pyproject.toml`` allows. ``make lint`` runs it.

The number is to fall to 80,000, so anyone who adds lines takes others out: ``tool.trimaran.max_lines`` may only shrink.
``--by-package`` prints lines and statements of each package.
"""

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Lines by which the limit may be higher than the truth, so that two changes at a time do not meet in it.
_SLACK = 1000
PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")


def lines(package: Path) -> int:
    """Return the number of lines of all modules of a package, with comments and empty lines."""
    return sum(len(file.read_bytes().splitlines()) for file in package.rglob("*.py"))


def statements(package: Path) -> int:
    """Return the number of statements of all modules of a package."""
    trees = (ast.parse(file.read_bytes()) for file in package.rglob("*.py"))
    return sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))


def fault(root: Path) -> str:
    """Return what is wrong with the size of the packages; empty if nothing is."""
    most = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["trimaran"]["max_lines"]
    total = sum(lines(root / name) for name in PACKAGES)
    if total > most:
        return f"the packages have {total:,} lines, {total - most:,} more than tool.trimaran.max_lines: take some out"
    if total < most - _SLACK:
        return f"the packages have {total:,} lines: lower tool.trimaran.max_lines, {most:,}, so that they stay gone"
    return ""


def main() -> int:
    """Print the fault; return 1 if there is one."""
    if "--by-package" in sys.argv:
        for name in PACKAGES:
            print(f"{name:10}{lines(ROOT / name):8,}{statements(ROOT / name):8,}")
    if found := fault(ROOT):
        print(found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
