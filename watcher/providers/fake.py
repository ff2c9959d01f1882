"""Made-up nodes and pods, to test clients of the watcher without a cluster and without a metrics source.

A file gives the load of each node and is read at every fetch; without a file the load follows from the node's number.
The same settings always give the same metrics. The values of ``fake:cpu:percent`` and the other metrics are percent of
capacity, unchanged from the file.
"""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.errors import quoted
from runtime.http.gather import Deadline
from runtime.parsing import parse_json, parse_toml
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Metric, MetricType, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched
from watcher.settings import Settings

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse

_TYPES = {type_.lower(): type_ for type_ in MetricType}
_OPERATORS = {
    "average": Operator.AVG, "deviation": Operator.STD, "p90": Operator.P90, "p95": Operator.P95,
    "p99": Operator.P99, "maximum": Operator.MAX,
}  # fmt: skip
_NAMESPACE, _CONTAINER, _HASH = "default", "main", "6d8f7c9b5"
_PODS_A_WORKLOAD = 5
_FAILURES = {
    "unavailable": ProviderUnavailable("Fake cannot be reached (simulated by fake.failure)"),
    "refused": ProviderRefused("Fake refuses the credentials (simulated by fake.failure)"),
    "unusable": ProviderAnswerError("Fake returned an unusable response (simulated by fake.failure)"),
}


class FakeProvider:
    """Provider that serves the nodes described in its settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.fake
        self._operators = settings.watch.operators
        self._closed = threading.Event()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the nodes described in the settings, with the same values for every window.

        Raises:
            ProviderError: the settings ask for a failure, or the file cannot be used.
        """
        if self._fail(window, deadline) == "empty":
            return Fetched({})
        return Fetched({name: self._node(name, load, window) for name, load in self._nodes().items()})

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the use of all pods, which depends on the pod's workload only.

        Raises:
            ProviderError: the settings ask for a failure.
        """
        from watcher.windows.container_use import CPU_CORES, MEMORY_BYTES, ContainerUseBuilder  # imports numpy

        rows = ContainerUseBuilder()
        for number in range(0 if self._fail(window, deadline) == "empty" else self._settings.pods):
            workload, _ = _workload(number)
            pod = _pod_name(number)
            rows.add(CPU_CORES, _NAMESPACE, pod, _CONTAINER, 0.05 * (1 + workload % 9))
            rows.add(MEMORY_BYTES, _NAMESPACE, pod, _CONTAINER, 2.0**20 * (64 + 32 * (workload % 7)))
        return rows.build(window.end, float(window.end - window.start))

    def pod_manifests(self) -> Iterator[Mapping[str, Any]]:
        """Yield the pods, each of a Deployment, with requests of half a core and 256 MiB."""
        for number in range(self._settings.pods):
            _, replica_set = _workload(number)
            yield {
                "metadata": {
                    "namespace": _NAMESPACE,
                    "name": _pod_name(number),
                    "labels": {"pod-template-hash": _HASH},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": replica_set, "controller": True}],
                },
                "spec": {
                    "nodeName": f"node-{number % max(self._settings.nodes, 1) + 1}",
                    "containers": [{"name": _CONTAINER, "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}],
                },
                "status": {"phase": "Running"},
            }

    def check(self) -> Iterator[Check]:
        """Yield one step: reading the description."""
        setting = "fake.file" if self._settings.file else "fake.nodes"
        try:
            nodes = self.fetch(Window("5m", 0, 300), Deadline.after(1)).nodes
        except ProviderError as error:
            yield Check("read the description", ok=False, message=str(error), setting=setting)
            return
        yield Check("read the description", ok=True, message=f"{len(nodes)} nodes, all made up", setting=setting)

    def close(self) -> None:
        """Interrupt a fetch that simulates a slow source."""
        self._closed.set()

    def _fail(self, window: Window, deadline: Deadline) -> str:
        """Raise the simulated failure of a window if it is an error; otherwise return its name, "" for no failure."""
        failing = self._settings.failing_windows
        failure = self._settings.failure if not failing or window.duration in failing else ""
        if failure in _FAILURES:
            error = _FAILURES[failure]
            raise type(error)(str(error))
        if failure == "slow":
            self._closed.wait(deadline.remaining_seconds())
            raise ProviderUnavailable("Fake did not answer in time (simulated by fake.failure)")
        return failure

    def _nodes(self) -> Mapping[str, Any]:
        if self._settings.file is not None:
            return _read(self._settings.file)
        count = self._settings.nodes
        return {
            f"node-{number + 1}": {
                "cpu": {"average": 10 + 80 * (number % 17) / 16, "deviation": 1 + number % 5},
                "memory": {"average": 20 + 60 * (number % 13) / 12, "deviation": 1 + number % 3},
            }
            for number in range(count)
        }

    def _node(self, name: str, load: Any, window: Window) -> NodeMetrics:
        location = f"fake.file ({self._settings.file}): {name}"
        if not isinstance(load, dict):
            raise ProviderAnswerError(f'{location} must be an object such as {{"cpu": 20}}')
        metrics: list[Metric] = []
        for key, entry in load.items():
            if key not in _TYPES:
                raise ProviderAnswerError(
                    f"{location} has the unknown resource {quoted(key)}; known: {', '.join(_TYPES)}"
                )
            values = entry if isinstance(entry, dict) else {"average": entry}
            for operator_name, value in values.items():
                if operator_name not in _OPERATORS or isinstance(value, bool) or not isinstance(value, int | float):
                    raise ProviderAnswerError(f"{location}.{key} must have numbers for {', '.join(_OPERATORS)}")
                if _OPERATORS[operator_name] in self._operators:
                    operator = _OPERATORS[operator_name]
                    metrics.append(Metric(f"fake:{key}:percent", _TYPES[key], operator, window.duration, float(value)))
        return NodeMetrics(tuple(metrics))


def _workload(number: int) -> tuple[int, str]:
    """Return the number of a pod's workload, and the name of its ReplicaSet."""
    workload = number // _PODS_A_WORKLOAD
    return workload, f"app-{workload + 1}-{_HASH}"


def _pod_name(number: int) -> str:
    return f"{_workload(number)[1]}-{number % _PODS_A_WORKLOAD}"


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = file.read_bytes()
        nodes = parse_toml(content) if file.suffix == ".toml" else parse_json(content)  # accepts NaN
    except OSError as error:
        raise ProviderUnavailable(f"fake.file ({file}) cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ProviderAnswerError(f"fake.file ({file}) is neither JSON nor TOML (*.toml): {error}") from error
    if not isinstance(nodes, dict):
        raise ProviderAnswerError(f'fake.file ({file}) must be an object such as {{"node-1": {{"cpu": 20}}}}')
    return nodes
