"""Decision: record of one prioritize request, with its scores, the node that was chosen, and the nodes' later loads."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson

from scoring import Scores
from scoring.load.pod_expectation import PodExpectation
from scoring.profiles.explanations import PackedScores
from trimaran.cluster.target_note import TargetNote
from trimaran.extender.answer import PrioritizeOutcome, ScoredCandidates, ScoringDetails
from trimaran.extender.decisions import regret
from trimaran.extender.decisions.manifest import pod_manifest
from trimaran.extender.decisions.regret import MeasuredWindow, PlacementRegret
from trimaran.extender.wire import ExtenderArgs

BEST = 10
_OVERHEAD_BYTES = 3400  # memory of a decision with its regret, without its nodes and its manifest
_NAME_BYTES, _TERM_BYTES = 100, 8  # memory of a candidate's name, and of each term of its score
_LONGEST_WHY = 400
_LONGEST_MANIFEST = 16384  # bytes of JSON; longer manifests are dropped


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """Node that a pod was bound to.

    Attributes:
        node: name of the node.
        bound_at: time of the binding, Unix seconds.
        score: our score of the node; None if the node was not a candidate, or the candidates could not be scored.
        rank: number of candidates with a higher score, plus one; None without a score.
        margin: score of our best node minus the score of this node, points; None without a score. It is negative if our
            scores alone prefer this node, because the best node has the highest sum with kube-scheduler's own scores.
    """

    node: str
    bound_at: float
    score: int | None = None
    rank: int | None = None
    margin: int | None = None


@dataclass(frozen=True, slots=True)
class ExplainedNodes:
    """Explained candidates of a decision: the best ones, our best node first, and the chosen node.

    Attributes:
        scores: weighted sums and plugin scores of the nodes, packed.
        points: scores of the nodes as kube-scheduler gets them, in the same order.
        chosen: node that the pod was bound to; "" if unknown.
    """

    scores: PackedScores
    points: Sequence[int]
    chosen: str

    def as_documents(self) -> list[dict[str, Any]]:
        """Return a JSON object for each node: scores, the reasons of each plugin, and whether it was chosen."""
        documents = []
        for explanation, points in zip(self.scores.explain(), self.points, strict=True):
            document = explanation.as_document()
            for plugin in document["plugins"]:
                plugin["why"] = plugin["why"][:_LONGEST_WHY]
            documents.append({**document, "answered": points, "chosen": explanation.node == self.chosen})
        return documents


@dataclass(slots=True, eq=False)
class Decision:
    """Record of one prioritize request: our scores for a pod, and the node that the pod was bound to.

    Attributes:
        pod: ``namespace/name``.
        uid: uid of the pod.
        scheduler: scheduler name of the pod.
        at: time of the response, Unix seconds.
        outcome: how the scoring ended, also in shadow mode, where the scores are not sent.
        active: whether the rollout is active for the pod; if not (shadow), kube-scheduler got the same score for all
            nodes.
        candidates: number of nodes in the request.
        in_flight: number of pods that were assumed on nodes but not yet bound.
        data: window, source, timestamp and age of the metrics; empty without metrics.
        best, best_score: our best node and its score, also in shadow mode. The best node has the highest sum of our
            scores and the in-tree scores. Empty if the nodes could not be scored.
        requests: CPU and memory requests of the pod, in millicores and bytes.
        expectation: expected use of the pod, from which its scores were computed; None if no node could be scored.
        plan: plan of the rebalancer, if the pod replaces a pod that the rebalancer moved; None for other pods.
        chosen: node that the pod was bound to; None until known.
        placement_regret: load of the chosen node compared with our best node (see ``regret``); None until measured.
        manifest: requests and scheduling constraints of the pod as JSON; ``null`` if longer than 16 KB.
        nodes: explained nodes; None while the decision is open, or if the nodes could not be scored.
    """

    pod: str
    uid: str
    scheduler: str
    at: float
    outcome: PrioritizeOutcome
    active: bool
    candidates: int
    in_flight: int
    data: dict[str, Any] = field(default_factory=dict)
    best: str = ""
    best_score: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    expectation: PodExpectation | None = None
    plan: TargetNote | None = None
    chosen: ChosenNode | None = None
    placement_regret: PlacementRegret | None = None
    manifest: bytes = b"null"
    nodes: ExplainedNodes | None = None

    @property
    def size(self) -> int:
        """Approximate memory of the decision in bytes."""
        return _OVERHEAD_BYTES + len(self.manifest) + (0 if self.nodes is None else self.nodes.scores.nbytes)

    def drop_details(self) -> None:
        """Drop the manifest and the explained nodes, which :meth:`summary` does not return."""
        self.manifest, self.nodes = b"null", None

    def measure(self, window: MeasuredWindow) -> PlacementRegret | None:
        """Return the loads of the chosen node and of our best node in a window.

        Returns None if the chosen or the best node is unknown, or not measured, or if the pod has left the node.

        Args:
            window: measured window, which began after the pod was bound.
        """
        if self.chosen is None or not self.best or not window.covers(self.uid, self.chosen.node):
            return None
        since = min(math.floor(self.at), self.chosen.bound_at)  # the API server's times are whole seconds
        chosen, best = (window.use(node_name, since, self.uid) for node_name in (self.chosen.node, self.best))
        if chosen is None or best is None or chosen.keys() != best.keys():
            return None
        same = self.chosen.node == self.best
        if not same:
            expected = window.expected_percent(self.requests, self.best)
            best = {name: percent + expected[name] for name, percent in best.items()}
        return PlacementRegret(self.scheduler, self.active, same, chosen, best, window.bounds)

    def as_document(self) -> dict[str, Any]:
        """Return the decision as a JSON object, with the explained nodes and the manifest."""
        nodes = [] if self.nodes is None else self.nodes.as_documents()
        return {**self.summary(), "manifest": orjson.loads(self.manifest), "nodes": nodes}

    def summary(self) -> dict[str, Any]:
        """Return the decision as a JSON object without the explained nodes and the manifest."""
        chosen, after = self.chosen, self.placement_regret
        return {
            "pod": self.pod,
            "uid": self.uid,
            "scheduler": self.scheduler,
            "at": round(self.at, 3),
            "mode": "active" if self.active else "shadow",
            "outcome": self.outcome,
            "candidates": self.candidates,
            "in_flight": self.in_flight,
            "data": self.data,
            "expected": self.expectation and self.expectation.as_document(),
            "planned": self.plan and {"target": self.plan.target, "source": self.plan.source},
            "best": {"node": self.best, "score": self.best_score} if self.best else None,
            "chosen": chosen and {**asdict(chosen), "bound_at": round(chosen.bound_at, 3)},
            "after": after and after.as_document(),
        }


class OpenDecision:
    """Decision about a pod that is not bound yet, with the scores of all candidates.

    Attributes:
        pod: pod of the decision.
        decision: decision to record, without the chosen node and the explained nodes.
        size: approximate memory of the decision and its scores in bytes.
    """

    def __init__(
        self,
        args: ExtenderArgs,
        answer: ScoredCandidates,
        best: str,
        active: bool,
        at: float,
        in_flight: int,
        why_by_requests: str,
    ) -> None:
        pod, details = args.pod, answer.details
        self.pod, self._details = pod, details
        self._answer = answer
        self.decision = Decision(
            f"{pod.namespace}/{pod.name}", pod.uid, args.scheduler_name, at, answer.outcome, active,
            len(args.node_names), in_flight,
        )  # fmt: skip
        self.decision.requests = regret.requests(pod)
        manifest = orjson.dumps(pod_manifest(pod))
        if len(manifest) <= _LONGEST_MANIFEST:
            self.decision.manifest = bytes(memoryview(manifest))  # a copy, without the writer's spare capacity
        self.size = self.decision.size
        self._points = None if details is None else details.points
        if details is None:
            return
        if len(details.points) < len(answer.names):
            self._points = np.array(answer.points)
        self.decision.data = _data(details, at)
        self.decision.expectation = PodExpectation.of(details.levels, pod, at, why_by_requests)
        self.decision.plan = details.plan
        self.decision.best = best
        self.decision.best_score = answer.points[answer.names.index(best)] if best else 0
        terms = sum(len(part.terms) for part in details.scores.plugins.values() if part.terms)
        self.size += (_NAME_BYTES + terms * _TERM_BYTES) * len(answer.names)

    def close(self, node_name: str = "", bound_at: float = 0.0) -> Decision:
        """Complete the decision with the chosen node and the explained nodes, and return it.

        Args:
            node_name: node that the pod was bound to; "" if unknown.
            bound_at: time of the binding, Unix seconds.
        """
        decision = self.decision
        if node_name:
            decision.chosen = self._chosen(node_name, bound_at)
        if self._details is not None:
            decision.nodes = self._nodes(self._details.scores, decision.best, node_name)
        return decision

    def _chosen(self, node_name: str, bound_at: float) -> ChosenNode:
        position, points = _position(self._answer.names, node_name), self._points
        if points is None or position < 0 or not self.decision.best:
            return ChosenNode(node_name, bound_at)
        score = points.item(position)
        rank = 1 + int(np.count_nonzero(points > score))
        return ChosenNode(node_name, bound_at, score, rank, self.decision.best_score - score)

    def _nodes(self, scores: Scores, best: str, chosen: str) -> ExplainedNodes:
        """Return the ten best candidates, our best node first, and the chosen node if it is not one of them."""
        answer = self._answer
        all_known = len(scores.total) == len(answer.names)
        names = answer.names if all_known else scores.names
        points = answer.points if all_known else [answer.scores[name] for name in names]
        top = np.argpartition(-scores.total, min(BEST, len(names)) - 1)[:BEST]
        top = top[np.argsort(-scores.total[top], kind="stable")].tolist()
        best_position, chosen_position = (_position(names, name) for name in (best, chosen))
        positions = list(dict.fromkeys([best_position, *top] if best_position >= 0 else top))[:BEST]
        if chosen_position >= 0 and chosen_position not in positions:
            positions.append(chosen_position)
        return ExplainedNodes(scores.pack(positions), array("q", [points[position] for position in positions]), chosen)


def _position(names: Sequence[str], name: str) -> int:
    """Return the position of a name in a sequence; -1 if it is missing or empty."""
    try:
        return names.index(name) if name else -1
    except ValueError:
        return -1


def _data(details: ScoringDetails, at: float) -> dict[str, Any]:
    snapshot = details.snapshot
    if snapshot is None:
        return {}
    return {
        "source": snapshot.source,
        "window": snapshot.window.duration,
        "timestamp": snapshot.timestamp,
        "age_seconds": round(max(0.0, at - snapshot.timestamp), 3),
    }
