"""Round: the result of one fetch of all windows, which the stages of the pipeline pass on and change."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from watcher.findings import Finding, Kind
from watcher.model import NodeMetrics, WatcherMetrics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one fetch of all windows; every window is either among the snapshots or among the failures.

    Attributes:
        timestamp: start of the fetch, Unix seconds; 0 if nothing has been fetched yet.
        snapshots: window to its snapshot.
        failures: window to the reason why it has no snapshot.
        findings: problems with the fetched metrics.
        newest: node name to the time of the node's newest sample by the provider's clock, Unix seconds, if known.
        second_source: node name to the node's metrics from a second provider, for comparison only.
    """

    timestamp: int = 0
    snapshots: Mapping[str, WatcherMetrics] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    newest: Mapping[str, float] = field(default_factory=dict)
    second_source: Mapping[str, NodeMetrics] = field(default_factory=dict)

    def with_failures(self, failures: Mapping[str, str]) -> "Round":
        """Return a copy of the round in which these windows have failed.

        A failed window has no snapshot in the copy, and adds a failure and a finding.

        Args:
            failures: window to the reason why it failed.
        """
        return replace(
            self,
            snapshots={name: metrics for name, metrics in self.snapshots.items() if name not in failures},
            failures={**self.failures, **failures},
            findings=(*self.findings, *(Finding(Kind.FETCH_FAILED, why, name) for name, why in failures.items())),
        )

    def log_changes_since(self, before: "Round") -> None:
        """Log the changes since the round ``before``: windows that recovered, and windows with a new failure.

        A failure is new if the window did not fail before, or failed for another reason.
        """
        for name, why in self.failures.items():
            if before.failures.get(name) != why:
                _log.warning("a window cannot be fetched", extra={"window": name, "error": why})
        for name in before.failures.keys() - self.failures.keys():
            _log.info("a window can be fetched again", extra={"window": name})
        if not before.timestamp:
            _log.info("first fetch", extra={"windows": len(self.snapshots), "failed": len(self.failures)})
