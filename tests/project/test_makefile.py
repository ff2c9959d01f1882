"""Commands of the Makefile that other tests do not run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_help_lists_every_command() -> None:
    """``make help`` lists every phony target with a description, except osv, a step of another target."""
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    listed = re.findall(r"^make ([a-z0-9-]+) +\S", run("make", "help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(set(phony.split()) - {"osv"})


def test_an_audit_without_a_network_is_one_line() -> None:
    """Without a network the audit first prints one line that names the unreachable service, and fails."""
    plan = run("make", "--dry-run", "--always-make", "audit").stdout
    assert 0 < plan.index("requirements/reachable.py https://api.osv.dev") < plan.index("bin/pip-audit")
    done = run(sys.executable, "requirements/reachable.py", "http://nowhere.invalid/v1/query")
    assert done.returncode == 1
    assert done.stderr.startswith("nowhere.invalid cannot be reached, so nothing was audited")
    assert done.stderr.count("\n") == 1


def test_pips_progress_and_status_are_passed_on(tmp_path: Path) -> None:
    """The script counts collected packages on a terminal, and exits with pip's status."""
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho 'Collecting numpy==2.0'\necho 'Collecting six'\necho broken >&2\nexit 3\n")
    pip.chmod(0o755)
    command = shlex.join(["sh", str(ROOT / "requirements/install.sh"), str(pip), "-r", "requirements.txt"])
    quiet = run("sh", "-c", command)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (3, "", "broken\n")
    shown = run("script", "-qec", command, "/dev/null")
    assert shown.returncode == 3
    assert "package 2: six" in shown.stdout


def test_the_benchmarks_end_with_a_summary(tmp_path: Path) -> None:
    """The summary lists skipped benchmarks with the remedy, and failed ones, for which the status is 1."""
    shutil.copy(ROOT / "benchmarks" / "__main__.py", tmp_path)
    (tmp_path / "good.py").write_text("print('1 us')")
    (tmp_path / "left.py").write_text("raise SystemExit('prometheus is not installed: apt-get install prometheus')")
    (tmp_path / "common.py").write_text("raise SystemExit('a module, not a benchmark')")
    first = run(sys.executable, tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("2 benchmarks, about ")
    summary = first.stdout.partition("== summary ==")[2]
    assert re.search(r"^good\.py +\d+ s$", summary, re.MULTILINE)
    assert re.search(r"^left\.py +skipped, prometheus is not installed: apt-get install", summary, re.MULTILINE)
    (tmp_path / "bad.py").write_text("1 / 0")
    second = run(sys.executable, tmp_path)
    assert second.returncode == 1
    assert re.search(r"^bad\.py +FAILED with status 1$", second.stdout, re.MULTILINE)
    assert "ZeroDivisionError" in second.stderr
