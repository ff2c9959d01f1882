"""Use of pods: the loop that measures pods, and the consumers of its rounds."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from watcher.settings import Settings
from watcher.store import Store
from watcher.telemetry import PodUseState
from watcher.usage.backfill import WorkloadBackfill
from watcher.usage.history.persistent_pod_use import PersistentPodUse
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.rounds import PodUseRounds

if TYPE_CHECKING:
    from watcher.usage.sources.api_pods import ApiPods
    from watcher.usage.sources.sources import PodUseSources


class PodUsage:
    """Loop that measures the use of pods, the learner of workloads with its backfill, and the last day of each pod.

    Args:
        settings: all settings.
        store: store of the learner's state and the pods' use, which the caller closes.
        source: name of the first provider, which the stored state belongs to.
        pods: source of the running pods, if this process follows them already; :meth:`stop` closes it.
        recommends: whether requests are recommended. Autoscalers are listed only for recommendations.
        clock: returns Unix seconds.

    Attributes:
        workloads: learner of the use of workloads.
        pods: use of each pod over the last day.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        source: str,
        *,
        pods: "ApiPods | None" = None,
        recommends: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        learned = settings.workloads
        self.workloads = LearnerService(store, source, rule=learned.rule, backfill_days=learned.backfill_days)
        self.pods = PersistentPodUse(store, source, self.workloads.courses)
        self._followed = pods
        self._backfill = WorkloadBackfill(settings, self.workloads)
        self._rounds = PodUseRounds(
            settings,
            [self.workloads, self.pods, self._backfill],  # in this order: the pods need the learner's result
            self._open_sources,
            clock,
            self.workloads if recommends else None,
        )
        self._is_started, self._lock = False, threading.Lock()

    def start(self) -> None:
        """Begin to measure in the background, unless ``workloads.enabled`` is off. Further calls do nothing."""
        with self._lock:
            if not self._is_started:
                self._rounds.start()
                self._is_started = True

    def stop(self) -> None:
        """Stop measuring and the backfill, and close all connections."""
        self._rounds.stop()
        self._backfill.stop()
        if self._followed is not None:
            self._followed.close()

    @property
    def state(self) -> PodUseState:
        """Result of the newest rounds."""
        return self._rounds.state

    @property
    def why_empty(self) -> str:
        """Reason why no round has measured pods yet."""
        return self._rounds.why_empty

    def _open_sources(self, settings: Settings) -> "PodUseSources":
        from watcher.usage.sources.sources import open_sources  # imports the HTTP client

        return open_sources(settings, self._followed)
