"""Run the tests in each situation that they must pass in, in fresh clones of one commit, and list every run.

python tools/green.py FOLDER                 # all situations
python tools/green.py FOLDER hidden plain    # these ones

Runs are listed in FOLDER/runs.jsonl, and their output is kept next to it. Started again, it goes on: a situation that
has passed or failed is not repeated, one that was cut off is, and stays in the list.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pythons import ROOT, interpreter

_HIDE = "python3 tests/support/programs.py hide"
_NO_CACHE = (
    "PIP_NO_CACHE_DIR=1 GOFLAGS=-modcacherw TRIMARAN_E2E_CACHE={empty}/e2e GOCACHE={empty}/go GOMODCACHE={empty}/mod"
)
#: Shell commands; {python312} is an interpreter, {empty} a folder without files.
SITUATIONS = {
    "hidden": f"{_HIDE} make test",
    "hidden-busy": f"{_HIDE} make test BUSY=4",
    "busy-shuffled": "PYTEST_ADDOPTS='--shuffle 7' make test BUSY=4",
    "stalled": "make test STALL=0.5",
    "python-3.12": "make test PYTHON={python312}",
    "python-3.13": "umask 077; TZ=Asia/Kathmandu LANG=C LC_ALL=C make test PYTHON={python313}",
    "plain": "make test",
    "background": "make test & wait $!",  # a shell without job control lets it ignore SIGINT
    "ci": "CI=true .ci/run",
    "ci-no-cache": f"CI=true {_NO_CACHE} .ci/run",
}
#: The account of the situation "plain", whose clone has a space in its path.
_PLAIN = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class Runs:
    """The list of runs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "runs.jsonl"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each run, oldest first: its start, and its end unless it was cut off."""
        started: dict[str, Any] = {}
        for line in self.file.read_text().splitlines() if self.file.exists() else []:
            entry = json.loads(line)
            if "status" not in entry and started:
                yield started
            started = entry
            if "status" in entry:
                yield started
                started = {}
        if started:
            yield started

    def add(self, **entry: object) -> None:
        """Append the start or the end of a run."""
        with self.file.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def run_all(folder: Path, names: list[str], situations: dict[str, str] = SITUATIONS) -> int:
    """Run the tests in each situation that has not ended in this folder; return 1 if any has failed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    runs = Runs(folder)
    for name in names:
        if not any(run["situation"] == name and run["commit"] == commit and "status" in run for run in runs):
            run: dict[str, Any] = {"situation": name, "commit": commit, "begin": time.strftime("%F %T")}
            runs.add(**run)
            begin = time.monotonic()
            status, summary = _run(folder.absolute(), name, situations[name])
            runs.add(**run, seconds=round(time.monotonic() - begin), status=status, summary=summary)
    for run in runs:
        outcome = "cut off" if "status" not in run else "failed" if run["status"] else "passed"
        print(f"{run['begin']}  {run['commit']}  {run['situation']:14}{outcome}", run.get("summary", ""), flush=True)
    return int(any(run.get("status") for run in runs if run["commit"] == commit and run["situation"] in names))


def _run(folder: Path, name: str, command: str) -> tuple[int, str]:
    """Run a situation's command in a fresh clone; return its status and the last summary of pytest."""
    clone, empty = folder / ("with a space" if name == "plain" else name), folder / "empty"
    for path in (clone, empty):
        shutil.rmtree(path, ignore_errors=True)
    empty.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    account: tuple[str, ...] = ()
    if name == "plain":
        account, environment["HOME"] = _PLAIN, str(clone / ".home")
        Path(environment["HOME"]).mkdir()
        subprocess.run(["chown", "--recursive", "65534:65534", clone], check=True)
    known = {"empty": shlex.quote(str(empty)), **{f"python3{minor}": interpreter(f"3.{minor}") for minor in (12, 13)}}
    log = folder / f"{name}.log"
    with log.open("w") as output:
        arguments = [*account, "sh", "-c", command.format(**known)]
        status = subprocess.run(
            arguments, cwd=clone, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        ).returncode
    summaries = [line.strip("= ") for line in log.read_text().splitlines() if line.startswith("=") and " in " in line]
    if not status:
        shutil.rmtree(clone, ignore_errors=True)
    return status, "; ".join(summaries)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, *names] if set(names) <= set(SITUATIONS) and not folder.startswith("-"):
            sys.exit(run_all(Path(folder), names or list(SITUATIONS)))
        case _:
            sys.exit(f"{__doc__}\nSituations: {', '.join(SITUATIONS)}")
