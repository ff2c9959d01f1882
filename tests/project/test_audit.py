"""``make audit`` ignores exactly the vulnerabilities with a reason in requirements/audit-exceptions.txt."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "requirements/audit-exceptions.txt").read_text().splitlines()
IDS = [line.split()[0] for line in LINES if line[:1] not in {"#", " ", ""}]


def test_every_exception_names_a_locked_package_and_a_reason() -> None:
    """An exception has an ID, a package in its locked version, and a reason; a new version invalidates it."""
    locked = (ROOT / "requirements/run.txt").read_text()
    for line in LINES:
        if line.split(maxsplit=1)[:1] and line.split()[0] in IDS:
            id_, name, version, reason = line.split(maxsplit=3)
            assert re.fullmatch(r"(GHSA|CVE|PYSEC)-[\w-]+", id_)
            assert f"\n{name}=={version} " in locked
            assert reason


def test_make_passes_the_exceptions_to_pip_audit() -> None:
    """The command audits the locked packages strictly and ignores exactly the listed IDs."""
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", "audit"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"--ignore-vuln (\S+)", plan) == IDS
    assert "--strict" in plan
    assert "-r requirements/run.txt" in plan
