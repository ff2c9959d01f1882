"""Commands that are repeated, under load or with stalls."""

import re
import subprocess
import sys
from pathlib import Path

REPEAT = Path(__file__).parents[1] / "support" / "repeat.py"
#: Prints how often more than a fifth of a second passed between two looks at the clock, in two seconds.
WATCH = """
import time
looks = [time.monotonic()]
while looks[-1] < looks[0] + 2:
    time.sleep(0.001)
    looks.append(time.monotonic())
print(sum(later - earlier > 0.2 for earlier, later in zip(looks, looks[1:])))
"""


def repeat(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, REPEAT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_command_is_repeated_until_it_fails(tmp_path: Path) -> None:
    """The status is that of the run that failed; no run follows it."""
    fails_at_the_third = f"echo >> {tmp_path / 'runs'}; test $(wc -l < {tmp_path / 'runs'}) -lt 3 || exit 7"
    result = repeat("--times", "5", "--busy", "1", "sh", "-c", fails_at_the_third)
    assert (result.returncode, result.stderr.count("passed")) == (7, 2), result.stderr
    assert "run 3 of 5: failed with status 7" in result.stderr


def test_a_command_stands_still_now_and_then() -> None:
    """With stalls the command is frozen for so long, again and again; where that cannot be, it says what is needed."""
    result = repeat("--stall", "0.25", sys.executable, "-c", WATCH)
    if result.returncode:
        assert re.fullmatch("a stall needs root and a mounted cgroup2, .*\n", result.stderr)
    else:
        assert int(result.stdout) > 1
