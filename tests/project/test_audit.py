"""``make audit`` passes over what requirements/audit-exceptions.txt gives a reason for, and over nothing else."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "requirements/audit-exceptions.txt").read_text().splitlines()
IDS = [line.split()[0] for line in LINES if line[:1] not in {"#", " ", ""}]


def test_every_exception_names_a_package_that_is_locked_and_a_reason() -> None:
    """An exception is an id, a package in the version that is locked, and words; when the version moves it must go."""
    locked = (ROOT / "requirements/run.txt").read_text()
    for line in LINES:
        if line.split(maxsplit=1)[:1] and line.split()[0] in IDS:
            id_, name, version, why = line.split(maxsplit=3)
            assert re.fullmatch(r"(GHSA|CVE|PYSEC)-[\w-]+", id_)
            assert f"\n{name}=={version} " in locked
            assert why


def test_make_passes_the_exceptions_on() -> None:
    """The command asks OSV about the locked packages, strictly, and ignores exactly those ids."""
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", "audit"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"--ignore-vuln (\S+)", shown) == IDS
    assert "--strict" in shown
    assert "-r requirements/run.txt" in shown
