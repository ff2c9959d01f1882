"""What every data set comes to: machines, tasks, and what each task used from when to when."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from runtime.kubernetes.objects import MOST
from trimaran.traces.loaders.rows import Source

SERVICE, JOB = "Deployment", "Job"
#: What the largest machine is taken to have, where a data set gives parts of it only.
LARGEST_MILLI, LARGEST_BYTES = 64_000, 256 * 1024**3


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with its capacity, in millicores and bytes."""

    name: str
    cpu_milli: float
    memory_bytes: float

    def __post_init__(self) -> None:
        """Refuse what no machine is."""
        if not self.name or not max(self.cpu_milli, self.memory_bytes) <= MOST:
            raise ValueError(f"{self.name!r} with {self.cpu_milli:g}m and {self.memory_bytes:g} bytes is no machine")


@dataclass(frozen=True, slots=True)
class Task:
    """Something that runs on one machine for a time.

    Attributes:
        key: what its use is told by; a task that ran several times comes several times.
        owner_kind: :data:`SERVICE` or :data:`JOB`.
        owner: what it is one of several of.
        cpu_milli: its request.
        memory_bytes: the same.
        start: seconds; None when its use says it.
        end: the same; infinite of one that did not end.
    """

    key: str
    owner_kind: str
    owner: str
    cpu_milli: float
    memory_bytes: float
    start: float | None
    end: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse one without a name."""
        if not self.key:
            raise ValueError("it has no name")


class Use(NamedTuple):
    """What a task used between two moments, in seconds: millicores and bytes, not-a-number where unknown."""

    key: str
    start: float
    end: float
    cpu: float
    memory: float


class Format(ABC):
    """A data set's format.

    Attributes:
        title: its name, for people.
        has_machines: whether it tells of machines; else some are made up.
        names_machines: whether tasks tell their machine, so that those of some machines can be taken.
        cpu_level: what is used in parts of the request where no use is told; None leaves such tasks out.
        memory_level: the same of memory.
    """

    title: ClassVar[str]
    has_machines: ClassVar[bool]
    names_machines: ClassVar[bool]
    cpu_level: ClassVar[float | None]
    memory_level: ClassVar[float]

    @abstractmethod
    def machines(self, source: Source) -> Iterator[Machine]:
        """Yield the machines."""

    @abstractmethod
    def tasks(self, source: Source, machines: Collection[str]) -> Iterator[Task]:
        """Yield the tasks: those of these machines, where they tell."""

    @abstractmethod
    def uses(self, source: Source, requests: Mapping[str, tuple[float, float]]) -> Iterator[Use]:
        """Yield what these tasks used, in any order; told are the millicores and bytes that each requests."""
