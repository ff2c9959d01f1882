"""Explanations of a profile's scores, and what is enough to make them later: a few nodes' terms, packed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scoring.plugins.base import Explanation, ScorePlugin, Terms, explanations
from scoring.profiles.normalization import INFEASIBLE

_Layout = tuple[tuple[str, DTypeLike, int], ...]
"""Of each term its name, its type, and how many values it has: one for each node, or one for all."""


@dataclass(frozen=True)
class ProfileExplanation:
    """Why a profile gave a node its total: the plugins' explanations beside weight and normalized score.

    ``grade`` says how the node's load is known; it is empty without fallback.
    """

    pod: str
    node: str
    total: int
    parts: tuple[tuple[Explanation, int, int], ...]
    grade: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return the same as what JSON has: name, score (None where the node was not feasible), grade and plugins."""
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
            was = "" if normalized == part.score else f" (normalized from {part.score})"
            lines.append(f"  {weight} x {normalized}{was} {part.plugin}: {part.line}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PackedTerms:
    """The explained terms of some nodes, in as many bytes as their numbers take."""

    layout: _Layout
    content: bytes

    @classmethod
    def of(cls, terms: Terms, places: Sequence[int]) -> "PackedTerms":
        """Pack the terms of the nodes at some places; they broadcast to (1, nodes)."""
        layout: list[tuple[str, DTypeLike, int]] = []
        content: list[bytes] = []
        for name, term in terms.items():
            if name[0] != "_":
                values = term.take(places) if term.shape and term.shape[-1] > 1 else term
                layout.append((name, term.dtype, values.size))
                content.append(values.tobytes())
        return cls(_shared(tuple(layout)), b"".join(content))

    def columns(self, nodes: int) -> dict[str, list[Any]]:
        """Return the terms again, each a value for each of so many nodes."""
        found: dict[str, list[Any]] = {}
        offset = 0
        for name, dtype, count in self.layout:
            values: NDArray[Any] = np.frombuffer(self.content, dtype, count, offset)
            found[name] = values.tolist() * (1 if count == nodes else nodes)
            offset += values.nbytes
        return found


@dataclass(frozen=True, slots=True)
class PackedPluginScores:
    """What one plugin gave some nodes; without terms it skipped the pod."""

    plugin: ScorePlugin
    weight: int
    normalized: tuple[int, ...]
    terms: PackedTerms | None


@dataclass(frozen=True, slots=True)
class PackedScores:
    """A pod's scores on some nodes: small, and nothing else is needed to explain them.

    Attributes:
        pod: ``namespace/name``.
        names: the nodes.
        totals: their weighted sums.
        grades: how their load is known.
        replaced: why a score by load is replaced, by the node's place here.
        plugins: each plugin's part.
    """

    pod: str
    names: tuple[str, ...]
    totals: tuple[int, ...]
    grades: tuple[str, ...]
    replaced: Mapping[int, str]
    plugins: tuple[PackedPluginScores, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes the terms take."""
        return sum(len(each.terms.content) for each in self.plugins if each.terms is not None)

    def explain(self) -> list[ProfileExplanation]:
        """Return every plugin's explanation for each of the nodes."""
        by_plugin = [self._explained(each) for each in self.plugins]
        return [
            ProfileExplanation(
                self.pod,
                name,
                self.totals[place],
                tuple(
                    (parts[place], each.weight, each.normalized[place])
                    for parts, each in zip(by_plugin, self.plugins, strict=True)
                ),
                self.grades[place],
            )
            for place, name in enumerate(self.names)
        ]

    def _explained(self, scores: PackedPluginScores) -> list[Explanation]:
        plugin, names = scores.plugin, self.names
        if scores.terms is None:
            return [Explanation(plugin.name, self.pod, name, 0, {}, "skipped for this pod") for name in names]
        found = list(explanations(plugin, scores.terms.columns(len(names)), self.pod, names))
        for place, line in self.replaced.items() if plugin.reads_metrics else ():
            found[place] = Explanation(plugin.name, self.pod, names[place], scores.normalized[place], {}, line)
        return found


@lru_cache(64)
def _shared(layout: _Layout) -> _Layout:
    """Return one layout for all that are equal: there are few, and many hold one."""
    return layout
