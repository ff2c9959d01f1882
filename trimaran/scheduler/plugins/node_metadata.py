"""NodeMetadata: score of nodes by a number or a time in one of their labels or annotations.

    raw = number, negated for Lowest; for a time its seconds, negated for Oldest
    score = (raw - least raw) * 99 div (highest raw - least raw) + 1

over the feasible nodes with a valid value; a node without one scores 0, and all score 1 if all values are equal.
Numbers are truncated to whole numbers. Source: kubernetes-sigs/scheduler-plugins, pkg/nodemetadata, of August 2026.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes.objects import Node, Pod
from scoring.arguments import ArgumentError, check_arguments, not_empty
from scoring.arrays import Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.arguments import finish

_INVALID: Final = np.iinfo(np.int64).min
_LARGEST: Final = np.iinfo(np.int64).max
_STRATEGIES: Final = {"Number": ("Highest", "Lowest"), "Timestamp": ("Newest", "Oldest")}
# Parts of a time layout of Go, with those of datetime.strptime.
_GO_LAYOUT: Final = {
    "2006": "%Y", "January": "%B", "Jan": "%b", "01": "%m", "02": "%d", "15": "%H", "03": "%I", "04": "%M", "05": "%S",
    "PM": "%p", "Z07:00": "%z", "-0700": "%z", "-07:00": "%z", "MST": "%Z", "Monday": "%A", "Mon": "%a", "06": "%y",
}  # fmt: skip
_GO_PARTS: Final = re.compile("|".join(sorted(map(re.escape, _GO_LAYOUT), key=len, reverse=True)))


@dataclass(frozen=True)
class NodeMetadata(ScorePlugin):
    """Score plugin for a label or an annotation of nodes, with its arguments.

    Attributes:
        metadata_key: name of the label or annotation.
        metadata_source: whether it is a label or an annotation.
        metadata_type: type of its values.
        scoring_strategy: values to prefer.
        timestamp_format: layout of times, as Go writes it; empty for RFC 3339.
    """

    metadata_key: Annotated[str, not_empty]
    metadata_source: Literal["Label", "Annotation"] = "Label"
    metadata_type: Literal["Number", "Timestamp"] = "Number"
    scoring_strategy: Literal["Highest", "Lowest", "Newest", "Oldest"] = "Highest"
    timestamp_format: str = ""

    name: ClassVar[str] = "NodeMetadata"
    normalizes: ClassVar[bool] = True
    reads_pods: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_arguments(self)
        fitting = _STRATEGIES[self.metadata_type]
        if self.scoring_strategy not in fitting:
            problem = f"must be {' or '.join(fitting)} for a {self.metadata_type}, got {quoted(self.scoring_strategy)}"
            raise ArgumentError(type(self).__name__, "scoring_strategy", problem)

    @classmethod
    def from_config(cls, reader: FieldReader) -> Self:
        """Read ``NodeMetadataArgs``.

        Raises:
            ValueError: an argument is missing, invalid or unknown; the message begins with its path.
        """
        plugin = reader.build(
            cls,
            metadata_key=reader.value("metadataKey", ""),
            metadata_source=reader.value("metadataSource", cls.metadata_source),
            metadata_type=reader.value("metadataType", cls.metadata_type),
            scoring_strategy=reader.value("scoringStrategy", cls.scoring_strategy),
            timestamp_format=reader.value("timestampFormat", cls.timestamp_format),
        )
        finish(reader)
        return plugin

    @property
    def annotations(self) -> frozenset[str]:
        """Names of the annotations of nodes to read."""
        return frozenset({self.metadata_key}) if self.metadata_source == "Annotation" else frozenset()

    def node_terms(self, nodes: NodeTable, metrics: MetricsTable) -> Terms:  # noqa: ARG002
        """Return the raw score of each node."""
        return {"raw": np.array([self._raw(node) for node in nodes.nodes], np.int64)}

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score, which is the same for every pod."""
        return {"score": node["raw"]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 1 to 100, and 0 for nodes without a valid value, shape (nodes,)."""
        valid = scores != _INVALID
        if not valid.any():
            return np.zeros_like(scores)
        lowest, highest = int(scores[valid].min()), int(scores[valid].max())
        spread = max(1, highest - lowest)
        # If a difference times 99 could overflow 64 bits, compute in Python integers.
        wide = scores if spread < _LARGEST // MAX_NODE_SCORE and lowest > -(_LARGEST // 2) else scores.astype(object)
        rescaled = (wide - lowest) * (MAX_NODE_SCORE - 1) // spread + 1
        return np.where(valid, rescaled, 0).astype(np.int64)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the node's value as a sentence."""
        raw = terms["raw"]
        value = "no valid value" if raw == _INVALID else f"{-raw if self._is_negated else raw}"
        unit = " s" if self.metadata_type == "Timestamp" and raw != _INVALID else ""
        return f"{self.metadata_source.lower()} {self.metadata_key}: {value}{unit}; {self.scoring_strategy} is best"

    @property
    def _is_negated(self) -> bool:
        return self.scoring_strategy in {"Lowest", "Oldest"}

    def _raw(self, node: Node) -> int:
        stated = (node.labels if self.metadata_source == "Label" else node.annotations).get(self.metadata_key)
        try:
            value = 0 if stated is None else self._read(stated)
        except (ValueError, OverflowError):  # not a number, or infinite
            return _INVALID
        if stated is None or not -_LARGEST <= value <= _LARGEST:
            return _INVALID
        return -value if self._is_negated else value

    def _read(self, stated: str) -> int:
        if self.metadata_type == "Number":
            return int(float(stated))
        if self.timestamp_format:
            layout = _GO_PARTS.sub(lambda part: _GO_LAYOUT[part[0]], self.timestamp_format)
            moment = datetime.strptime(stated, layout)  # noqa: DTZ007  Go takes UTC where the layout has no zone
        else:
            moment = datetime.fromisoformat(stated)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
