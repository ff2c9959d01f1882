"""Expected use by which a pod is scored, and where it comes from: its workload, all pods, or its requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Pod
from runtime.kubernetes.workloads import Workload, revision_of
from scoring.load.use_levels import NO_LEVELS, UseLevels

_GIB = 2.0**30
_NAMES = ("cpu_cores", "memory_bytes")


@dataclass(frozen=True, slots=True)
class PodExpectation:
    """Expected use of a pod at the time it was scored.

    Attributes:
        workload: workload of the pod; None if it has none.
        revision: hash of the pod's template; "" if unknown.
        is_known: whether the use of the workload is learned.
        use: expected use, cores and bytes.
        deviation: standard deviation of this use, in the same units.
        age_seconds: age of the newest round of measurements; None if its time is not known, or requests count.
        why: reason why requests count; "" if the use is learned, of the workload or of all pods.
    """

    workload: Workload | None
    revision: str
    is_known: bool
    use: tuple[float, float]
    deviation: tuple[float, float]
    age_seconds: float | None
    why: str

    @classmethod
    def of(cls, levels: UseLevels | None, pod: Pod, now: float, why: str) -> Self:
        """Return the expected use of a pod.

        Args:
            levels: levels that the pod was scored by; None if requests count.
            pod: the pod.
            now: Unix time of the scores.
            why: reason why requests count; ignored if there are levels.
        """
        by_requests = levels is None
        counted = NO_LEVELS if levels is None else levels
        cpu_milli, memory_bytes = (counted.expected_use(pod, name) for name in (CPU, MEMORY))
        cpu_deviation, memory_deviation = (
            counted.deviation(pod.kin, name, 1.0, float(pod_demand.requests(pod, name))) for name in (CPU, MEMORY)
        )
        is_dated = levels is not None and levels.timestamp is not None
        return cls(
            workload=pod.workload,
            revision=revision_of(pod.labels),
            is_known=not by_requests and counted.knows(pod),
            use=(cpu_milli / 1000, memory_bytes),
            deviation=(cpu_deviation / 1000, memory_deviation),
            age_seconds=max(0.0, now - (counted.timestamp or 0.0)) if is_dated else None,
            why=why if by_requests else "",
        )

    def as_document(self) -> dict[str, Any]:
        """Return the expectation as JSON fields; :func:`expectation_line` prints them."""
        basis = "workload" if self.is_known else "requests" if self.why else "all_pods"
        return {
            "basis": basis,
            "workload": self.workload and "/".join(self.workload),
            "revision": self.revision or None,
            "use": dict(zip(_NAMES, self.use, strict=True)),
            "deviation": dict(zip(_NAMES, self.deviation, strict=True)),
            "age_seconds": None if self.age_seconds is None else round(self.age_seconds, 1),
            "why": self.why or None,
        }


def expectation_line(document: Mapping[str, Any]) -> str:
    """Return the fields of :meth:`PodExpectation.as_document` as a phrase for users."""
    if document["basis"] == "requests":
        return f"by requests: {document['why']}"
    use, deviation = document["use"], document["deviation"]
    cpu = f"{use['cpu_cores']:.3g} ± {deviation['cpu_cores']:.2g} CPUs"
    memory = f"{use['memory_bytes'] / _GIB:.3g} ± {deviation['memory_bytes'] / _GIB:.2g} GiB"
    age = "" if document["age_seconds"] is None else f", {document['age_seconds']:.0f} s old"
    if document["basis"] == "workload":
        revision = f" (revision {document['revision']})" if document["revision"] else ""
        return f"{cpu} and {memory}, learned of {document['workload']}{revision}{age}"
    return f"by requests: unknown workload {document['workload']}; {cpu} and {memory}, the share that all pods use{age}"
