"""Run every benchmark, one after the other, and sum up: ``make bench``. ``make soak`` has the rest."""

import re
import subprocess
import sys
import time
from pathlib import Path

MINUTES = 20
FOLDER = Path(__file__).parent
APART = {
    "__main__.py", "attacks.py", "closed_loop.py", "evidence.py", "node_writes.py", "soak.py", "tuning.py",
    "tuning_settings.py",
}  # fmt: skip


def main() -> int:
    """Return 1 when a benchmark failed; what cannot run here is left out, and said so at the end."""
    scripts = sorted(path for path in FOLDER.glob("*.py") if path.name not in APART)
    print(f"{len(scripts)} benchmarks, about {MINUTES} minutes; the machine should have nothing else to do", flush=True)
    summary, failed = [], False
    for number, script in enumerate(scripts, 1):
        print(f"\n== {number} of {len(scripts)}: {script.name} ==", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, check=False)
        missing = re.search(r"\S+ is not installed: .*", done.stderr)
        if done.returncode == 0:
            result = f"{time.monotonic() - began:.0f} s"
        elif missing:
            result = f"left out, {missing[0]}"
        else:
            result, failed = f"FAILED with status {done.returncode}", True
            print(done.stderr, end="", file=sys.stderr, flush=True)
        summary.append(f"{script.name:24}{result}")
    print("\n== summary ==", *summary, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
