"""Scores that a profile gives the nodes for a pod: totals, the scores of each plugin, and explanations of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arguments import Between, CheckedArguments
from scoring.arrays import Int64s, Texts
from scoring.normalization import INFEASIBLE
from scoring.plugins.base import ScorePlugin, Terms
from scoring.profiles.explanations import PackedPluginScores, PackedScores, PackedTerms, ProfileExplanation
from scoring.profiles.fallback import Judgment
from watcher.model import notebook_table

if TYPE_CHECKING:
    import pandas as pd

Weight = Annotated[int, Between(1, 2**31 - 1)]
"""Weight of a plugin: an int32 of at least 1, as in kube-scheduler."""

_SHOWN_NODES = 5


@dataclass(frozen=True, slots=True)
class WeightedPlugin(CheckedArguments):
    """Score plugin and its weight in a profile."""

    plugin: ScorePlugin
    weight: Weight = 1


@dataclass(frozen=True)
class PluginScores:
    """One plugin's scores for a pod: arrays of shape (nodes,).

    Attributes:
        weighted: plugin and its weight.
        raw: scores before normalization.
        normalized: scores from 0 to 100, which are multiplied by the weight and added up to the total; 0 where the node
            was not feasible.
        terms: intermediate values of the raw scores, by name; None if the plugin skipped the pod.
    """

    weighted: WeightedPlugin
    raw: Int64s
    normalized: Int64s
    terms: Terms | None


@dataclass(frozen=True)
class Scores:
    """Scores of the requested nodes for a pod. Later changes of the node table do not modify them.

    Attributes:
        pod: the pod.
        table_names: names of all nodes of the table, in row order.
        total: sum of the plugins' weighted scores, shape (nodes,); :data:`INFEASIBLE` where the node was not feasible.
        plugins: scores of each plugin, by the plugin's name.
        judgment: grades of all nodes of the table by a fallback policy; None without fallback.
        rows: rows of the requested nodes in the table, shape (nodes,); None if all nodes were requested.
    """

    pod: Pod
    table_names: tuple[str, ...]
    total: Int64s
    plugins: Mapping[str, PluginScores]
    judgment: Judgment | None = None
    rows: Int64s | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in the requested order; row order if all nodes were requested."""
        names = self.table_names
        return names if self.rows is None else tuple([names[row] for row in self.rows.tolist()])

    @cached_property
    def _row_by_name(self) -> Mapping[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def __repr__(self) -> str:
        feasible = int((self.total != INFEASIBLE).sum())
        best = f"best {self.best()} with {self.total.max()}" if feasible else "no node is feasible"
        pod = f"{self.pod.namespace}/{self.pod.name}"
        return f"Scores({pod} by {', '.join(self.plugins)}: {best}, {feasible} of {len(self.names)} nodes feasible)"

    def _repr_html_(self) -> str | None:
        return notebook_table(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas data frame with one row per node, best first.

        Columns are ``feasible``, ``score`` (weighted sum of feasible nodes), ``grade`` (only with fallback), and each
        plugin's normalized score.

        Raises:
            ImportError: pandas is not installed (``pip install pandas``).
        """
        import pandas as pd  # an optional dependency

        feasible = self.total != INFEASIBLE
        columns = {"feasible": feasible, "score": pd.Series(self.total, dtype="Int64").where(feasible).array}
        if self.judgment is not None:
            columns["grade"] = self.grades
        columns |= {name: scores.normalized for name, scores in self.plugins.items()}
        frame = pd.DataFrame(columns, index=pd.Index(self.names, name="node"))
        return frame.iloc[self._best_first()]

    @property
    def grades(self) -> Texts:
        """Grade of each node's metrics by the fallback policy, as text, shape (nodes,); "" without fallback."""
        if self.judgment is None:
            return np.full(len(self.total), "", object)
        return self.judgment.grades if self.rows is None else self.judgment.grades[self.rows]

    def best(self, rng: np.random.Generator | None = None) -> str:
        """Return the name of the node with the highest total.

        Args:
            rng: generator that breaks ties at random, as kube-scheduler does; None takes the first node in row order.

        Raises:
            LookupError: no node is feasible.
        """
        best = int(self.total.argmax()) if self.total.size else None
        if best is None or self.total[best] == INFEASIBLE:
            raise LookupError(f"no feasible node for pod {self.pod.namespace}/{self.pod.name}")
        if rng is not None:
            best = int(rng.choice(np.flatnonzero(self.total == self.total[best])))
        return self.names[best]

    def order(self) -> list[str]:
        """Return the names of all nodes, best first, ties in row order; infeasible nodes come last."""
        return [self.names[row] for row in self._best_first().tolist()]

    def ranking(self) -> list[tuple[str, int]]:
        """Return the names and totals of the feasible nodes, best first, ties in row order."""
        best_first = self._best_first()
        return [(self.names[row], int(self.total[row])) for row in best_first.tolist() if self.total[row] != INFEASIBLE]

    def _best_first(self) -> Int64s:
        return np.argsort(-self.total, kind="stable")

    def explain(self, node_name: str) -> ProfileExplanation:
        """Return the explanation of one node's total, with all plugins.

        Raises:
            KeyError: the node was not scored.
        """
        return self.explain_some([node_name])[0]

    def explain_some(self, node_names: Sequence[str]) -> list[ProfileExplanation]:
        """Return the explanations of several nodes, in the given order; faster than one by one.

        Raises:
            KeyError: a node was not scored.
        """
        try:
            places = [self._row_by_name[name] for name in node_names]
        except KeyError as error:
            shown = ", ".join([*self.names[:_SHOWN_NODES], *(["..."] if len(self.names) > _SHOWN_NODES else [])])
            raise KeyError(f"no node {error.args[0]!r} was scored; there are {len(self.names)}: {shown}") from None
        return self.explain_at(places)

    def explain_at(self, places: Sequence[int]) -> list[ProfileExplanation]:
        """Return the explanations of several nodes, given by their indices in :attr:`names`.

        Raises:
            IndexError: an index is out of range.
        """
        return self.pack(places).explain()

    def pack(self, places: Sequence[int]) -> PackedScores:
        """Return a small copy of the data for explanations of the nodes with these indices in :attr:`names`.

        Raises:
            IndexError: an index is out of range.
        """
        rows = places if self.rows is None else self.rows[places].tolist()
        judgment, replaced = self.judgment, {}
        if judgment is not None:
            replaced_places = np.flatnonzero(judgment.replaced[rows]).tolist()
            replaced = {place: judgment.line(rows[place]) for place in replaced_places}
        return PackedScores(
            f"{self.pod.namespace}/{self.pod.name}",
            tuple([self.table_names[row] for row in rows]),
            tuple(self.total[places].tolist()),
            tuple(map(str, ("",) * len(rows) if judgment is None else judgment.grades[rows].tolist())),
            replaced,
            tuple([_part(scores, places) for scores in self.plugins.values()]),
        )


def _part(scores: PluginScores, places: Sequence[int]) -> PackedPluginScores:
    packed = None if scores.terms is None else PackedTerms.of(scores.terms, places)
    weighted = scores.weighted
    return PackedPluginScores(weighted.plugin, weighted.weight, tuple(scores.normalized[places].tolist()), packed)
