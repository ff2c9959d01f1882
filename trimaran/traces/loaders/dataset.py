"""Common model of all data sets: machines, tasks, and the use of tasks over time."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from runtime.kubernetes.objects import MAX_AMOUNT
from trimaran.traces.loaders.rows import DatasetFiles

SERVICE, JOB = "Deployment", "Job"
#: Assumed capacity of the largest machine, for data sets with relative amounts only.
LARGEST_MILLI, LARGEST_BYTES = 64_000, 256 * 1024**3


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine with its capacity in millicores and bytes."""

    name: str
    cpu_milli: float
    memory_bytes: float

    def __post_init__(self) -> None:
        """Refuse an empty name and an impossible capacity."""
        if not self.name or not max(self.cpu_milli, self.memory_bytes) <= MAX_AMOUNT:
            raise ValueError(
                f"{self.name!r} with {self.cpu_milli:g}m and {self.memory_bytes:g} bytes is not a valid machine"
            )


@dataclass(frozen=True, slots=True)
class DatasetTask:
    """Run of a task on a machine.

    Attributes:
        key: identifier that the data set's records of use refer to; several runs of a task have the same key.
        owner_kind: :data:`SERVICE` or :data:`JOB`.
        owner: group of tasks, such as a job or a deployment, that the task belongs to.
        cpu_milli: CPU request in millicores.
        memory_bytes: memory request in bytes.
        start: seconds; None if the first use is the start.
        end: seconds; infinite if the task did not end.
    """

    key: str
    owner_kind: str
    owner: str
    cpu_milli: float
    memory_bytes: float
    start: float | None
    end: float = float("inf")

    def __post_init__(self) -> None:
        """Raise ValueError if the task has no key."""
        if not self.key:
            raise ValueError("the name of the task is empty")


class TaskUse(NamedTuple):
    """CPU and memory use of a task between two times: millicores and bytes, NaN if unknown; times in seconds."""

    key: str
    start: float
    end: float
    cpu: float
    memory: float


class DatasetFormat(ABC):
    """Format of a data set.

    Attributes:
        title: name of the data set, for messages.
        has_machines: True if the data set has machines; otherwise machines are generated.
        names_machines: True if tasks name their machine, so that the tasks of selected machines can be read.
        cpu_level: assumed CPU use as a share of the request for tasks without data; None leaves these tasks out.
        memory_level: assumed memory use as a share of the request for tasks without data.
    """

    title: ClassVar[str]
    has_machines: ClassVar[bool]
    names_machines: ClassVar[bool]
    cpu_level: ClassVar[float | None]
    memory_level: ClassVar[float]

    @abstractmethod
    def machines(self, source: DatasetFiles) -> Iterator[Machine]:
        """Yield the machines."""

    @abstractmethod
    def tasks(self, source: DatasetFiles, machines: Collection[str]) -> Iterator[DatasetTask]:
        """Yield the tasks. In data sets whose tasks name their machine, only tasks on the given machines count."""

    @abstractmethod
    def uses(self, source: DatasetFiles, requests: Mapping[str, tuple[float, float]]) -> Iterator[TaskUse]:
        """Yield the CPU and memory use of the wanted tasks, in any order.

        Args:
            source: files of the data set.
            requests: key of each wanted task to its requests, millicores and bytes.
        """
