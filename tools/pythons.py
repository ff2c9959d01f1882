"""Run a command of make with other installed Python versions, each in an environment of its own.

python tools/pythons.py all make test      # with each version that pyproject.toml lists
python tools/pythons.py newest make test   # with the newest one

The command gets PYTHON=INTERPRETER and VENV=.venv/VERSION, unless the newest version is that of the Python that runs
this: then it runs unchanged. Interpreters are those of PATH, and those of pyenv.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_CHECK = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"


def promised() -> list[str]:
    """Return the versions in the classifiers of pyproject.toml, oldest first."""
    found = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    return [f"3.{minor}" for minor in sorted(map(int, found))]


def interpreter(version: str) -> str | None:
    """Return the path of an installed interpreter that can make environments; None if there is none."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    # A folder that this user may not read, such as that of root in an inherited PYENV_ROOT, has none.
    in_pyenv = home.glob(f"versions/{version}.*/bin/python") if os.access(home, os.R_OK | os.X_OK) else ()
    newest_first = sorted(in_pyenv, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parts[-3])])[::-1]
    for path in filter(None, [shutil.which(f"python{version}"), *map(str, newest_first)]):
        # pyenv puts a program of each version on PATH that fails unless the version is selected, and Debian has
        # interpreters without ensurepip: only a run shows what can be used.
        run = subprocess.run([path, "-c", _CHECK], capture_output=True, text=True, check=False)
        if run.stdout.strip() == version:
            return path
    return None


def run(command: list[str], version: str, path: str) -> int:
    """Run the command with an interpreter; return its status."""
    print(f"Python {version}: {path}", flush=True)
    return subprocess.run([*command, f"PYTHON={path}", f"VENV=.venv/{version}"], cwd=ROOT, check=False).returncode


def run_all(command: list[str]) -> int:
    """Run the command with each installed version, oldest first, until it fails; return its status."""
    for version in promised():
        path = interpreter(version)
        if path is None:
            print(f"Python {version} is not installed", flush=True)
        elif status := run(command, version, path):
            return status
    return 0


def run_newest(command: list[str], current: tuple[int, int] = sys.version_info[:2]) -> int:
    """Run the command with the newest installed version, unchanged if none is newer than ours; return its status."""
    newer = [version for version in promised() if tuple(map(int, version.split("."))) > current]
    for version in reversed(newer):
        if (path := interpreter(version)) is not None:
            return run(command, version, path)
    looked_for = f" (looked for {', '.join(newer)} on PATH and in pyenv)" if newer else ""
    print(f"no Python newer than {current[0]}.{current[1]} that is supported is installed{looked_for}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["all", *words] if words:
            sys.exit(run_all(words))
        case ["newest", *words] if words:
            sys.exit(run_newest(words))
        case _:
            sys.exit(__doc__)
