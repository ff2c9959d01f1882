"""Nodes, pods, disturbances and files of both measurements."""

import csv
import io
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from control_plane.api import Api
from open_loop import Floats, lateness
from support.waiting import wait_until

CORES, NODES, PERIOD_MICROSECONDS, PORT, COST_MILLISECONDS = 0.25, 4, 5_000, 8080, 2
MAX_LATENESS_MILLISECONDS, LEAST_IDLE_PERCENT = 5.0, 15.0
PODS = "/api/v1/namespaces/default/pods"
_OF_RUN = "of-run"


@dataclass(frozen=True)
class Disturbance:
    """Disturbance of a measurement by the machine.

    Attributes:
        lateness: 99th percentile of the generator's own lateness, milliseconds; in a run the worst of its parts.
        idle: idle time of the machine, percent; in a run the least of its minutes.
    """

    lateness: float
    idle: float

    @property
    def is_too_large(self) -> bool:
        """Return whether the generator was late, or the machine had no time left: the measurement is repeated."""
        return self.lateness > MAX_LATENESS_MILLISECONDS or self.idle < LEAST_IDLE_PERCENT

    def __str__(self) -> str:
        words = f"generator at most {self.lateness:.1f} ms late, machine idle at least {self.idle:.0f} %"
        return f"disturbed, {words}" if self.is_too_large else words


def idle_ticks() -> tuple[int, int]:
    """Return the idle time of all processors of the machine, and all their time, in ticks."""
    # The columns after the eighth, time of guests, are part of the first ones. Time that a host has stolen is not idle.
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def idle_percents(begin: float, ends: Iterable[float]) -> Iterator[float]:
    """Wait until each of some times; yield the idle time of the machine from the one before it, percent.

    Args:
        begin: first time, Unix seconds.
        ends: later times, in order.
    """
    time.sleep(max(0.0, begin - time.time()))
    before = idle_ticks()
    for end in ends:
        time.sleep(max(0.0, end - time.time()))
        now = idle_ticks()
        yield 100 * (now[0] - before[0]) / max(now[1] - before[1], 1)
        before = now


def worst(parts: Iterable[Floats], idle: Iterable[float]) -> Disturbance:
    """Return the disturbance of a run, from the requests of its parts and the idle time of its minutes."""
    return Disturbance(max(lateness(part) for part in parts), min(idle))


Row = TypeVar("Row")


def undisturbed(
    run: Callable[[], tuple[list[Row], Disturbance]], attempts: int, seconds: float, end: float,
    keep: Callable[[list[Row]], None],
) -> list[Row]:  # fmt: skip
    """Repeat a run until one is not disturbed; return its rows, or none after the last attempt.

    Args:
        run: makes a run, and returns its rows.
        attempts: largest number of runs.
        seconds: usual duration of a run.
        end: Unix time by which the last run must end.
        keep: takes the rows of a run that was disturbed.
    """
    for _ in range(attempts):
        begin = time.time()
        if begin + seconds > end:
            break
        rows, disturbance = run()
        print(f"  {disturbance}; {time.time() - begin:.0f} s", flush=True)
        if not disturbance.is_too_large:
            return rows
        keep(rows)
    return []


@contextmanager
def cluster_folder(folder: Path) -> Iterator[Path]:
    """Create a folder for the files of a cluster, without those that a killed run has left; remove it at the end."""
    inner = folder / "cluster"
    shutil.rmtree(inner, ignore_errors=True)
    inner.mkdir(parents=True)
    yield inner
    shutil.rmtree(inner)  # not after a failure, which its logs may explain


def append_rows(path: Path, rows: Sequence[Any]) -> None:
    """Append dataclasses to a CSV file, all or none of them, with a header if it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [field.name for field in fields(rows[0])], lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerows(
        {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(each).items()}
        for each in rows
    )
    new = path.with_suffix(".new")
    new.write_text((path.read_text() if path.exists() else "") + text.getvalue())
    new.replace(path)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def create_pod(api: Api, name: str, program: dict[str, Any], node: str = "", *, stays: bool = False) -> None:
    """Create a pod with one container.

    Args:
        api: client of the cluster.
        name: name of the pod.
        program: container.
        node: name of its node; without one a scheduler places it.
        stays: whether :func:`delete_pods` leaves it.
    """
    spec: dict[str, Any] = {"containers": [program], "terminationGracePeriodSeconds": 1}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "labels": {} if stays else {_OF_RUN: "true"}}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def delete_pods(api: Api) -> None:
    """Delete the pods of a run, and wait until they are gone."""
    api.request("DELETE", PODS, params={"labelSelector": _OF_RUN})
    wait_until(lambda: not api.items(PODS, labelSelector=_OF_RUN), "the pods of the run are gone", 120)


def wait_for_pods(api: Api) -> dict[str, dict[str, Any]]:
    """Wait until all pods run; return them by name."""

    def running() -> dict[str, dict[str, Any]] | None:
        pods = {each["metadata"]["name"]: each for each in api.items(PODS)}
        ready = all(each["status"].get("phase") == "Running" and "podIP" in each["status"] for each in pods.values())
        return pods if ready else None

    found: dict[str, dict[str, Any]] = wait_until(running, "all pods run", 120)
    return found


def url(pod: dict[str, Any]) -> str:
    """Return the address of a service."""
    return f"http://{pod['status']['podIP']}:{PORT}/"
