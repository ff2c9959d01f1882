"""Data model of the watcher: metrics, windows and snapshots, all immutable.

Names and meanings follow load-watcher's documented payload, see docs/api.md.

Snapshots that were read from JSON are stored as columns (:class:`NodeColumns`). Creating an object for every metric of
a large cluster would take longer than all computations with the values.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    import pandas as pd


class MetricType(StrEnum):
    """Resources whose load the watcher publishes. Snapshots read from JSON may contain any other string as well.

    The pressures (PSI, https://docs.kernel.org/accounting/psi.html) are the percent of time in which some task waited
    for the resource, or with ``FULL`` in which all tasks that were not idle waited at once.
    """

    CPU = "CPU"
    MEMORY = "Memory"
    BANDWIDTH = "Bandwidth"
    STORAGE = "Storage"
    ENERGY = "Energy"
    GPU = "GPU"
    CPU_PRESSURE = "CPUPressure"
    MEMORY_PRESSURE = "MemoryPressure"
    IO_PRESSURE = "IOPressure"
    MEMORY_FULL_PRESSURE = "MemoryFullPressure"
    IO_FULL_PRESSURE = "IOFullPressure"


class Operator(StrEnum):
    """Operators that reduce the samples of a window to one value. Snapshots read from JSON may have other operators."""

    AVG = "AVG"
    STD = "STD"
    LATEST = "Latest"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"
    MAX = "MAX"


#: Operators of an average load; a resource without a value of one of these operators cannot be used.
AVERAGES = frozenset({Operator.AVG, Operator.LATEST})

#: Resources that every node must have; a node without one of them is incomplete.
REQUIRED = (MetricType.CPU, MetricType.MEMORY)

#: Pressures by the kernel's names of the resource and the kind. Linux defines no ``full`` for the CPU of a whole node.
PRESSURES = {
    ("cpu", "some"): MetricType.CPU_PRESSURE,
    ("memory", "some"): MetricType.MEMORY_PRESSURE,
    ("io", "some"): MetricType.IO_PRESSURE,
    ("memory", "full"): MetricType.MEMORY_FULL_PRESSURE,
    ("io", "full"): MetricType.IO_FULL_PRESSURE,
}

#: Percentage points by which rates of counters overshoot 0 to 100 percent; values further outside have another unit.
SLACK_PERCENT = 5.0
#: Rounding error of a sum of floats around 0: a lower value is a wrong one.
LOWEST_PERCENT = -1e-6
#: Largest possible sample, percent of a node's capacity.
MOST_PERCENT = 150.0

#: Operators that are quantiles of a window, with the quantile, 0 to 1.
QUANTILES = {Operator.P90: 0.9, Operator.P95: 0.95, Operator.P99: 0.99, Operator.MAX: 1.0}


class Grade(StrEnum):
    """Mark for a node whose values are not known to be measured over the requested window; stored in its metadata.

    Attributes:
        SHORTER_WINDOW: the values cover a shorter window.
        LAST_GOOD: the values are from an earlier fetch.
        UNCHECKED: the values were measured in the last fetch, but gaps in the window cannot be seen.
    """

    SHORTER_WINDOW = "shorter_window"
    LAST_GOOD = "last_good"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured value of one node, with its resource, operator and window.

    Attributes:
        name: the metric's name at the provider, such as ``instance:node_cpu:ratio``.
        type: the resource, see :class:`MetricType`.
        operator: see :class:`Operator`. (name, operator) is unique within a node.
        rollup: the window that the value covers, such as ``15m``.
        value: percent of the node's capacity; 0 to 100 when written, any finite number when read.
    """

    name: str
    type: str
    operator: str
    rollup: str
    value: float


class SeriesKey(NamedTuple):
    """Key of a series: the fields of a :class:`Metric` without its value."""

    name: str
    type: str
    operator: str
    rollup: str


@dataclass(frozen=True, slots=True)
class Window:
    """Span of time. ``start`` and ``end`` are Unix seconds; ``duration`` is the length as text (``15m``)."""

    duration: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a node on one resource, in percent of its capacity; None if unknown.

    Attributes:
        avg: the average over the window, or the latest value if there is no average.
        std: the standard deviation.
        p90: the 90th percentile.
        p95: the 95th percentile.
        p99: the 99th percentile.
        max: the largest value.
    """

    avg: float | None = None
    std: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """All metrics of one node in one window.

    Attributes:
        metrics: the metrics, in the order they were received.
        tags: durations such as ``5m``, if known: ``step``, the distance of the provider's data points, and
            ``smoothing``, the span that each point is an average over.
        metadata: location of the node (``dataCenter``, ``pool``), and, only if not normal, ``grade`` (how the values
            were obtained), ``coverage`` (share of the window that has samples, 0 to 1), ``missing`` (the reason why no
            node has CPU) and ``suspect`` (the kinds of findings that make the values suspect, comma-separated).
    """

    metrics: tuple[Metric, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str | float] = field(default_factory=dict)

    def load(self, type_: str) -> Load:
        """Return the node's load on one resource, see :class:`MetricType`."""
        values = {metric.operator.lower(): metric.value for metric in self.metrics if metric.type == type_}
        average = values.get("avg", values.get("latest"))
        return Load(average, *(values.get(name) for name in ("std", "p90", "p95", "p99", "max")))

    @property
    def cpu(self) -> Load:
        """The node's CPU load."""
        return self.load(MetricType.CPU)

    @property
    def memory(self) -> Load:
        """The node's memory load."""
        return self.load(MetricType.MEMORY)


def averages(node: NodeMetrics) -> dict[str, float]:
    """Return a node's average CPU and memory load by type, in percent of its capacity.

    A resource without an average is left out. If a resource has several averages, the last one counts.
    """
    return {
        metric.type: metric.value for metric in node.metrics if metric.type in REQUIRED and metric.operator in AVERAGES
    }


class Framed(Protocol):
    """Object that can be converted into a data frame."""

    def to_frame(self) -> "pd.DataFrame":
        """Return the data frame."""
        ...


def notebook_table(shown: Framed) -> str | None:
    """Return HTML for notebooks: the object's repr, and at most ten rows of its data frame.

    Return None if pandas is not installed; notebooks then show only the repr.
    """
    try:
        frame = shown.to_frame()
    except ImportError:
        return None
    return f"<p>{escape(repr(shown))}</p>{frame.to_html(max_rows=10, float_format='%.2f', na_rep='')}"


@dataclass(frozen=True, slots=True)
class WatcherMetrics:
    """Snapshot: the metrics of every node over one window.

    Attributes:
        timestamp: time of the snapshot, Unix seconds.
        window: the span of time that the values cover.
        source: the provider's name.
        data: node name to its metrics; a :class:`NodeColumns` if the snapshot was read from JSON.
    """

    timestamp: int
    window: Window
    source: str
    data: Mapping[str, NodeMetrics]

    @property
    def metadata(self) -> Mapping[str, Mapping[str, str | float]]:
        """Metadata of the nodes that have any, by node name."""
        if isinstance(self.data, NodeColumns):
            return self.data.metadata
        return {name: node.metadata for name, node in self.data.items() if node.metadata}

    def __getitem__(self, node: str) -> NodeMetrics:
        return self.data[node]

    def as_listed(self, names: Iterable[str]) -> Self:
        """Return the snapshot with node names spelled as in ``names``, where they differ from these only in case.

        Nodes of Kubernetes have lower-case names, while agents may report host names such as ``aks-pool-vmss00000A``.

        Args:
            names: the names of the cluster's nodes.
        """
        missing = {name.lower(): name for name in names if name not in self.data}
        spellings: dict[str, list[str]] = {}
        for name in self.data if missing else ():
            if (lower := name.lower()) != name and lower in missing:
                spellings.setdefault(lower, []).append(name)
        alone = {missing[lower]: self.data[found[0]] for lower, found in spellings.items() if len(found) == 1}
        return replace(self, data={**self.data, **alone}) if alone else self

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with one row per node, and a column per metric (``CPU AVG``) and per metadata key.

        Raises:
            ImportError: pandas is not installed (``pip install pandas``).
        """
        import pandas as pd  # optional dependency

        rows = {
            name: {**{f"{each.type} {each.operator}": each.value for each in node.metrics}, **node.metadata}
            for name, node in self.data.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("node")

    def __repr__(self) -> str:
        time = datetime.fromtimestamp(self.timestamp, UTC)
        count = "1 node" if len(self.data) == 1 else f"{len(self.data)} nodes"
        return f"{type(self).__name__}({self.window.duration} of {count} from {self.source}, {time:%Y-%m-%d %H:%M:%S}Z)"

    def _repr_html_(self) -> str | None:
        return notebook_table(self)


def grades(metrics: WatcherMetrics) -> dict[str, str]:
    """Return the grade of each node of a snapshot, for people: how far its values can be trusted.

    The grade is ``measured``, a :class:`Grade`, ``suspect`` if a finding makes the values doubtful, or ``incomplete``
    if the node lacks an average of CPU or memory that other nodes have. Scores do not use an incomplete node's values.
    """
    average_types = {name: averages(node).keys() for name, node in metrics.data.items()}
    complete = set().union(*average_types.values())
    return {
        name: "incomplete"
        if average_types[name] < complete
        else str(node.metadata.get("grade", "")) or ("suspect" if "suspect" in node.metadata else "measured")
        for name, node in metrics.data.items()
    }


def coverage_text(node: NodeMetrics) -> str:
    """Return the share of the window that has samples as text, such as ``87%``; ``?`` if it cannot be known."""
    if "coverage" not in node.metadata and node.metadata.get("grade") == Grade.UNCHECKED:
        return "?"
    return f"{100 * float(node.metadata.get('coverage', 1)):.0f}%"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Group of nodes that have the same series in the same order, as a part of :class:`NodeColumns`.

    Attributes:
        names: names of the nodes.
        series: the series, in the order they were received.
        start: index of the group's first value in ``NodeColumns.numbers``. The first series has one value per node,
            in the order of ``names``; the values of the second series follow, and so on.
    """

    names: tuple[str, ...]
    series: tuple[SeriesKey, ...]
    start: int

    @property
    def end(self) -> int:
        """Index after the group's last value in ``NodeColumns.numbers``, where the next group begins."""
        return self.start + len(self.names) * len(self.series)


_Labels = tuple[str, str, str, str]
_SERIES = attrgetter("name", "type", "operator", "rollup")
_VALUE = attrgetter("value")


class NodeColumns(Mapping[str, NodeMetrics]):
    """Mapping of node name to metrics that stores the values of all nodes in one array.

    The :class:`NodeMetrics` object of a node is created at the first lookup of the node. Nodes are in the order of the
    groups. The mapping is immutable and safe to read from several threads.

    Attributes:
        groups: nodes grouped by their series; nearly always there are only a few groups.
        numbers: values of all nodes in percent, in the order that :class:`NodeGroup` describes.
        rows: node name to the node's position, counted from 0 through all groups.
        tags: node name to the node's tags, for nodes that have any.
        metadata: node name to the node's metadata, for nodes that have any.
    """

    __slots__ = ("_created", "_firsts", "groups", "metadata", "numbers", "rows", "tags")

    def __init__(
        self,
        groups: Iterable[tuple[Sequence[str], Iterable[_Labels], Iterable[Iterable[float]]]],
        tags: Mapping[str, Mapping[str, str]],
        metadata: Mapping[str, Mapping[str, str | float]],
    ) -> None:
        """Build the columns from groups of nodes that have the same series.

        Args:
            groups: for each group the node names, the series, and per series its values in the order of the names.
            tags: node name to the node's tags, for nodes that have any.
            metadata: node name to the node's metadata, for nodes that have any.

        Raises:
            ValueError: a node occurs twice, or a series does not have one value per node.
        """
        self.numbers = array("d")
        built = []
        for names, series, columns in groups:
            group = NodeGroup(tuple(names), tuple(SeriesKey(*each) for each in series), len(self.numbers))
            for number, column in enumerate(columns, 1):
                self.numbers.extend(column)
                if len(self.numbers) != group.start + number * len(group.names):
                    raise ValueError(f"series {number} does not have one value for each of {len(group.names)} nodes")
            if len(self.numbers) != group.end:
                raise ValueError(f"the values do not fit {len(group.series)} series")
            built.append(group)
        self.groups = tuple(built)
        self._firsts = [0, *accumulate(len(group.names) for group in self.groups)]
        self.rows = {name: row for row, name in enumerate(name for group in self.groups for name in group.names)}
        if len(self.rows) < self._firsts[-1]:
            raise ValueError("a node is in two groups: each node may be in one only")
        self.tags = tags
        self.metadata = metadata
        self._created: dict[str, NodeMetrics] = {}

    @classmethod
    def of(cls, data: Mapping[str, NodeMetrics]) -> "NodeColumns":
        """Convert a mapping of node name to metrics into columns; return ``data`` itself if it is a ``NodeColumns``."""
        if isinstance(data, NodeColumns):
            return data
        rows = ((name, tuple(map(_SERIES, node.metrics)), [*map(_VALUE, node.metrics)]) for name, node in data.items())
        tags = {name: node.tags for name, node in data.items() if node.tags}
        return cls.grouped(rows, tags, {name: node.metadata for name, node in data.items() if node.metadata})

    @classmethod
    def grouped(
        cls,
        nodes: Iterable[tuple[str, tuple[_Labels, ...], Sequence[float]]],
        tags: Mapping[str, Mapping[str, str]],
        metadata: Mapping[str, Mapping[str, str | float]],
    ) -> Self:
        """Build the columns from single nodes, and group the nodes that have the same series.

        Args:
            nodes: for each node its name, its series, and one value per series.
            tags: node name to the node's tags, for nodes that have any.
            metadata: node name to the node's metadata, for nodes that have any.
        """
        groups: dict[tuple[_Labels, ...], tuple[list[str], list[Sequence[float]]]] = {}
        last: tuple[_Labels, ...] | None = None
        for name, series, values in nodes:
            if series != last:  # comparing is faster than hashing, and neighbors mostly have the same series
                last, (names, rows) = series, groups.setdefault(series, ([], []))
            names.append(name)
            rows.append(values)
        return cls(
            ((names, series, zip(*rows, strict=True)) for series, (names, rows) in groups.items()), tags, metadata
        )

    def __getitem__(self, name: str) -> NodeMetrics:
        node = self._created.get(name)
        # setdefault: if threads race, all get the object of the first. Callers detect unchanged nodes by identity.
        return node if node is not None else self._created.setdefault(name, self._make(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __repr__(self) -> str:
        return f"NodeColumns({len(self.rows)} nodes)"

    def _make(self, name: str) -> NodeMetrics:
        row = self.rows[name]
        place = bisect_right(self._firsts, row) - 1
        group = self.groups[place]
        values = self.numbers[group.start + row - self._firsts[place] : group.end : len(group.names)]
        metrics = tuple(Metric(*series, value) for series, value in zip(group.series, values, strict=True))
        return NodeMetrics(metrics, dict(self.tags.get(name, ())), dict(self.metadata.get(name, ())))
