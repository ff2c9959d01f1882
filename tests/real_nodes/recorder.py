"""Counters of control groups over time: what nodes and pods really used, in any interval."""

import itertools
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import orjson
from real_nodes.cluster import RealCluster
from sqlite_utils import Database

if TYPE_CHECKING:
    from real_nodes.cgroups import Counters

_SECONDS = 0.5


class Recorder:
    """A thread that reads the counters of all nodes, pods and containers twice a second. Use it as a context manager.

    Args:
        cluster: cluster with the nodes.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._readings: dict[str, list[Counters]] = {}
        self._pods: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def is_recorded(self, until: float) -> bool:
        """Return whether all nodes that run are recorded until a time."""
        return all(self._readings[name][-1].time >= until for name in self._cluster.nodes)

    def cores(self, of: str, begin: float, end: float) -> float:
        """Return the mean number of cores in use between two times.

        Args:
            of: name of a node, UID of a pod, or ID of a container.
            begin: Unix seconds.
            end: Unix seconds.
        """
        readings = list(self._readings[of])  # the thread appends to it
        times = [each.time for each in readings]
        assert times[0] <= begin + _SECONDS, f"{of} is recorded since {times[0]}"
        assert end <= times[-1] + _SECONDS, f"{of} is recorded until {times[-1]}"
        first, last = np.interp([begin, end], times, [each.cpu for each in readings])
        return float(last - first) / (end - begin)

    def sampled_cores(self, of: str, store: Path, begin: float, end: float) -> float:
        """Return what a watcher should have measured: the mean over the spans between its samples of a node.

        A kubelet measures every 10 to 15 s, so these spans begin and end at other times than the watcher's window.

        Args:
            of: name of a node.
            store: file of the watcher's store; it must have the last sample before the window, too.
            begin: begin of the window, Unix seconds.
            end: end of the window.
        """
        database = Database(store)
        try:
            rows = list(database.query("select taken_at, body from samples order by taken_at"))
        finally:
            database.close()
        taken = [(row["taken_at"], orjson.loads(zlib.decompress(row["body"]))["timestamps"].get(of)) for row in rows]
        times = [(taken_at, timestamp) for taken_at, timestamp in taken if timestamp is not None]
        assert times[0][0] <= begin, f"the samples of {of} begin within the window"
        spans = [
            (before, timestamp) for (_, before), (taken_at, timestamp) in itertools.pairwise(times)
            if begin < taken_at <= end
        ]  # fmt: skip
        return float(np.mean([self.cores(of, *span) for span in spans]))

    def latest(self, of: str, seconds: float) -> float:
        """Return the mean number of cores in use in the last seconds, or since it began; 0 if it was not seen."""
        readings = self._readings.get(of, [])
        first = next((each for each in readings if each.time >= readings[-1].time - seconds), None)
        if first is None or first is readings[-1]:
            return 0.0
        return readings[-1].cores_since(first)

    def memory(self, of: str, begin: float, end: float) -> float:
        """Return the mean working set between two times, bytes; see :meth:`cores`."""
        return float(np.mean([each.memory for each in self._readings[of] if begin <= each.time <= end]))

    def working_set(self, of: str) -> int:
        """Return the last known working set, bytes; 0 if it was not seen."""
        readings = self._readings.get(of, [])
        return readings[-1].memory if readings else 0

    def throttled(self, of: str, begin: float, end: float) -> float:
        """Return the share of periods in which the quota made it wait; see :meth:`cores`."""
        within = [each for each in self._readings[of] if begin - _SECONDS <= each.time <= end + _SECONDS]
        periods = within[-1].periods - within[0].periods
        return (within[-1].throttled - within[0].throttled) / max(periods, 1)

    def pods(self) -> list[str]:
        """Return the UIDs of all pods that were seen."""
        return [each for each in list(self._readings) if each in self._pods]

    def _run(self) -> None:
        while not self._end.wait(_SECONDS):
            for node in self._cluster.nodes.values():
                pods = node.group.pods()
                self._pods.update(pods)
                for name, group in {node.name: "", **pods, **node.group.containers()}.items():
                    try:
                        counters = node.group.counters(group)
                    except (OSError, KeyError, ValueError):  # the pod or the node ended in this moment
                        continue
                    self._readings.setdefault(name, []).append(counters)
