"""Judge: hold a round against the ones before, those of the run before among them."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from watcher.findings import Action, Kind
from watcher.pipeline.round import Round
from watcher.quality.anomalies import AnomalyDetector
from watcher.store import Store

_log = logging.getLogger(__name__)
_RECALL_SECONDS = 2.0  # a big cluster's past must not hold up the first fetch


class Judge:
    """Marks or drops what the detector finds suspect.

    Args:
        detector: what knows the past.
        store: where the past of the run before is.
        sources: whose snapshots it consists of, the provider that is wanted first.
    """

    def __init__(self, detector: AnomalyDetector, store: Store, sources: Sequence[str]) -> None:
        self._detector = detector
        self._store = store
        self._sources = sources
        self._recalled = False

    def judge(self, fetched: Round) -> Round:
        """Return the round with what was found; a window that nothing is left of has failed."""
        self._recall()
        # What was dropped for a reason is not missing; that other things were mended explains nothing.
        known = [each for each in fetched.findings if each.action != Action.CLAMPED and each.kind is not Kind.BAD_LABEL]
        try:
            judged, found = self._detector.judge(
                fetched.timestamp, fetched.snapshots, fetched.newest, known, fetched.beside
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

    def _recall(self) -> None:
        """Make the kept snapshots part of the past, once, the newest if not all."""
        if self._recalled:
            return
        self._recalled = True
        began, kept = time.monotonic(), []
        for metrics in self._store.load_recent(self._detector.window, self._detector.depth, *self._sources):
            kept.append(metrics)
            if time.monotonic() - began > _RECALL_SECONDS:
                break
        for metrics in reversed(kept):
            self._detector.remember(metrics)
