"""One decision: what was asked, what was answered and why, where the pod went, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from scoring import Pod, Scores
from scoring.profiles.explanations import PackedScores
from scoring.table.node_rows import NodeRows
from trimaran.extender.answer import ScoredCandidates, ScoringDetails, PrioritizeOutcome
from trimaran.extender.decisions.manifest import of_pod
from trimaran.extender.decisions.regret import Use, PlacementRegret, requested, used
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

BEST = 10
_OVERHEAD_BYTES = 2750  # of a decision in memory with what came of it, beside its nodes and what its pod asks for
_NAME_BYTES, _TERM_BYTES = 100, 8  # of a candidate: its name, and each term of its score
_LONGEST_WHY = 400
_LONGEST_MANIFEST = 16384  # as JSON; of a pod that asks for more than so much is not told


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """Where a pod went.

    Attributes:
        node: its name.
        bound_at: unix seconds.
        score: what we gave it; None if it was no candidate.
        rank: how many candidates had a higher score, plus one.
        margin: how many points below the best it was.
    """

    node: str
    bound_at: float
    score: int | None = None
    rank: int | None = None
    margin: int | None = None


@dataclass(frozen=True, slots=True)
class ExplainedNodes:
    """The nodes of a decision that can be explained, ours first.

    Attributes:
        scores: what we gave them.
        points: what was answered for them, in that order.
        chosen: the one that the pod went to; "" where that is not known.
    """

    scores: PackedScores
    points: Sequence[int]
    chosen: str

    def as_documents(self) -> list[dict[str, Any]]:
        """Return their explanations as what JSON has."""
        found = []
        for explanation, points in zip(self.scores.explain(), self.points, strict=True):
            document = explanation.as_document()
            for plugin in document["plugins"]:
                plugin["why"] = plugin["why"][:_LONGEST_WHY]
            found.append({**document, "answered": points, "chosen": explanation.node == self.chosen})
        return found


@dataclass(slots=True, eq=False)
class Decision:
    """What is kept of a decision.

    Attributes:
        pod: ``namespace/name``.
        uid: of the pod.
        scheduler: the profile that the pod asks for.
        at: when it was answered, unix seconds.
        outcome: how the answer came to be, if it was acted for.
        acted: whether it was; else all nodes were answered alike.
        candidates: how many nodes were asked about.
        in_flight: pods that were on their way then.
        data: what the metrics were: window, source, their age.
        best, best_score: ours; empty where the answer is not by node.
        request: what the pod requests in percent of our best node.
        chosen: where it went, once that is known.
        worth: what came of it, once that is.
        manifest: what the pod asks for, as JSON; null where that is very long.
        nodes: the nodes that can be explained; None where the answer is not by node.
    """

    pod: str
    uid: str
    scheduler: str
    at: float
    outcome: PrioritizeOutcome
    acted: bool
    candidates: int
    in_flight: int
    data: dict[str, Any] = field(default_factory=dict)
    best: str = ""
    best_score: int = 0
    request: Use = field(default_factory=dict)
    chosen: ChosenNode | None = None
    worth: PlacementRegret | None = None
    manifest: bytes = b"null"
    nodes: ExplainedNodes | None = None

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return _OVERHEAD_BYTES + len(self.manifest) + (0 if self.nodes is None else self.nodes.scores.nbytes)

    def drop_details(self) -> None:
        """Keep no more of it than what :meth:`summary` returns."""
        self.manifest, self.nodes = b"null", None

    def measure(self, snapshot: WatcherMetrics) -> PlacementRegret | None:
        """Return what came of it by a snapshot of the time afterwards; None where a node was not measured."""
        if self.chosen is None or not self.best:
            return None
        chosen, ours = used(snapshot, self.chosen.node), used(snapshot, self.best)
        if chosen is None or ours is None or chosen.keys() != ours.keys():
            return None
        same = self.chosen.node == self.best
        with_pod = chosen if same else {name: ours[name] + self.request.get(name, 0.0) for name in ours}
        window = snapshot.window.start, snapshot.window.end
        return PlacementRegret(self.scheduler, self.acted, same, chosen, with_pod, window)

    def as_document(self) -> dict[str, Any]:
        """Return the same as what JSON has."""
        nodes = [] if self.nodes is None else self.nodes.as_documents()
        return {**self.summary(), "manifest": orjson.loads(self.manifest), "nodes": nodes}

    def summary(self) -> dict[str, Any]:
        """Return the same without the explained nodes and what the pod asks for."""
        chosen, worth = self.chosen, self.worth
        return {
            "pod": self.pod,
            "uid": self.uid,
            "scheduler": self.scheduler,
            "at": round(self.at, 3),
            "mode": "active" if self.acted else "shadow",
            "outcome": self.outcome,
            "candidates": self.candidates,
            "in_flight": self.in_flight,
            "data": self.data,
            "best": {"node": self.best, "score": self.best_score} if self.best else None,
            "chosen": chosen and {
                "node": chosen.node, "bound_at": round(chosen.bound_at, 3), "score": chosen.score,
                "rank": chosen.rank, "margin": chosen.margin,
            },
            "after": worth and worth.as_document(),
        }  # fmt: skip


class OpenDecision:
    """A decision whose pod is on its way: with all scores, until it is known which one was chosen.

    Attributes:
        decision: what will be kept.
        size: about how many bytes the scores take.
    """

    def __init__(self, asked: ExtenderArgs, answer: ScoredCandidates, best: str, acted: bool, at: float, in_flight: int) -> None:
        pod, basis = asked.pod, answer.basis
        self._pod, self._basis = pod, basis
        self._answer = answer
        self.decision = Decision(
            f"{pod.namespace}/{pod.name}", pod.uid, asked.scheduler_name, at, answer.outcome, acted,
            len(asked.node_names), in_flight,
        )  # fmt: skip
        manifest = orjson.dumps(of_pod(pod))
        if len(manifest) <= _LONGEST_MANIFEST:
            self.decision.manifest = bytes(memoryview(manifest))  # a copy, without the room that its writer had left
        self.size = self.decision.size
        self._points = None if basis is None else basis.points
        if basis is None:
            return
        if len(basis.points) < len(answer.names):
            self._points = np.array(answer.points)
        self.decision.data = _data(basis, at)
        self.decision.best = best
        self.decision.best_score = answer.points[answer.names.index(best)] if best else 0
        terms = sum(len(part.terms) for part in basis.scores.plugins.values() if part.terms)
        self.size += (_NAME_BYTES + terms * _TERM_BYTES) * len(answer.names)

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self._pod

    def close(self, nodes: NodeRows, node_name: str = "", bound_at: float = 0.0) -> Decision:
        """Return what is kept.

        Args:
            nodes: the nodes, for what the pod requests of ours.
            node_name: where the pod went; "" where that is not known.
            bound_at: when, unix seconds.
        """
        decision = self.decision
        row = nodes.row_by_name.get(decision.best)
        if row is not None:
            decision.request = requested(self._pod, nodes.nodes[row])
        if node_name:
            decision.chosen = self._chosen(node_name, bound_at)
        if self._basis is not None:
            decision.nodes = self._nodes(self._basis.scores, decision.best, node_name)
        return decision

    def _chosen(self, node_name: str, bound_at: float) -> ChosenNode:
        place, points = _place(self._answer.names, node_name), self._points
        if points is None or place < 0:
            return ChosenNode(node_name, bound_at)
        score = points.item(place)
        return ChosenNode(node_name, bound_at, score, 1 + int(np.count_nonzero(points > score)), int(points.max()) - score)

    def _nodes(self, scores: Scores, best: str, chosen: str) -> ExplainedNodes:
        """Return the best candidates, ours first, and the chosen one."""
        answer = self._answer
        all_known = len(scores.total) == len(answer.names)
        names = answer.names if all_known else scores.names
        points = answer.points if all_known else [answer.scores[name] for name in names]
        first = np.argpartition(-scores.total, min(BEST, len(names)) - 1)[:BEST]
        first = first[np.argsort(-scores.total[first], kind="stable")].tolist()
        ours, went = (_place(names, name) for name in (best, chosen))
        places = list(dict.fromkeys([ours, *first] if ours >= 0 else first))[:BEST]
        if went >= 0 and went not in places:
            places.append(went)
        return ExplainedNodes(scores.pack(places), [points[place] for place in places], chosen)


def _place(names: Sequence[str], name: str) -> int:
    """Return where a name is, -1 where it is not."""
    try:
        return names.index(name) if name else -1
    except ValueError:
        return -1


def _data(basis: ScoringDetails, at: float) -> dict[str, Any]:
    snapshot = basis.snapshot
    if snapshot is None:
        return {}
    return {
        "source": snapshot.source,
        "window": snapshot.window.duration,
        "timestamp": snapshot.timestamp,
        "age_seconds": round(max(0.0, at - snapshot.timestamp), 3),
    }
