"""Run every benchmark, one after the other, and print a summary: ``make bench``."""

import re
import subprocess
import sys
import time
from pathlib import Path

MINUTES = 10
FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {"__main__.py", "common.py", "gate.py", "scheduler_profile.py"}


def main() -> int:
    """Run every benchmark and print a summary; return 1 if a benchmark fails, otherwise 0.

    A benchmark that needs a server that is not installed is skipped.
    """
    scripts = sorted(path for path in FOLDER.glob("*.py") if path.name not in NOT_BENCHMARKS)
    print(f"{len(scripts)} benchmarks, about {MINUTES} minutes; run them on an idle machine", flush=True)
    summary, failed = [], False
    for number, script in enumerate(scripts, 1):
        print(f"\n== {number} of {len(scripts)}: {script.name} ==\n", flush=True)
        start = time.monotonic()
        process = subprocess.run([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, check=False)
        missing = re.search(r"\S+ is not installed: .*", process.stderr)
        if process.returncode == 0:
            result = f"{time.monotonic() - start:.0f} s"
        elif missing:
            result = f"skipped, {missing[0]}"
        else:
            result, failed = f"FAILED with status {process.returncode}", True
            print(process.stderr, end="", file=sys.stderr, flush=True)
        summary.append(f"{script.name:24}{result}")
    print("\n== summary ==", *summary, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
