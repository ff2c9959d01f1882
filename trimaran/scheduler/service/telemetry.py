"""Prometheus metrics of the scheduler, with kube-scheduler's names if they mean the same, so that dashboards work.

Source of the names, labels and buckets: k8s.io/kubernetes/pkg/scheduler/metrics.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.server.telemetry import ServiceTelemetry, labelled

_FROM_MILLISECOND = tuple(0.001 * 2**step for step in range(15))
_FROM_TEN_MILLISECONDS = tuple(0.01 * 2**step for step in range(20))
_ATTEMPTS = (1, 2, 4, 8, 16)
_VICTIMS = (1, 2, 4, 8, 16, 32, 64)
_REGRETS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_ATTEMPTS = 15  # as kube-scheduler's label: further attempts are "15+"
_QUEUES = ("active", "backoff", "unschedulable", "gated")


class AttemptResult(StrEnum):
    """Result of an attempt to schedule a pod."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class SchedulerTelemetry(ServiceTelemetry):
    """Metrics of scheduling attempts, and of the state that is read at every scrape."""

    def __init__(self) -> None:
        super().__init__()
        histogram = partial(Histogram, registry=self.registry)
        self._attempts = Counter(
            "scheduler_schedule_attempts", "attempts to schedule pods, by result", ["result", "profile"],
            registry=self.registry,
        )  # fmt: skip
        self._attempt_seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds", "time of an attempt: the scheduling cycle and the binding",
            ["result", "profile"], buckets=_FROM_MILLISECOND,
        )  # fmt: skip
        self._cycle_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "time of a scheduling cycle", buckets=_FROM_MILLISECOND
        )
        self._sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "time from the first sight of a pending pod without gates until it is bound", ["attempts"],
            buckets=_FROM_TEN_MILLISECONDS,
        )  # fmt: skip
        self._pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts", "number of attempts until a pod is bound", buckets=_ATTEMPTS
        )
        self._preemptions = Counter("scheduler_preemption_attempts", "attempts to preempt pods", registry=self.registry)
        self._victims = histogram("scheduler_preemption_victims", "number of victims of a preemption", buckets=_VICTIMS)
        self._outdated = Counter(
            "trimaran_scheduler_outdated_decisions", "decisions that were dropped before the Binding was sent, because "
            "the pod no longer fitted on its node", registry=self.registry,
        )  # fmt: skip
        self._rejections = Counter(
            "trimaran_scheduler_kubelet_rejections", "pods of this scheduler that a kubelet rejected", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self._shadow = Counter(
            "trimaran_scheduler_shadow_pods", "pods that another scheduler has placed, too", ["agreed"],
            registry=self.registry,
        )  # fmt: skip
        self._regrets = histogram(
            "trimaran_scheduler_shadow_regret_points",
            "score of our choice minus that of the other scheduler's node, by our scores", buckets=_REGRETS,
        )  # fmt: skip

    def count_attempt(self, result: AttemptResult, profile: str, seconds: float) -> None:
        """Count an attempt, and observe the time of its cycle and binding."""
        self._attempts.labels(result, profile).inc()
        self._attempt_seconds.labels(result, profile).observe(seconds)

    def count_cycle(self, seconds: float) -> None:
        """Observe the time of a scheduling cycle."""
        self._cycle_seconds.observe(seconds)

    def count_scheduled(self, seconds: float, attempts: int) -> None:
        """Observe the time until a pod was bound, and the number of attempts."""
        label = str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
        self._sli_seconds.labels(label).observe(seconds)
        self._pod_attempts.observe(attempts)

    def count_preemption(self, victims: int) -> None:
        """Count a preemption and its victims."""
        self._preemptions.inc()
        self._victims.observe(victims)

    def count_outdated(self) -> None:
        """Count a decision that was dropped because its pod no longer fits on the node."""
        self._outdated.inc()

    def count_rejection(self, reason: str) -> None:
        """Count a pod that a kubelet rejected."""
        self._rejections.labels(reason).inc()

    def count_shadow(self, agreed: bool, regret: int | None) -> None:
        """Count a pod that another scheduler has placed; the regret is None if its node is not feasible for us."""
        self._shadow.labels(str(agreed).lower()).inc()
        if regret is not None:
            self._regrets.observe(regret)

    def watch(
        self,
        state: Callable[[], Mapping[str, float]],
        counts: Callable[[], Mapping[str, int]],
        failures: Callable[[], Mapping[tuple[str, str], int]] = dict,
    ) -> None:
        """Export state that is read at every scrape.

        Args:
            state: returns values by name: ``leads``, ``load_known``, ``api_age_seconds``, ``waiting_writes``,
                ``unknown_nodes``, ``busy_seconds``, and the counters ``dropped_events`` and ``failed_writes``.
            counts: returns the number of pods by queue, ``in_flight``, and the number of ``nodes_in_backoff``.
            failures: returns the number of failures by plugin and extension point.
        """
        self.export(lambda: _state_metrics(state(), counts(), failures()))


def _state_metrics(
    state: Mapping[str, float], counts: Mapping[str, int], failures: Mapping[tuple[str, str], int]
) -> Iterator[Metric]:
    queues = ((queue, counts.get(queue, 0)) for queue in _QUEUES)
    yield labelled(GaugeMetricFamily, "scheduler_pending_pods", "pending pods, by queue", "queue", queues)
    for name, documentation, value in (
        ("leads", "1 if this replica holds the Lease, or is in shadow", state.get("leads", 0)),
        ("load_known", "1 if nodes are scored by measured load, else 0", state.get("load_known", 0)),
        ("in_flight", "pods that are decided and not known to be bound", counts.get("in_flight", 0)),
        ("nodes_in_backoff", "nodes that get no pods for a while, because their kubelet rejected one",
         counts.get("nodes_in_backoff", 0)),
        ("waiting_writes", "decisions and statuses that are not sent yet", state.get("waiting_writes", 0)),
        ("unknown_nodes", "nodes that get no pods, because they have a pod whose requests are not known",
         state.get("unknown_nodes", 0)),
        ("busy_seconds", "time since the scheduling thread last made progress; it grows while a plugin hangs",
         state.get("busy_seconds", 0)),
        ("api_age_seconds", "time since the API server last reported on some kind of objects",
         state.get("api_age_seconds", 0)),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"trimaran_scheduler_{name}", documentation, value)
    for name, documentation in (
        ("dropped_events", "Events that were not written"),
        ("failed_writes", "statuses and preemptions that could not be written"),
    ):
        yield CounterMetricFamily(f"trimaran_scheduler_{name}", documentation, state.get(name, 0))
    failed = CounterMetricFamily(
        "trimaran_scheduler_plugin_failures", "exceptions of plugins, each of which costs an attempt of one pod",
        labels=["plugin", "extension_point"],
    )  # fmt: skip
    for (plugin, point), count in failures.items():
        failed.add_metric([plugin, point], count)
    yield failed
