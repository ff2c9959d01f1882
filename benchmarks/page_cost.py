"""Cost of the dashboard page to a watcher: a watcher with the extra ``dashboard`` installed, and one without it.

Both watchers take turns. For the watcher without the extra (the baseline), the packages of the extra cannot be
imported. Three costs are measured: the time from the start to the first answer, the time from the kill of a worker to
the first answer of its successor, and the memory of master and worker together (PSS: shared pages count once) after
5 s. Then the watcher with the page gets the requests of a browser that opens the page, and its memory is measured
again.

    python benchmarks/page_cost.py [--nodes 5000] [--turns 9]
"""

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from common import Table, median_ratio, options, process_memory
from support.page import SCREEN, callback
from support.servers import Service, wait_until


def run_watcher(folder: Path, nodes: int, environment: dict[str, str]) -> dict[str, float]:
    """Run a watcher once; return the measured costs by name.

    Args:
        folder: folder for the watcher's files.
        nodes: number of nodes.
        environment: environment variables of the watcher; if empty, the watcher has the dashboard page.
    """
    start = time.perf_counter()
    arguments = ("--provider", "Fake", "--set", f"fake.nodes={nodes}")
    service = Service(folder / "store", folder / "log", *arguments, **environment)
    master = psutil.Process(service.process.pid)
    try:
        wait_until(lambda: service.get("/watcher/node-1").ok, "it answers")
        figures = {"start to first answer, s": time.perf_counter() - start}
        time.sleep(5)
        figures["memory of master and worker, MiB"] = process_memory(master)
        (worker,) = service.workers()
        os.kill(worker, signal.SIGKILL)
        start = time.perf_counter()
        wait_until(lambda: worker not in service.workers() and service.get("/watcher/node-1").ok, "it answers again")
        figures["killed worker to next answer, s"] = time.perf_counter() - start
        if not environment:
            start = time.perf_counter()
            service.get("/dashboard/", headers={"Accept": "text/html"}).raise_for_status()
            callback(f"{service.url}/dashboard", SCREEN, location={"pathname": "/dashboard/", "search": ""})
            figures["first look, s"] = time.perf_counter() - start
            time.sleep(5)
            figures["memory once the page is loaded, MiB"] = process_memory(master)
        return figures
    finally:
        service.terminate()


def spread(values: list[float]) -> str:
    """Return a text with the median, the smallest and the largest value; "" without values."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, turns=9)
    runs: dict[str, list[dict[str, float]]] = {"without": [], "installed": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("dash", "plotly"):
            (folder / "without" / package).mkdir(parents=True)
            missing = f"raise ModuleNotFoundError('No module named {package!r}', name={package!r})\n"
            (folder / "without" / package / "__init__.py").write_text(missing)
        for _ in range(size.turns):
            for kind, environment in (("without", {"PYTHONPATH": str(folder / "without")}), ("installed", {})):
                runs[kind].append(run_watcher(folder, size.nodes, environment))
    title = f"{size.nodes:,} nodes, medians of {size.turns} turns (smallest to largest)"
    table = Table(title, ("cost", "without", "installed", "installed/without"))
    for figure in runs["installed"][0]:
        without, installed = ([run[figure] for run in runs[kind] if figure in run] for kind in runs)
        ratio = f"{median_ratio(installed, without):.2f}" if without else ""
        table.row(figure, spread(without), spread(installed), ratio)


if __name__ == "__main__":
    main()
