"""What a watcher says about nodes: metrics, windows and snapshots, all frozen.

The names and their meaning follow load-watcher's documented payload, see docs/api.md.

What a watcher was read from is kept as columns (:class:`NodeColumns`): an object for every metric of a large cluster
would take longer to make than all that is computed from them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    import pandas as pd


class MetricType(StrEnum):
    """The resources we publish. Readers accept any other string too."""

    CPU = "CPU"
    MEMORY = "Memory"
    BANDWIDTH = "Bandwidth"
    STORAGE = "Storage"
    ENERGY = "Energy"
    GPU = "GPU"


class Operator(StrEnum):
    """How a window of samples became one value. Readers accept any other string too."""

    AVG = "AVG"
    STD = "STD"
    LATEST = "Latest"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"
    MAX = "MAX"


#: The operators that say how high a load is on the whole; a metric without one of them cannot be used.
AVERAGES = frozenset({Operator.AVG, Operator.LATEST})

#: The resources that every node has; a node without one of them is incomplete.
REQUIRED = (MetricType.CPU, MetricType.MEMORY)

#: By how much rates over counters overshoot 0 to 100 percent; what is further outside has another unit.
SLACK_PERCENT = 5.0

#: The operators that are quantiles of a window, 0 to 1.
QUANTILES = {Operator.P90: 0.9, Operator.P95: 0.95, Operator.P99: 0.99, Operator.MAX: 1.0}


class Grade(StrEnum):
    """How values were obtained when they are not what was asked for; a node's metadata carries it."""

    SHORTER_WINDOW = "shorter_window"
    LAST_GOOD = "last_good"


@dataclass(frozen=True, slots=True)
class Metric:
    """One value of one node.

    Attributes:
        name: the metric's name at the provider, such as ``instance:node_cpu:ratio``.
        type: the resource, see :class:`MetricType`.
        operator: see :class:`Operator`. (name, operator) is unique within a node.
        rollup: the window the value covers, such as ``15m``.
        value: percent of the node's capacity; 0 to 100 in what we write, any finite number in what we read.
    """

    name: str
    type: str
    operator: str
    rollup: str
    value: float


class SeriesKey(NamedTuple):
    """What a value is of: a :class:`Metric` without its value."""

    name: str
    type: str
    operator: str
    rollup: str


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time. ``start`` and ``end`` are unix seconds, ``duration`` is their distance as text (``15m``)."""

    duration: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a node uses of one resource, in percent of its capacity; None where that is not known.

    Attributes:
        avg: the average over the window, or the latest value where there is no average.
        std: the deviation.
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
    """All values of one node in one window.

    Attributes:
        metrics: in the order they were received.
        tags: how the series were made, where known: ``step``, ``smoothing``.
        metadata: where the node is (``dataCenter``, ``pool``), and, only when not normal, ``grade`` (how the
            values were obtained), ``coverage`` (share of the window that has samples, 0 to 1) and ``suspect`` (the
            kinds of findings that make the values suspect, comma-separated).
    """

    metrics: tuple[Metric, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str | float] = field(default_factory=dict)

    def load(self, type_: str) -> Load:
        """Return what is used of a resource, see :class:`MetricType`."""
        found = {metric.operator.lower(): metric.value for metric in self.metrics if metric.type == type_}
        average = found.get("avg", found.get("latest"))
        return Load(average, *(found.get(name) for name in ("std", "p90", "p95", "p99", "max")))

    @property
    def cpu(self) -> Load:
        """The processors' load."""
        return self.load(MetricType.CPU)

    @property
    def memory(self) -> Load:
        """The memory's load."""
        return self.load(MetricType.MEMORY)


def averages(node: NodeMetrics) -> dict[str, float]:
    """Return a node's average use of the resources that every node has, by type, percent; of several the last one."""
    return {
        metric.type: metric.value for metric in node.metrics if metric.type in REQUIRED and metric.operator in AVERAGES
    }


class Framed(Protocol):
    """What can become a data frame."""

    def to_frame(self) -> "pd.DataFrame":
        """Return it."""
        ...


def notebook_table(shown: Framed) -> str | None:
    """Return what a notebook shows of something: its line, and its data frame, of which ten rows at most.

    None without pandas: then notebooks show the line alone.
    """
    try:
        frame = shown.to_frame()
    except ImportError:
        return None
    return f"<p>{escape(repr(shown))}</p>{frame.to_html(max_rows=10, float_format='%.2f', na_rep='')}"


@dataclass(frozen=True, slots=True)
class WatcherMetrics:
    """A snapshot: every node's metrics over one window.

    Attributes:
        timestamp: when the snapshot was taken, unix seconds.
        window: the span of time the values cover.
        source: the provider's name.
        data: node name to its metrics; of a snapshot that was read, :class:`NodeColumns`.
    """

    timestamp: int
    window: Window
    source: str
    data: Mapping[str, NodeMetrics]

    @property
    def metadata(self) -> Mapping[str, Mapping[str, str | float]]:
        """The metadata of the nodes that have any, by node name."""
        if isinstance(self.data, NodeColumns):
            return self.data.metadata
        return {name: node.metadata for name, node in self.data.items() if node.metadata}

    def __getitem__(self, node: str) -> NodeMetrics:
        return self.data[node]

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame: a row for each node, a column for each metric (``CPU AVG``), then the metadata.

        Raises:
            ImportError: pandas is not installed (``pip install 'trimaran[notebook]'``).
        """
        import pandas as pd  # an extra

        rows = {
            name: {**{f"{each.type} {each.operator}": each.value for each in node.metrics}, **node.metadata}
            for name, node in self.data.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("node")

    def __repr__(self) -> str:
        taken = datetime.fromtimestamp(self.timestamp, UTC)
        count = "1 node" if len(self.data) == 1 else f"{len(self.data)} nodes"
        return (
            f"{type(self).__name__}({self.window.duration} of {count} from {self.source}, {taken:%Y-%m-%d %H:%M:%S}Z)"
        )

    def _repr_html_(self) -> str | None:
        return notebook_table(self)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that have the same series in the same order.

    Attributes:
        names: the nodes.
        series: what each of them has a value of, in the order they were received.
        start: where the group's values begin in ``NodeColumns.numbers``: of the first series for every node, then of
            the second, and so on.
    """

    names: tuple[str, ...]
    series: tuple[SeriesKey, ...]
    start: int

    @property
    def end(self) -> int:
        """Where the values of the next group begin."""
        return self.start + len(self.names) * len(self.series)


_Labels = tuple[str, str, str, str]
_SERIES = attrgetter("name", "type", "operator", "rollup")
_VALUE = attrgetter("value")


class NodeColumns(Mapping[str, NodeMetrics]):
    """The metrics of many nodes as a few arrays; a node's :class:`NodeMetrics` is made when it is asked for.

    The order is that of the groups. It is not to be changed, and may be read from several threads.

    Attributes:
        groups: the nodes by what they have; nearly always all of them are in a few groups.
        numbers: all values, see :class:`NodeGroup`.
        rows: node name to its number, counted through the groups.
        tags: of the nodes that have any, by name.
        metadata: of the nodes that have any, by name.
    """

    __slots__ = ("_firsts", "_made", "groups", "metadata", "numbers", "rows", "tags")

    def __init__(
        self,
        groups: Iterable[tuple[Sequence[str], Iterable[_Labels], Iterable[Iterable[float]]]],
        tags: Mapping[str, Mapping[str, str]],
        metadata: Mapping[str, Mapping[str, str | float]],
    ) -> None:
        """Take groups of nodes: names, series, and for each series its values in the order of the names.

        Raises:
            ValueError: a node comes twice, or a series has not one value for each node.
        """
        self.numbers = array("d")
        made = []
        for names, series, columns in groups:
            group = NodeGroup(tuple(names), tuple(SeriesKey(*each) for each in series), len(self.numbers))
            for number, column in enumerate(columns, 1):
                self.numbers.extend(column)
                if len(self.numbers) != group.start + number * len(group.names):
                    raise ValueError(f"series {number} has not one value for each of {len(group.names)} nodes")
            if len(self.numbers) != group.end:
                raise ValueError(f"there are not the values of {len(group.series)} series")
            made.append(group)
        self.groups = tuple(made)
        self._firsts = [0, *accumulate(len(group.names) for group in self.groups)]
        self.rows = {name: row for row, name in enumerate(name for group in self.groups for name in group.names)}
        if len(self.rows) < self._firsts[-1]:
            raise ValueError("a node is there twice")
        self.tags = tags
        self.metadata = metadata
        self._made: dict[str, NodeMetrics] = {}

    @classmethod
    def of(cls, data: Mapping[str, NodeMetrics]) -> "NodeColumns":
        """Return nodes as columns; the same object if they are that already."""
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
        """Take nodes one by one: name, series, and as many values."""
        groups: dict[tuple[_Labels, ...], tuple[list[str], list[Sequence[float]]]] = {}
        last: tuple[_Labels, ...] | None = None
        for name, series, values in nodes:
            if series != last:  # to compare is faster than to hash, and neighbours are mostly alike
                last, (names, rows) = series, groups.setdefault(series, ([], []))
            names.append(name)
            rows.append(values)
        return cls(
            ((names, series, zip(*rows, strict=True)) for series, (names, rows) in groups.items()), tags, metadata
        )

    def __getitem__(self, name: str) -> NodeMetrics:
        node = self._made.get(name)
        # Whoever was first has made the one that everybody gets: what did not change is told by its identity.
        return node if node is not None else self._made.setdefault(name, self._make(name))

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
