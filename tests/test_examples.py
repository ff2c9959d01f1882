"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example as a program."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_scheduler_plugin_embeds_a_watcher():
    """Without an address the example watches by itself, and places both pods with a reason each."""
    result = run(str(EXAMPLES / "scheduler_plugin.py"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("LoadVariationRiskBalancing: default/web-") == 2
    assert "'web-0':" in result.stdout
    assert "'web-1':" in result.stdout


def test_the_scheduler_plugin_says_that_there_is_no_watcher():
    """With the address of nobody it ends with one line that says so."""
    result = run(str(EXAMPLES / "scheduler_plugin.py"), "--watcher", "http://127.0.0.1:1")
    assert result.returncode == 1
    assert "cannot be reached" in result.stderr
    assert "Traceback" not in result.stderr
