"""Judge: hold a round against the ones before, those of the run before among them."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from watcher.findings import Action, Kind
from watcher.pipeline.round import Round
from watcher.store import Store

if TYPE_CHECKING:
    from watcher.quality.anomalies import AnomalyDetector

_log = logging.getLogger(__name__)
_RECALL_SECONDS = 2.0  # a big cluster's past must not hold up the first fetch


class Judge:
    """Marks or drops what the detector finds suspect.

    Args:
        detector: makes what knows the past, at the first round: what it is made of takes long to import.
        store: where the past of the run before is.
        sources: whose snapshots it consists of, the provider that is wanted first.
    """

    def __init__(self, detector: "Callable[[], AnomalyDetector]", store: Store, sources: Sequence[str]) -> None:
        self._make = detector
        self._detector: AnomalyDetector | None = None
        self._store = store
        self._sources = sources

    def judge(self, fetched: Round) -> Round:
        """Return the round with what was found; a window that nothing is left of has failed."""
        if self._detector is None:
            self._detector = self._make()
            self._recall(self._detector)
        # What was dropped for a reason is not missing; that other things were mended explains nothing.
        known = [each for each in fetched.findings if each.action != Action.CLAMPED and each.kind is not Kind.BAD_LABEL]
        try:
            judged, found = self._detector.judge(
                fetched.timestamp, fetched.snapshots, fetched.newest, known, fetched.second_source
            )
        except Exception:  # noqa: BLE001
            # A shape that no provider of ours gives metrics; whether they can be published, publishing tells.
            _log.exception("the metrics cannot be judged and are served as they are")
            return fetched
        reason = f"{self._sources[0]} returned no node whose metrics are beyond suspicion (quality.*_action)"
        lost = {name: reason for name in fetched.snapshots if name not in judged}
        return replace(
            fetched, snapshots={**fetched.snapshots, **judged}, findings=(*fetched.findings, *found)
        ).with_failures(lost)

    def _recall(self, detector: "AnomalyDetector") -> None:
        """Make the kept snapshots part of the past, the newest if not all."""
        began, kept = time.monotonic(), []
        for metrics in self._store.load_recent(detector.window, detector.depth, *self._sources):
            kept.append(metrics)
            if time.monotonic() - began > _RECALL_SECONDS:
                break
        for metrics in reversed(kept):
            detector.remember(metrics)
