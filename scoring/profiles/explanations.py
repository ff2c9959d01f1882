"""Explanations of a profile's scores, and the packed terms of a few nodes, which suffice to build them later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scoring.normalization import INFEASIBLE
from scoring.plugins.base import Explanation, ScorePlugin, Terms, explanations

_Layout = tuple[tuple[str, DTypeLike, int], ...]
"""Name, type and number of values of each term: one value per node, or one for all."""


@dataclass(frozen=True)
class ProfileExplanation:
    """Reasons for the total that a profile gave a node.

    Attributes:
        pod: ``namespace/name``.
        node: the node's name.
        total: weighted sum of the normalized scores.
        parts: explanation, weight and normalized score of each plugin.
        grade: grade of the node's load; empty without fallback.
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
    """Explained terms of some nodes, stored as raw bytes."""

    layout: _Layout
    content: bytes

    @classmethod
    def of(cls, terms: Terms, places: Sequence[int]) -> "PackedTerms":
        """Pack the terms of the nodes at some places; the terms broadcast to (1, nodes)."""
        layout: list[tuple[str, DTypeLike, int]] = []
        content: list[bytes] = []
        for name, term in terms.items():
            if name[0] != "_":
                values = term.take(places) if term.shape and term.shape[-1] > 1 else term
                layout.append((name, term.dtype, values.size))
                content.append(values.tobytes())
        return cls(_interned(tuple(layout)), b"".join(content))

    def columns(self, nodes: int) -> dict[str, list[Any]]:
        """Return the terms by name, with one value for each of the given number of nodes."""
        columns: dict[str, list[Any]] = {}
        offset = 0
        for name, dtype, count in self.layout:
            values: NDArray[Any] = np.frombuffer(self.content, dtype, count, offset)
            columns[name] = values.tolist() * (1 if count == nodes else nodes)
            offset += values.nbytes
        return columns


@dataclass(frozen=True, slots=True)
class PackedPluginScores:
    """One plugin's scores on some nodes; ``terms`` is None if the plugin skipped the pod."""

    plugin: ScorePlugin
    weight: int
    normalized: tuple[int, ...]
    terms: PackedTerms | None


@dataclass(frozen=True, slots=True)
class PackedScores:
    """A pod's scores on some nodes, in a small form that suffices to explain them later.

    Attributes:
        pod: ``namespace/name``.
        names: the nodes.
        totals: the nodes' weighted sums.
        grades: grades of the nodes' load.
        replaced: reason why a score by load is replaced, by the node's place in ``names``.
        plugins: each plugin's scores.
    """

    pod: str
    names: tuple[str, ...]
    totals: tuple[int, ...]
    grades: tuple[str, ...]
    replaced: Mapping[int, str]
    plugins: tuple[PackedPluginScores, ...]

    @property
    def nbytes(self) -> int:
        """Size of the terms in bytes."""
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
    """Return the same object for equal layouts (interning): there are few layouts, and many values have one."""
    return layout
