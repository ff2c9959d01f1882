"""Judging: detect suspect metrics by comparing a fetch with earlier ones, also with those that the last run stored."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from watcher.findings import Kind
from watcher.pipeline.round import Round
from watcher.store import Store

if TYPE_CHECKING:
    from watcher.quality.anomalies import AnomalyDetector

_log = logging.getLogger(__name__)
_RECALL_SECONDS = 2.0  # loading the past of a big cluster must not delay the first fetch


class Judge:
    """Marks or drops metrics that the anomaly detector finds suspect.

    Args:
        detector: function that returns a new detector; called at the first round, since its modules are slow to import.
        store: the store with the snapshots of the previous run.
        sources: names of the providers whose snapshots are loaded, the preferred provider first.
    """

    def __init__(self, detector: "Callable[[], AnomalyDetector]", store: Store, sources: Sequence[str]) -> None:
        self._create_detector = detector
        self._detector: AnomalyDetector | None = None
        self._store = store
        self._sources = sources

    def judge(self, fetched: Round) -> Round:
        """Return the round with the detector's findings, and with suspect nodes marked.

        If the detector fails, the round is returned unchanged.
        """
        if self._detector is None:
            self._detector = self._create_detector()
            self._recall(self._detector)
        # A metric that was dropped with a finding is not missing.
        known = [finding for finding in fetched.findings if finding.kind is not Kind.BAD_LABEL]
        try:
            judged, findings = self._detector.judge(
                fetched.timestamp, fetched.snapshots, fetched.newest, known, fetched.second_source
            )
        except Exception:  # noqa: BLE001
            # The metrics have a shape that no built-in provider returns. Publishing checks whether they can be served.
            _log.exception("the metrics cannot be judged and are served unchanged")
            return fetched
        return replace(fetched, snapshots={**fetched.snapshots, **judged}, findings=(*fetched.findings, *findings))

    def _recall(self, detector: "AnomalyDetector") -> None:
        """Show the detector the snapshots that the previous run stored: the newest that can be read in 2 seconds."""
        began, recent = time.monotonic(), []
        for metrics in self._store.load_recent(detector.window, detector.depth, *self._sources):
            recent.append(metrics)
            if time.monotonic() - began > _RECALL_SECONDS:
                break
        for metrics in reversed(recent):
            detector.remember(metrics)
