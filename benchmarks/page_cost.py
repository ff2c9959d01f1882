"""What the page costs a watcher: installed or not, and once somebody has looked.

    python benchmarks/page_cost.py [--nodes 5000] [--turns 9]

A real ``trimaran watch`` is started in turn where the extra ``dashboard`` is installed, and where it is not: packages
in its place say that they are missing, as Python does. Measured are the time from the start to the first answer, from
the end of a killed worker to the next one's first answer, and the memory of master and worker together (PSS: what they
share is counted once) after five seconds. Then a browser's first look is sent, and the memory is measured again.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.page import SCREEN, callback
from support.servers import Service, free_port, wait_until

_BROWSER = {"Accept": "text/html"}


def memory(service: Service) -> float:
    """Return what master and worker hold in all, in MiB."""
    master = psutil.Process(service.process.pid)
    return sum(process.memory_full_info().pss for process in (master, *master.children())) / 2**20


def measured(folder: Path, nodes: int, environment: dict[str, str]) -> dict[str, float]:
    """Run a watcher once; return seconds and MiB by what they are of."""
    began = time.perf_counter()
    service = Service(
        folder / "store", folder / "log", free_port(), "--provider", "Fake", "--set", f"fake.nodes={nodes}",
        **environment,
    )  # fmt: skip
    try:
        wait_until(lambda: service.get("/watcher/node-1").ok, "it answers", 60)
        found = {"start to first answer, s": time.perf_counter() - began}
        time.sleep(5)
        found["memory, MiB"] = memory(service)
        (worker,) = service.workers()
        os.kill(worker, signal.SIGKILL)
        began = time.perf_counter()
        wait_until(lambda: worker not in service.workers() and service.get("/watcher/node-1").ok, "it answers again")
        found["killed worker to next answer, s"] = time.perf_counter() - began
        if not environment:
            began = time.perf_counter()
            service.get("/dashboard/", headers=_BROWSER).raise_for_status()
            callback(f"{service.url}/dashboard", SCREEN, place={"pathname": "/dashboard/", "search": ""})
            found["first look, s"] = time.perf_counter() - began
            time.sleep(5)
            found["memory after it, MiB"] = memory(service)
        return found
    finally:
        service.terminate()


def main() -> None:
    """Measure in turn, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("dash", "plotly"):
            (folder / "without" / package).mkdir(parents=True)
            missing = f"raise ModuleNotFoundError('No module named {package!r}', name={package!r})\n"
            (folder / "without" / package / "__init__.py").write_text(missing)
        kinds = {"without": {"PYTHONPATH": str(folder / "without")}, "installed": {}}
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(arguments.turns):
            for kind, environment in kinds.items():
                found[kind].append(measured(folder, arguments.nodes, environment))
    print(f"{arguments.nodes} nodes, medians of {arguments.turns} (least to most)")
    for kind, runs in found.items():
        for what in runs[0]:
            values = [run[what] for run in runs]
            print(f"{kind:10} {what:32} {statistics.median(values):8.2f} ({min(values):.2f} to {max(values):.2f})")
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
