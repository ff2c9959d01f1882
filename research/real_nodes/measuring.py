"""Measurement of latency and waiting on real nodes."""

import csv
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from control_plane.api import Api
from numpy.typing import NDArray
from real_nodes import cgroups
from real_nodes.cluster import RealCluster
from real_nodes.images import generator

Floats = NDArray[np.float64]
CORES, NODES, PERIOD_MICROSECONDS, PORT, COST_MILLISECONDS = 0.25, 4, 5_000, 8080, 2
SLOW_MILLISECONDS = 50.0
MAX_LATENESS_MILLISECONDS, LEAST_IDLE_PERCENT = 5.0, 15.0
_OK = 200


class QueueWaits:
    """Thread that adds up, by node, the time that tasks waited for a processor (``schedstat``), once a second.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._sums: dict[str, list[tuple[float, float]]] = {name: [] for name in cluster.nodes}
        self._before: dict[str, dict[str, int]] = {name: {} for name in cluster.nodes}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue-waits")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def rate(self, node: str, begin: float, end: float) -> float:
        """Return the seconds of waiting of all tasks of a node for each second between two times."""
        times, sums = zip(*self._sums[node], strict=True)
        first, last = np.interp([begin, end], times, sums)
        return float(last - first) / (end - begin)

    def _run(self) -> None:
        while not self._end.wait(1):
            for name, node in self._cluster.nodes.items():
                now = dict(self._waits(node.group.folders[0]))
                before = self._before[name]
                grown = sum(wait - before[task] for task, wait in now.items() if task in before)
                total = self._sums[name][-1][1] if self._sums[name] else 0.0
                self._sums[name].append((time.time(), total + max(grown, 0) / 1e9))
                self._before[name] = now

    @staticmethod
    def _waits(folder: Path) -> Iterator[tuple[str, int]]:
        """Yield each task of a group and those below it, with the nanoseconds for which it has waited."""
        for group in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
            for pid in cgroups.members(group):
                for task in Path(f"/proc/{pid}/task").glob("*"):
                    try:
                        yield task.name, int((task / "schedstat").read_text().split()[1])
                    except (OSError, IndexError):  # the task has ended
                        continue


class Generator:
    """Open-loop generator of requests, a process outside of the nodes; it begins at once.

    Args:
        phases: begin and end in seconds, requests a second, and the URL of each phase.
        seed: seed of the times.

    Attributes:
        begin: time from which the phases count, Unix seconds.
    """

    def __init__(self, phases: Sequence[tuple[float, float, float, str]], seed: int) -> None:
        self._process = subprocess.Popen(
            [generator(), "-seed", str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        with self._process.stdin as lines:
            lines.writelines(f"{begin} {end} {rate} {url}\n" for begin, end, rate, url in phases)
        self.begin = time.time()
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, name="answers")
        self._reader.start()

    def result(self) -> Floats:
        """Wait for the last answer; return a row for each request.

        Its columns are the phase, the intended time in Unix seconds, lateness and latency in milliseconds, the status.
        """
        self._reader.join()
        self._process.wait()
        return np.array([line.split(",") for line in self._lines], np.float64).reshape(-1, 5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._lines.extend(lines)


def latencies(requests: Floats) -> tuple[float, float, float]:
    """Return median and 99th percentile of the latency in milliseconds, and the share of slow or failed requests."""
    took, answered = requests[:, 3], requests[:, 4] == _OK
    p50, p99 = np.percentile(took, [50, 99])
    return float(p50), float(p99), float(np.mean((took > SLOW_MILLISECONDS) | ~answered))


def lateness(requests: Floats) -> float:
    """Return the 99th percentile of the generator's own lateness, milliseconds."""
    return float(np.percentile(requests[:, 2], 99))


def idle_ticks() -> tuple[int, int]:
    """Return the idle time of all processors of the machine, and all their time, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)


def idle_percent(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the idle time between two readings of :func:`idle_ticks`, percent."""
    return 100 * (after[0] - before[0]) / (after[1] - before[1])


def append_rows(path: Path, rows: Sequence[Any]) -> None:
    """Append dataclasses to a CSV file, with a header if it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
        if is_new:
            writer.writeheader()
        writer.writerows(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(each).items()}
            for each in rows
        )


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def create_pod(api: Api, name: str, program: dict[str, Any], node: str = "") -> None:
    """Create a pod with one container, on a node, or for the scheduler."""
    spec: dict[str, Any] = {"containers": [program], "terminationGracePeriodSeconds": 1}
    if node:
        spec["nodeName"] = node
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})


def address(api: Api, name: str) -> str:
    """Return the address of a pod that runs; empty for others."""
    status = api.get(f"/api/v1/namespaces/default/pods/{name}")["status"]
    return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""
