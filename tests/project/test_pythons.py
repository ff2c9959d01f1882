"""Versions of Python: one list in pyproject.toml, which all pages repeat, and the interpreters that make finds."""

import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.fixture
def pythons() -> dict[str, Any]:
    """Return the names of tools/pythons.py."""
    return runpy.run_path(str(ROOT / "tools" / "pythons.py"))


def install(path: Path, version: str) -> Path:
    """Write a program that reports a version as an interpreter does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the interpreters of a machine: bin is its PATH, pyenv has folders of versions."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_every_page_has_the_versions_of_the_classifiers(pythons: dict[str, Any]) -> None:
    """Lists of versions on the pages, the lowest one in pyproject.toml, and the image's agree with the classifiers."""
    versions = pythons["promised"]()
    stated = {
        f"{page.name}: {line}": (found[0], found[-1])
        for page in PAGES
        for line in page.read_text().splitlines()
        if len(found := re.findall(r"\b3\.1\d\b(?!\.)", line)) > 1
    }
    assert {key: ends for key, ends in stated.items() if ends != (versions[0], versions[-1])} == {}
    for name in ("README.md", "quick-start.md", "CONTRIBUTING.md"):
        assert any(key.startswith(f"{name}:") for key in stated), name
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"  # no upper bound: newer ones are only untested
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{versions[0].replace('.', '')}"
    (image,) = re.findall(r"^ARG PYTHON_VERSION=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert image in versions


def test_the_newest_of_pyenv_is_found(pythons: dict[str, Any], machine: Path) -> None:
    """Versions are compared as numbers; one for which pyenv has only a program that fails is not found."""
    install(machine / "pyenv/versions/3.13.2/bin/python", "3.13")
    newest = install(machine / "pyenv/versions/3.13.10/bin/python", "3.13")
    install(machine / "bin/python3.13", "").write_text("#!/bin/sh\nexit 127\n")
    assert pythons["interpreter"]("3.13") == str(newest)
    install(machine / "bin/python3.14", "").write_text("#!/bin/sh\nexit 127\n")
    assert pythons["interpreter"]("3.14") is None


def test_path_comes_before_pyenv(pythons: dict[str, Any], machine: Path) -> None:
    """An interpreter of PATH is preferred, because users choose it."""
    install(machine / "pyenv/versions/3.13.2/bin/python", "3.13")
    chosen = install(machine / "bin/python3.13", "3.13")
    assert pythons["interpreter"]("3.13") == str(chosen)


def test_the_newest_version_is_run(pythons: dict[str, Any], machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The newest one runs the command, in an environment of its own; or else it runs unchanged."""
    for version in ("3.11", "3.12"):
        install(machine / f"bin/python{version}", version)
    print_command = [sys.executable, "-c", "import sys; print(*sys.argv[1:]); sys.exit(3)"]
    assert pythons["run_newest"](print_command, (3, 11)) == 3
    python = machine / "bin/python3.12"
    assert capfd.readouterr().out == f"Python 3.12: {python}\nPYTHON={python} VENV=.venv/3.12\n"
    print_command.append("unchanged")
    assert pythons["run_newest"](print_command, (3, 12)) == 3
    assert capfd.readouterr().out == (
        "no Python newer than 3.12 that is supported is installed (looked for 3.13 on PATH and in pyenv)\nunchanged\n"
    )
    assert pythons["run_newest"](print_command, (3, 14)) == 3
    assert capfd.readouterr().out == "no Python newer than 3.14 that is supported is installed\nunchanged\n"


def test_all_versions_run_until_one_fails(
    pythons: dict[str, Any], machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Missing versions are named, and the first failure ends the run."""
    for version in ("3.12", "3.13"):
        install(machine / f"bin/python{version}", version)
    assert pythons["run_all"]([sys.executable, "-c", "pass"]) == 0
    assert [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()] == [
        "Python 3.11 is not installed", "Python 3.12", "Python 3.13",
    ]  # fmt: skip
    assert pythons["run_all"]([sys.executable, "-c", "import sys; sys.exit(2)"]) == 2
    assert "3.13" not in capfd.readouterr().out
