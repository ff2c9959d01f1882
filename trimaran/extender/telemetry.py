"""Prometheus metrics of the extender."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.server.telemetry import ServiceTelemetry, labelled
from trimaran.cluster.view import ClusterView
from trimaran.cluster.workload_use import WorkloadUse
from trimaran.extender.answer import PrioritizeOutcome, ScoredCandidates
from trimaran.extender.decisions.decision import Decision
from trimaran.extender.decisions.regret import PlacementRegret
from trimaran.extender.filtering import FILTER_OUTCOMES, NodeFilter
from trimaran.extender.trial.field_trial import FieldTrial

_AGES = (5, 10, 15, 30, 45, 60, 90, 120, 180, 300, 600)
_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_SIGNED_POINTS = (-50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50)
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class ExtenderTelemetry(ServiceTelemetry):
    """Prometheus metrics of the extender's requests, scores, decisions and outages."""

    def __init__(self) -> None:
        super().__init__()
        histogram, gauge = partial(Histogram, registry=self.registry), partial(Gauge, registry=self.registry)
        self._answers = Counter(
            "trimaran_extender_answers", "prioritized pods by outcome", ["outcome"], registry=self.registry
        )
        for outcome in PrioritizeOutcome:  # creates every series at 0, so that rates include the first increment
            self._answers.labels(outcome)
        self._seconds = histogram(
            "trimaran_extender_answer_seconds", "time from receiving a request to its scores", buckets=_BUCKETS
        )
        outages = "outages, in which nodes were not scored by their load"
        self._outages = Counter("trimaran_extender_outages", outages, registry=self.registry)
        self._outage = gauge("trimaran_extender_outage", "1 if nodes are not scored by their load, else 0")
        stages = histogram(
            "trimaran_extender_stage_seconds", "time of a prioritize request's stages", ["stage"], buckets=_BUCKETS
        )
        self._waited, self._scored = map(stages.labels, ("wait", "score"))
        self._ages = histogram(
            "trimaran_extender_data_age_seconds", "age of the metrics when a pod was scored", buckets=_AGES
        )
        self._ranks = histogram(
            "trimaran_extender_chosen_rank", "rank of the chosen node by our scores", ["mode"], buckets=_RANKS
        )
        self._margins = histogram(
            "trimaran_extender_chosen_margin", "score of our best node minus that of the chosen node", ["mode"],
            buckets=_SIGNED_POINTS,
        )  # fmt: skip
        self._regrets = histogram(
            "trimaran_extender_regret_points",
            "estimate: load of the chosen node minus load of our best one with the pod",
            ["mode"],
            buckets=_SIGNED_POINTS,
        )
        self._herd = gauge(
            "trimaran_extender_herd_ratio", "share of the last 100 pods that went to the most chosen node"
        )

    def watch(self, view: ClusterView) -> None:
        """Export the state of a cluster view, read at every scrape."""
        self.export(lambda: _view_metrics(view))

    def watch_workloads(self, use: WorkloadUse) -> None:
        """Export the number of workloads whose use is learned, read at every scrape."""
        documentation = "workloads by whose learned use pods are scored; 0 if pods are scored by their requests"
        gauge = Gauge("trimaran_extender_known_workloads", documentation, registry=self.registry)
        gauge.set_function(lambda: use.workloads)

    def watch_decisions(
        self, number: Callable[[], int], size: Callable[[], int], active_percent: Callable[[], float]
    ) -> None:
        """Export the number and bytes of recorded decisions and the percentage of active pods, read at every scrape."""
        for name, documentation, read in (
            ("trimaran_extender_acting_percent", "percentage of the pods that get scores", active_percent),
            ("trimaran_extender_decisions", "recorded decisions", number),
            ("trimaran_extender_decision_bytes", "memory of the recorded decisions", size),
        ):
            Gauge(name, documentation, registry=self.registry).set_function(read)

    def watch_filter(self, filtering: NodeFilter) -> None:
        """Export the counters of a filter, read at every scrape."""
        self.export(lambda: _filter_metrics(filtering))

    def watch_trial(self, trial: FieldTrial) -> None:
        """Export the state of a field trial, read at every scrape."""
        self.export(lambda: _trial_metrics(trial))

    def count_answer(self, answer: ScoredCandidates, age_seconds: float | None) -> None:
        """Observe the waiting and the scoring time of a request, and the age of its metrics; None without metrics."""
        if answer.details is not None:
            self._waited.observe(answer.details.waited_seconds)
            self._scored.observe(answer.details.scored_seconds)
        if age_seconds is not None:
            self._ages.observe(age_seconds)

    def count_placement(self, decision: Decision, herd_ratio: float) -> None:
        """Observe rank and margin of the chosen node, and set the largest share of the last 100 pods on one node."""
        self._herd.set(herd_ratio)
        chosen, mode = decision.chosen, _mode(decision.active)
        if chosen is not None and chosen.rank is not None and chosen.margin is not None:
            self._ranks.labels(mode).observe(chosen.rank)
            self._margins.labels(mode).observe(chosen.margin)

    def count_regret(self, regret: PlacementRegret) -> None:
        """Observe the estimated regret of a placement: load of the chosen node minus load of our best node, points."""
        self._regrets.labels(_mode(regret.active)).observe(regret.regret)

    def count_prioritized(self, outcome: PrioritizeOutcome, seconds: float) -> None:
        """Count a prioritize request by its outcome, and observe its duration."""
        self._answers.labels(outcome).inc()
        self._seconds.observe(seconds)

    def set_outage(self, reason: str) -> None:
        """Record the begin of an outage, in which nodes are not scored by load, or its end if the reason is empty."""
        self._outages.inc(bool(reason))
        self._outage.set(bool(reason))


def _view_metrics(view: ClusterView) -> Iterator[Metric]:
    yield GaugeMetricFamily("trimaran_cluster_synced", "1 if nodes and pods are known, else 0", view.is_synced)
    yield GaugeMetricFamily("trimaran_cluster_age_seconds", "time since the API server's last data", view.age_seconds)
    yield GaugeMetricFamily(
        "trimaran_cluster_unknown_nodes", "nodes with a pod whose requests are not known", len(view.unknown_nodes)
    )
    yield CounterMetricFamily("trimaran_cluster_lists", "full lists of nodes and pods that were read", view.lists)
    ends = asdict(view.outcomes).items()
    documentation = "assumed placements that ended, by outcome"
    yield labelled(CounterMetricFamily, "trimaran_assumptions", documentation, "outcome", ends)


def _filter_metrics(filtering: NodeFilter) -> Iterator[Metric]:
    counts = ((name, filtering.counts[name]) for name in FILTER_OUTCOMES)
    yield labelled(CounterMetricFamily, "trimaran_extender_filtered", "filtered pods by outcome", "outcome", counts)
    yield GaugeMetricFamily("trimaran_extender_waiting", "pods whose nodes were all rejected", len(filtering.waiting))


def _trial_metrics(trial: FieldTrial) -> Iterator[Metric]:
    state = trial.state
    blocks = () if state is None else state.blocks
    is_stopped = state is not None and state.stopped_at is not None
    yield GaugeMetricFamily("trimaran_extender_trial_blocks", "counted blocks of the field trial", len(blocks))
    yield GaugeMetricFamily(
        "trimaran_extender_trial_stopped", "1 if the field trial was stopped because of harm, else 0", is_stopped
    )
    yield GaugeMetricFamily(
        "trimaran_extender_trial_blocked",
        "1 if the field trial cannot continue, so that the extender is in shadow, else 0",
        bool(trial.problem),
    )


def _mode(active: bool) -> str:
    return "active" if active else "shadow"
