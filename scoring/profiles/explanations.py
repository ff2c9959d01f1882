"""Explanations of a profile's scores, and a small copy of the data from which they can be computed later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scoring.normalization import INFEASIBLE
from scoring.plugins.base import Explanation, ScorePlugin, Terms, explanations

_Layout = tuple[tuple[str, DTypeLike, int], ...]
"""Name, type and number of values of each term; a term has one value per node, or one value for all nodes."""


@dataclass(frozen=True)
class ProfileExplanation:
    """Reasons for the total that a profile gave a node.

    Attributes:
        pod: ``namespace/name`` of the pod.
        node: name of the node.
        total: weighted sum of the normalized scores.
        parts: explanation, weight and normalized score of each plugin.
        grade: grade of the node's metrics by the fallback policy; "" without fallback.
    """

    pod: str
    node: str
    total: int
    parts: tuple[tuple[Explanation, int, int], ...]
    grade: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return the explanation as JSON fields: name, score (None if the node was not feasible), grade and plugins."""
        return {
            "name": self.node,
            "score": None if self.total == INFEASIBLE else self.total,
            "grade": self.grade,
            "plugins": [
                {"name": part.plugin, "score": normalized, "why": part.line, "terms": dict(part.terms)}
                for part, _, normalized in self.parts
            ],
        }

    def __str__(self) -> str:
        grade = f" ({self.grade})" if self.grade else ""
        lines = [f"{self.pod} on {self.node}: {self.total}{grade}"]
        for part, weight, normalized in self.parts:
            raw = "" if normalized == part.score else f" (normalized from {part.score})"
            lines.append(f"  {weight} x {normalized}{raw} {part.plugin}: {part.line}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PackedTerms:
    """Terms (intermediate values) of a plugin's scores of nodes, stored as raw bytes to save memory.

    Attributes:
        layout: name, type and number of values of each term.
        content: values of all terms, in the order of the layout.
    """

    layout: _Layout
    content: bytes

    @classmethod
    def of(cls, terms: Terms, places: Sequence[int]) -> "PackedTerms":
        """Pack the terms of the given nodes. Terms whose name starts with an underscore are left out.

        Args:
            terms: terms of all nodes, by name; each broadcasts to (1, nodes).
            places: indices of the nodes to pack.
        """
        layout: list[tuple[str, DTypeLike, int]] = []
        content: list[bytes] = []
        for name, term in terms.items():
            if name[0] != "_":
                values = term.take(places) if term.shape and term.shape[-1] > 1 else term
                layout.append((name, term.dtype, values.size))
                content.append(values.tobytes())
        return cls(_interned(tuple(layout)), b"".join(content))

    def columns(self, nodes: int) -> dict[str, list[Any]]:
        """Return the values of each term by its name, one value per node.

        Args:
            nodes: number of packed nodes.
        """
        columns: dict[str, list[Any]] = {}
        offset = 0
        for name, dtype, count in self.layout:
            values: NDArray[Any] = np.frombuffer(self.content, dtype, count, offset)
            columns[name] = values.tolist() * (1 if count == nodes else nodes)
            offset += values.nbytes
        return columns


@dataclass(frozen=True, slots=True)
class PackedPluginScores:
    """One plugin's scores of nodes for a pod.

    Attributes:
        plugin: the plugin.
        weight: weight of the plugin in the profile.
        normalized: normalized score of each node.
        terms: terms of the scores; None if the plugin skipped the pod.
    """

    plugin: ScorePlugin
    weight: int
    normalized: tuple[int, ...]
    terms: PackedTerms | None


@dataclass(frozen=True, slots=True)
class PackedScores:
    """Scores of nodes for a pod, in a small form from which explanations can be computed later.

    Attributes:
        pod: ``namespace/name`` of the pod.
        names: names of the nodes.
        totals: total score of each node.
        grades: grade of each node's metrics by the fallback policy; "" without fallback.
        replaced: for some nodes, by index in ``names``, the reason why another score stands for those of plugins that
            read metrics.
        plugins: scores of each plugin.
    """

    pod: str
    names: tuple[str, ...]
    totals: tuple[int, ...]
    grades: tuple[str, ...]
    replaced: Mapping[int, str]
    plugins: tuple[PackedPluginScores, ...]

    @property
    def nbytes(self) -> int:
        """Size of the packed terms of all plugins in bytes."""
        return sum(len(scores.terms.content) for scores in self.plugins if scores.terms is not None)

    def explain(self) -> list[ProfileExplanation]:
        """Return the explanation of each node, with all plugins."""
        by_plugin = [self._explained(scores) for scores in self.plugins]
        return [
            ProfileExplanation(
                self.pod,
                name,
                self.totals[place],
                tuple(
                    (parts[place], scores.weight, scores.normalized[place])
                    for parts, scores in zip(by_plugin, self.plugins, strict=True)
                ),
                self.grades[place],
            )
            for place, name in enumerate(self.names)
        ]

    def _explained(self, scores: PackedPluginScores) -> list[Explanation]:
        plugin, names = scores.plugin, self.names
        if scores.terms is None:
            return [Explanation(plugin.name, self.pod, name, 0, {}, "skipped for this pod") for name in names]
        explained = list(explanations(plugin, scores.terms.columns(len(names)), self.pod, names))
        for place, line in self.replaced.items() if plugin.reads_metrics else ():
            explained[place] = Explanation(plugin.name, self.pod, names[place], scores.normalized[place], {}, line)
        return explained


@lru_cache(64)
def _interned(layout: _Layout) -> _Layout:
    """Return the same object for equal layouts (interning), to save memory: many scores share few layouts."""
    return layout
