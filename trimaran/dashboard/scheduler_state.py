"""State of ``trimaran scheduler``, from its metrics and, in shadow mode, its comparison; cached for five seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from runtime.http.json_service import JsonService, ServiceUnavailable
from trimaran.dashboard.ttl_cache import TTLCache

_SECONDS = 5.0
_NOT_FOUND = 404
_ATTEMPTS, _PENDING = "scheduler_schedule_attempts_total", "scheduler_pending_pods"


@dataclass(frozen=True)
class SchedulerStatus:
    """State of a scheduler.

    Attributes:
        leads: whether this replica holds the Lease, or runs in shadow mode.
        knows_load: whether the scheduler scores nodes by measured load.
        attempts: number of scheduling attempts since the scheduler's start, by result.
        pending: number of pending pods, by queue.
        shadow: comparison with the other scheduler; None in mode ``bind``.
    """

    leads: bool
    knows_load: bool
    attempts: Mapping[str, int]
    pending: Mapping[str, int]
    shadow: Mapping[str, Any] | None

    @property
    def mode(self) -> str:
        """Mode of the scheduler: ``bind`` or ``shadow``."""
        return "bind" if self.shadow is None else "shadow"


class SchedulerState:
    """Reader of a scheduler's state, with one cache for all viewers. Thread-safe.

    Args:
        scheduler: client of the scheduler.
    """

    def __init__(self, scheduler: JsonService) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._scheduler = scheduler
        self._cache = TTLCache()

    def read(self) -> SchedulerStatus:
        """Return the state.

        Raises:
            ServiceUnavailable: the scheduler refuses the request or cannot be reached.
        """
        return self._cache.get(
            "status", _SECONDS, lambda: self._scheduler.ask_leader(self._read, lambda state: state.leads)
        )

    def _read(self) -> SchedulerStatus:
        samples = _samples(self._scheduler.text("/metrics"))
        if _PENDING not in samples:
            raise ServiceUnavailable(f"no {_PENDING} in /metrics: is this the URL of a trimaran scheduler?")
        return SchedulerStatus(
            bool(_total(samples, "trimaran_scheduler_leads")),
            bool(_total(samples, "trimaran_scheduler_load_known")),
            _by_label(samples, _ATTEMPTS, "result"),
            _by_label(samples, _PENDING, "queue"),
            self._shadow(),
        )

    def _shadow(self) -> Mapping[str, Any] | None:
        try:
            return self._scheduler.get("/shadow")
        except ServiceUnavailable as error:
            if error.status == _NOT_FOUND:  # in mode bind there is no comparison
                return None
            raise


Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


def _samples(exposition: str) -> Samples:
    """Return labels and value of each sample of a Prometheus exposition, by its name."""
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except ValueError as error:
        raise ServiceUnavailable(f"the metrics of the scheduler cannot be read: {error}") from None
    return samples


def _total(samples: Samples, name: str) -> float:
    return sum(value for _, value in samples.get(name, ()))


def _by_label(samples: Samples, name: str, label: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for labels, value in samples.get(name, ()):
        sums[labels[label]] = sums.get(labels[label], 0) + int(value)
    return sums
