"""What a watcher says about nodes: metrics, windows and snapshots, all frozen.

The names and their meaning follow load-watcher's documented payload, see docs/api.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time. ``start`` and ``end`` are unix seconds, ``duration`` is their distance as text (``15m``)."""

    duration: str
    start: int
    end: int


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


@dataclass(frozen=True, slots=True)
class WatcherMetrics:
    """A snapshot: every node's metrics over one window.

    Attributes:
        timestamp: when the snapshot was taken, unix seconds.
        window: the span of time the values cover.
        source: the provider's name.
        data: node name to its metrics.
    """

    timestamp: int
    window: Window
    source: str
    data: Mapping[str, NodeMetrics]
