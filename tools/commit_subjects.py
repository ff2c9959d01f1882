"""Check the subjects of commits: one imperative sentence of at most 72 characters. ``make lint`` runs it.

Commits before the one that added this file are not checked, nor is a source archive without history.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_CHARACTERS = 72
_ARTICLES = {"The", "A", "An", "This", "These", "New", "More", "Some", "No", "Not"}
# "Added", "Adding", "Adds"; but "Embed", "Bring", "Pass", "Focus".
_OTHER_MOOD = re.compile(r"[A-Z]\w*(?<!n)(?:[^e]ed|ing|[^siu]s)$")
_VERBS = {"Embed", "Shed", "Bring", "Ping", "Swing", "String"}


def fault(subject: str) -> str:
    """Return the fault of a subject; empty when it has none."""
    first = subject.split(maxsplit=1)[0] if subject.split() else ""
    if len(subject) > MAX_CHARACTERS:
        return f"has {len(subject)} characters, at most {MAX_CHARACTERS} fit"
    if not first[:1].isupper():
        return "begins with a small letter"
    if first.endswith(":"):
        return "begins with an area: begin with a verb"
    if first in _ARTICLES or (_OTHER_MOOD.match(first) and first not in _VERBS):
        return f"begins with {first!r}: begin with a verb in the imperative"
    return "ends with a period" if subject.endswith(".") else ""


def subjects() -> list[tuple[str, str]]:
    """Return hash and subject of each commit after the one that added this file."""
    name = str(Path(__file__).relative_to(ROOT))
    added = _git("log", "--diff-filter=A", "--format=%H", "--", name).split()
    if not added:
        return []
    log = _git("log", "--no-merges", "--format=%h %s", f"{added[-1]}..HEAD")
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in log.splitlines()]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def main() -> int:
    """Print the faults; return 1 where there are any."""
    faults = [f"{commit}: {subject!r} {fault(subject)}" for commit, subject in subjects() if fault(subject)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
