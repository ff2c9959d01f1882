"""What the extender counts, as Prometheus reads it."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trimaran.cluster.view import ClusterView
from trimaran.extender.answer import Answer, Outcome
from trimaran.extender.decisions.decision import Decision
from trimaran.extender.decisions.record import Record
from trimaran.extender.decisions.regret import Worth
from trimaran.extender.filtering import FILTER_OUTCOMES, NodeFilter
from watcher.telemetry import RequestCounters

_AGES = (5, 10, 15, 30, 45, 60, 90, 120, 180, 300, 600)
_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_POINTS = (0, 1, 2, 5, 10, 20, 50)
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class Telemetry:
    """Counts requests, answers by how they came to be, and outages."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.answered = RequestCounters(self._registry).answered
        self._answers = Counter(
            "trimaran_extender_answers", "pods prioritized, by how the answer came to be", ["outcome"],
            registry=self._registry,
        )  # fmt: skip
        for outcome in Outcome:  # each has its series from the start, so that rates see the first
            self._answers.labels(outcome)
        self._seconds = Histogram(
            "trimaran_extender_answer_seconds", "time from a whole request to its scores", buckets=_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._outages = Counter(
            "trimaran_extender_outages", "times that nodes could not be scored by their load any more",
            registry=self._registry,
        )  # fmt: skip
        self._outage = Gauge(
            "trimaran_extender_outage", "whether nodes cannot be scored by their load, 1 or 0", registry=self._registry
        )
        stages = Histogram(
            "trimaran_extender_stage_seconds", "time of an answer's stages", ["stage"], buckets=_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._waited, self._scored = map(stages.labels, ("wait", "score"))
        self._ages = Histogram(
            "trimaran_extender_data_age_seconds", "how old the metrics were that a pod was scored by", buckets=_AGES,
            registry=self._registry,
        )  # fmt: skip
        self._ranks = Histogram(
            "trimaran_extender_chosen_rank", "place of the node that a pod went to among its candidates' scores",
            ["mode"], buckets=_RANKS, registry=self._registry,
        )  # fmt: skip
        self._margins = Histogram(
            "trimaran_extender_chosen_margin", "points that the node a pod went to was below the best", ["mode"],
            buckets=_POINTS, registry=self._registry,
        )  # fmt: skip
        self._regrets = Histogram(
            "trimaran_extender_regret_points", "load of the node a pod went to less what ours would have had", ["mode"],
            buckets=sorted({*_POINTS, *(-each for each in _POINTS)}), registry=self._registry,
        )  # fmt: skip
        self._herd = Gauge(
            "trimaran_extender_herd_ratio", "share of the last 100 pods that went to one node, that with most of them",
            registry=self._registry,
        )  # fmt: skip
        ProcessCollector(registry=self._registry)

    def watch(self, view: ClusterView) -> None:
        """Say whose state is told, which is read at every scrape."""
        self._registry.register(_ViewCollector(view))

    def watch_decisions(self, record: Record, acting_percent: Callable[[], float]) -> None:
        """Say how many decisions are kept, and of which pods they are acted upon; read at every scrape."""
        for name, documentation, read in (
            ("trimaran_extender_acting_percent", "share of the pods that are acted for", acting_percent),
            ("trimaran_extender_decisions", "decisions that can be explained", lambda: len(record)),
            ("trimaran_extender_decision_bytes", "memory that they take", lambda: record.size),
        ):
            Gauge(name, documentation, registry=self._registry).set_function(read)

    def watch_filter(self, filtering: NodeFilter) -> None:
        """Say whose counts are told, which are read at every scrape."""
        self._registry.register(_FilterCollector(filtering))

    def noted(self, answer: Answer, age_seconds: float | None) -> None:
        """Count an answer's stages, and how old the metrics were."""
        if answer.basis is not None:
            self._waited.observe(answer.basis.waited_seconds)
            self._scored.observe(answer.basis.scored_seconds)
        if age_seconds is not None:
            self._ages.observe(age_seconds)

    def settled(self, decision: Decision, herd_ratio: float) -> None:
        """Count where a pod went."""
        self._herd.set(herd_ratio)
        chosen, mode = decision.chosen, _mode(decision.acted)
        if chosen is not None and chosen.rank is not None and chosen.margin is not None:
            self._ranks.labels(mode).observe(chosen.rank)
            self._margins.labels(mode).observe(chosen.margin)

    def measured(self, worth: Worth) -> None:
        """Count what came of it."""
        self._regrets.labels(_mode(worth.acted)).observe(worth.regret)

    def prioritized(self, outcome: Outcome, seconds: float) -> None:
        """Count an answer."""
        self._answers.labels(outcome).inc()
        self._seconds.observe(seconds)

    def outage(self, why: str) -> None:
        """Count the begin of an outage, or note its end, which has no reason."""
        self._outages.inc(bool(why))
        self._outage.set(bool(why))

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _ViewCollector(Collector):
    """The view's state, made anew at every scrape."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view
        yield _gauge("trimaran_cluster_synced", "whether nodes and pods are known, 1 or 0", view.is_synced)
        yield _gauge("trimaran_cluster_age_seconds", "how long nothing has come from the API server", view.age_seconds)
        yield CounterMetricFamily("trimaran_cluster_lists", "whole lists read", view.lists)
        outcomes = view.outcomes
        family = CounterMetricFamily(
            "trimaran_assumptions", "what became of best candidates that were assumed", labels=["outcome"]
        )
        for name in ("hits", "misses", "dropped", "expired"):
            family.add_metric([name], getattr(outcomes, name))
        yield family


class _FilterCollector(Collector):
    """The filter's counts, made anew at every scrape."""

    def __init__(self, filtering: NodeFilter) -> None:
        self._filtering = filtering

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "trimaran_extender_filtered", "pods filtered, by what became of them", labels=["outcome"]
        )
        for name in FILTER_OUTCOMES:
            family.add_metric([name], self._filtering.counts[name])
        yield family
        yield _gauge("trimaran_extender_waiting", "pods that the filter rejected last", len(self._filtering.waiting))


def _mode(acted: bool) -> str:
    return "active" if acted else "shadow"


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=value)
