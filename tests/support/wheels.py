"""Packages built as wheels and installed offline, each in a fresh environment."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")


@dataclass(frozen=True)
class Site:
    """Fresh environment with the package, and the folder of the package's source."""

    python: Path
    source: Path

    def command(self, *arguments: object) -> list[str]:
        """Return a command of trimaran in the environment."""
        return [str(self.python), "-m", "trimaran", *map(str, arguments)]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command of trimaran that succeeds."""
        done = run(*self.command(*arguments), cwd=self.source)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the paths of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    written = list(map(str, command))
    return subprocess.run(written, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)


def pip(*arguments: object, cwd: Path) -> None:
    """Run pip, which must succeed."""
    done = run(sys.executable, "-m", "pip", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr


def build_wheels(folder: Path) -> Path:
    """Build the wheel of trimaran into a folder; return the folder."""
    folder.mkdir(exist_ok=True)
    pip("wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    return folder


def install(source: Path, wheels: Path) -> Site:
    """Install trimaran and the package in a folder into a fresh environment next to it, without a network.

    The environment has the other dependencies of these tests by path.
    """
    environment = source.with_name(f"environment-of-{source.name}")
    python = environment / "bin/python"
    assert run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=source).returncode == 0
    pip("wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", source / "dist", source, cwd=source)
    built = (*wheels.glob("*.whl"), *source.glob("dist/*.whl"))
    pip("--python", python, "install", *OFFLINE, *built, cwd=source)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Site(python, source)
