"""Workloads as arrays for the Workloads page: requests, use and recommended requests of their running pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from client.errors import BadAnswer
from runtime.kubernetes.workloads import Workload
from trimaran.workload_advice import RESOURCES, AdvisedContainer, AdvisedWorkload, read_workload

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

CHANGES = ("lower", "raise", "keep")


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadRow:
    """Row of the table: a workload or a namespace. Amounts are CPU in cores and memory in bytes, of all pods."""

    name: str
    workload: Workload | None
    pods: float
    requested: Sequence[float]
    used: Sequence[float]
    recommended: Sequence[float]
    wasted: Sequence[float]
    change: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadList:
    """All workloads of one round. Amounts are sums over running pods, cores and bytes, shape (2, workloads).

    Attributes:
        timestamp: end of the round, Unix seconds.
        workloads: the workloads, sorted.
        pods: number of running pods, shape (workloads,).
        requested: requests.
        used: expected use.
        recommended: requests that the watcher recommends; the present requests where it recommends none.
        wasted: unused part of the requests.
        changes: changes that the containers' requests need, such as ``lower``, ``raise``; "" for no change.
        reasons: reasons why requests are not lowered; "" if there are none.
        unmeasured: containers of running pods that were never measured: their workload, container, pods and reason.
    """

    timestamp: float
    workloads: tuple[Workload, ...]
    pods: Float64s
    requested: Float64s
    used: Float64s
    recommended: Float64s
    wasted: Float64s
    changes: tuple[str, ...]
    reasons: tuple[str, ...]
    unmeasured: tuple[tuple[Workload, str, int, str], ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return the workloads of a document of ``GET /workloads``.

        Raises:
            BadAnswer: the watcher is of an older version, which recommends nothing, or its answer is malformed.
        """
        try:
            newest = float(document["timestamp"])
            read = [read_workload(item, newest) for item in document["workloads"]]
            unmeasured = tuple(map(_unmeasured, document.get("not_measured", ())))  # older watchers do not send it
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadAnswer(
                f"the watcher does not recommend requests; is it an older version? ({type(error).__name__}: {error})"
            ) from error
        return cls(
            newest,
            tuple(each.workload for each in read),
            np.array([max((container.pods for container in each.containers), default=0.0) for each in read]),
            _sums(read, lambda container, resource: container.requests[resource]),
            _sums(read, lambda container, resource: container.use[resource]),
            _sums(read, _recommended),
            np.array([[each.wasted(resource) for each in read] for resource in RESOURCES]).reshape(2, len(read)),
            tuple(", ".join(_texts(each, "verdict", CHANGES[:2])) for each in read),
            tuple("; ".join(_texts(each, "reason")) for each in read),
            unmeasured,
        )

    def matching(self, search: str, namespace: str, change: str) -> Int64s:
        """Return the indexes of the workloads that match all filters; an empty filter matches every workload.

        Args:
            search: part of ``kind/name``.
            namespace: the namespace.
            change: change that a request needs; ``keep`` for workloads that need none.
        """
        return np.array(
            [
                place
                for place, (workload, needed) in enumerate(zip(self.workloads, self.changes, strict=True))
                if _matches(workload, search, namespace)
                and (change not in CHANGES or (change in needed if change != "keep" else not needed))
            ],
            np.int64,
        )

    def matching_unmeasured(self, search: str, namespace: str) -> list[tuple[Workload, str, int, str]]:
        """Return the containers that were never measured and match both filters, as :meth:`matching` does."""
        return [each for each in self.unmeasured if _matches(each[0], search, namespace)]

    def order(self, chosen: Int64s, sort: str) -> Int64s:
        """Return the chosen workloads sorted by a column, the largest first; for ``name`` their order stays."""
        values = self.column(sort)
        return chosen if values is None else chosen[np.argsort(-values[chosen], kind="stable")]

    def column(self, sort: str) -> Float64s | None:
        """Return the values of the column that ``sort`` names, such as ``waste CPU``; None for ``name``."""
        what, _, resource = sort.partition(" ")
        if what == "pods":
            return self.pods
        if what not in {"waste", "requested", "used"}:
            return None
        columns = {"waste": self.wasted, "requested": self.requested, "used": self.used}
        values: Float64s = columns[what][0 if resource == "CPU" else 1]
        return values

    def rows(self, chosen: Sequence[int]) -> list[WorkloadRow]:
        """Return the rows of the table for the chosen workloads."""
        return [
            WorkloadRow(
                "/".join(self.workloads[place][1:]),
                self.workloads[place],
                float(self.pods[place]),
                self.requested[:, place].tolist(),
                self.used[:, place].tolist(),
                self.recommended[:, place].tolist(),
                self.wasted[:, place].tolist(),
                self.changes[place],
                self.reasons[place],
            )
            for place in chosen
        ]

    def by_namespace(self, chosen: Int64s, sort: str) -> list[WorkloadRow]:
        """Return a row for each namespace, summed over its workloads, sorted by a column, the largest first."""
        names = sorted({self.workloads[place].namespace for place in chosen.tolist()})
        number = {name: row for row, name in enumerate(names)}
        group = np.array([number[self.workloads[place].namespace] for place in chosen.tolist()], np.int64)

        def total(values: Float64s) -> Float64s:
            return np.bincount(group, values[chosen], len(names)).astype(np.float64)

        def totals(values: Float64s) -> list[list[float]]:
            rows: list[list[float]] = np.stack([total(row) for row in values]).T.tolist()
            return rows

        columns = (self.requested, self.used, self.recommended, self.wasted)
        amounts = zip(names, total(self.pods).tolist(), *map(totals, columns), strict=True)
        counts = np.bincount(group, minlength=len(names)).tolist()
        rows = [
            WorkloadRow(name, None, pods, requested, used, recommended, wasted, f"{count}", "")
            for (name, pods, requested, used, recommended, wasted), count in zip(amounts, counts, strict=True)
        ]
        values = self.column(sort)
        if values is None:
            return rows
        return [rows[row] for row in np.argsort(-total(values), kind="stable").tolist()]


def _matches(workload: Workload, search: str, namespace: str) -> bool:
    return (not namespace or workload.namespace == namespace) and (
        not search or search in f"{workload.kind}/{workload.name}"
    )


def _unmeasured(item: Mapping[str, Any]) -> tuple[Workload, str, int, str]:
    workload = Workload(*(str(item[name]) for name in Workload._fields))
    return workload, str(item["container"]), int(item["pods"]), str(item["reason"])


def _sums(read: Sequence[AdvisedWorkload], amount: Any) -> Float64s:
    """Return the sums over the containers of all running pods of each workload, shape (2, workloads)."""
    return np.array(
        [
            [sum(amount(container, resource) * container.pods for container in each.containers) for each in read]
            for resource in RESOURCES
        ]
    ).reshape(2, len(read))


def _recommended(container: AdvisedContainer, resource: str) -> float:
    recommended = container.recommended[resource]
    return container.requests[resource] if recommended is None else recommended


def _texts(workload: AdvisedWorkload, field: str, wanted: Sequence[str] = ()) -> list[str]:
    """Return the distinct texts of a field over all containers and resources, in order of appearance."""
    texts = (getattr(container, field)[resource] for container in workload.containers for resource in RESOURCES)
    return list(dict.fromkeys(text for text in texts if text and (not wanted or text in wanted)))
