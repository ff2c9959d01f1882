"""The mutants of ``make mutants`` in a small repository: which there are, which are killed, and which results count."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = '''
import logging

_log = logging.getLogger(__name__)


class Sums:
    def __init__(self, numbers):
        self._numbers = numbers

    @property
    def total(self):
        """Sum."""
        result = None

        def add():
            nonlocal result
            result = sum(each for (each,) in zip(self._numbers, strict=True))

        add()
        return result

    def above(self, limit, is_on=True):
        _log.info("above %s", limit + 1)
        if limit < 0:
            raise ValueError("limit " + str(limit - 1))
        return [each for each in self._numbers if each > limit and is_on]


def unused(one):
    return min(one, 2).real
'''
TESTS = """
import pytest

from trimaran.sums import Sums


def test_total():
    assert Sums([1, 2]).total == 3


def test_above():
    assert Sums([1, 2, 3]).above(2) == [3]
    with pytest.raises(ValueError):
        Sums([]).above(-1)
"""
SETTINGS = """
[tool.mutmut]
source_paths = ["trimaran"]
track_dependencies = false
use_git_change_detection = false
"""
GROUPS = """
[groups.all]
percent = 80
modules = ["trimaran/*.py"]

[equivalent."trimaran.sums.Sums.above"]
"if limit < 0: -> if limit <= 0:" = "nobody asks for 0"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a module and its tests."""
    for path, text in {
        "trimaran/__init__.py": "",
        "trimaran/sums.py": MODULE,
        "tests/trimaran/test_sums.py": TESTS,
        "tools/mutants.toml": GROUPS,
        "pyproject.toml": SETTINGS,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    shutil.copy(ROOT / "tools/mutants.py", tmp_path / "tools")
    for command in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(repository: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the tool; return its status and its lines."""
    command = [sys.executable, "tools/mutants.py", "all", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
def test_mutants_are_killed_or_listed_and_run_once(repository: Path) -> None:
    """Logs, texts, defaults and checks are not changed; survivors are listed, and run again once the tests change."""
    status, lines = run(repository)
    assert status == 1
    survivors = [line.split(" | ", 1) for line in lines[lines.index("| function | change | |") + 2 :]]
    assert survivors == [
        ["| trimaran.sums.Sums.above", "`if limit < 0: -> if limit <= 0:` | nobody asks for 0 |"],
        *(
            ["| trimaran.sums.unused", f"`return min(one, 2).real -> return {changed}` | no tests |"]
            for changed in ("None", "max(one, 2).real", "one.real", "(2).real")
        ),
    ]
    assert "| trimaran/sums.py | 11 | 6 | 5 | 0 | 0 | 54.5 |" in lines
    tests = repository / "tests/trimaran/test_sums.py"
    tests.write_text(
        f"from trimaran.sums import unused\n{TESTS}\n\ndef test_unused():\n    assert unused(1) + unused(3) == 3"
    )
    status, lines = run(repository)
    assert status == 0
    assert len([line for line in lines if "/5 trimaran.sums." in line]) == 5
    assert "| trimaran/sums.py | 11 | 10 | 1 | 0 | 0 | 90.9 |" in lines
    assert (repository / "trimaran/sums.py").read_text() == MODULE


@pytest.mark.slow
def test_nothing_counts_while_a_planted_mutant_survives(repository: Path) -> None:
    """A mutant that only raises is not killed by tests that notice nothing, so no other mutant of the module is run."""
    (repository / "tests/trimaran/test_sums.py").write_text(
        "import contextlib\n\nfrom trimaran.sums import Sums\n\n\ndef test_total():\n"
        "    with contextlib.suppress(AssertionError):\n        Sums([1]).total\n"
    )
    status, lines = run(repository)
    assert status == 1
    (left_out,) = [line for line in lines if line.startswith("left out")]
    assert re.search(r"the tests of trimaran\.sums\.\S+ pass with a planted mutant: trimaran/sums\.py$", left_out)
    assert not [line for line in lines if re.match(r"\d+/\d+ ", line)]
    assert "| trimaran/sums.py | 11 | 0 | 0 | 0 | 11 | 0.0 |" in lines


def test_each_pattern_of_the_groups_names_modules() -> None:
    """A module that is renamed does not fall out of its group."""
    groups = tomllib.loads((ROOT / "tools/mutants.toml").read_text())["groups"]
    patterns = [pattern for group in groups.values() for pattern in group["modules"]]
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []
