"""Alerts about trimaran that a Prometheus has raised, read over HTTP and cached for ten seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.http.json_service import JsonService, ServiceUnavailable
from trimaran.dashboard.ttl_cache import TTLCache

_SECONDS = 10.0
_PREFIX = "Trimaran"  # of the rules in deploy/prometheus; other alerts of the same Prometheus are left out
_STATES = ("firing", "pending")
_SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Alert:
    """Alert of a rule.

    Attributes:
        name: name of the rule.
        severity: ``critical``, ``warning`` or ``info``.
        state: ``firing``, or ``pending`` until its condition has lasted long enough.
        since: start of the condition, Unix seconds; 0 if unknown.
        summary: the problem in one line.
        description: cause, effect and remedy.
    """

    name: str
    severity: str
    state: str
    since: float
    summary: str
    description: str


class Alerts:
    """Reader of a Prometheus' alerts, with one cache for all viewers. Thread-safe.

    Args:
        prometheus: client of the Prometheus that evaluates the rules.
    """

    def __init__(self, prometheus: JsonService) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._prometheus = prometheus
        self._cache = TTLCache()

    def read(self) -> Sequence[Alert]:
        """Return the alerts, the firing and critical ones first.

        Raises:
            ServiceUnavailable: Prometheus refuses the request, cannot be reached, or its answer is malformed.
        """
        return self._cache.get("alerts", _SECONDS, self._read)

    def _read(self) -> Sequence[Alert]:
        document = self._prometheus.get("/api/v1/alerts")
        try:
            alerts = [_alert(each) for each in document["data"]["alerts"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ServiceUnavailable("malformed answer to /api/v1/alerts: is --alerts a Prometheus URL?") from None
        ours = [each for each in alerts if each.name.startswith(_PREFIX)]
        return sorted(
            ours, key=lambda each: (_place(_STATES, each.state), _place(_SEVERITIES, each.severity), -each.since)
        )


def _alert(document: Mapping[str, Any]) -> Alert:
    labels, annotations = document["labels"], document.get("annotations") or {}
    moment = str(document.get("activeAt") or "")
    return Alert(
        str(labels["alertname"]),
        str(labels.get("severity", "")),
        str(document["state"]),
        datetime.fromisoformat(moment).timestamp() if moment else 0.0,
        str(annotations.get("summary", "")),
        str(annotations.get("description", "")),
    )


def _place(order: Sequence[str], word: str) -> int:
    return order.index(word) if word in order else len(order)
