"""The source distribution: it has all files of the repository."""

import fnmatch
import subprocess
import sys
import tarfile
from pathlib import Path

import trimaran

ROOT = Path(__file__).parents[2]


def ignored_patterns() -> list[str]:
    """Return the patterns of files that do not belong to the repository."""
    lines = (ROOT / ".gitignore").read_text().split()
    return [".git", "PKG-INFO", *(line.strip("/") for line in lines)]


def source_files(folder: Path) -> set[str]:
    """Return the files in a folder, as paths relative to the repository, without ignored files."""
    files = set()
    for path in folder.iterdir():
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in ignored_patterns()):
            continue
        files |= source_files(path) if path.is_dir() else {str(path.relative_to(ROOT))}
    return files


def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    """The archive has the tests, documentation, Makefile, locks, Dockerfile and manifests, so the README works."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = f"trimaran-{trimaran.__version__}"
    with tarfile.open(tmp_path / f"{name}.tar.gz") as archive:
        packed = {member.name.removeprefix(f"{name}/") for member in archive if member.isfile()}
    assert packed - {"PKG-INFO"} == source_files(ROOT)
    assert {"Makefile", "Dockerfile", "tests/conftest.py", "requirements/run.txt", ".ci/run"} <= packed
