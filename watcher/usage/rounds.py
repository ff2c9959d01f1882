"""Rounds of pod use: every few minutes, read the use of all containers and the running pods for the observers.

The rounds have their own provider, connections, thread, deadline and memory budget, so that their failures do not
affect the metrics of nodes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from runtime.outage_log import OutageLog
from watcher.errors import ProviderError
from watcher.loop import Loop
from watcher.model import Window
from watcher.settings import Settings
from watcher.telemetry import PodUseState
from watcher.usage.gc_pause import gc_pause

if TYPE_CHECKING:
    from watcher.usage.learn.learner_service import LearnerService
    from watcher.usage.sources.pods import RunningPods, UseObserver
    from watcher.usage.sources.sources import PodUseSources
    from watcher.windows.container_use import ContainerUse

_log = logging.getLogger(__name__)
_DELAY_SECONDS = 5.0  # before the first round, so that nodes are fetched and served first
_ALLOWANCE_SECONDS = 30.0
_STOP_SECONDS = 3.0


def _open_sources(settings: Settings) -> "PodUseSources":
    from watcher.usage.sources.sources import open_sources  # imports the HTTP client

    return open_sources(settings)


class PodUseRounds:
    """Background loop that runs rounds of pod use.

    Args:
        settings: all settings.
        observers: consumers of each round's use, in order.
        sources: opens the provider and the sources of pods; called by the first round.
        clock: returns Unix seconds.
        learner: gets autoscalers and killed pods before the observers get a round; None to list neither.
    """

    def __init__(
        self,
        settings: Settings,
        observers: "Sequence[UseObserver]" = (),
        sources: "Callable[[Settings], PodUseSources]" = _open_sources,
        clock: Callable[[], float] = time.time,
        learner: "LearnerService | None" = None,
    ) -> None:
        self._settings, self._workloads = settings, settings.workloads
        self._observers, self._open, self._clock = tuple(observers), sources, clock
        self._learner = learner
        self._sources: PodUseSources | None = None
        self._state = PodUseState()
        self._outage = OutageLog(_log, "the use of pods cannot be measured", "the use of pods is measured again")
        self._recurrence: Callable[[RunningPods], float] | None = None
        most_seconds = self._workloads.timeout_seconds + _ALLOWANCE_SECONDS
        self._loop = Loop(self.run_once, self._workloads.interval_seconds, most_seconds)
        self._timer = threading.Timer(_DELAY_SECONDS, self._loop.start)
        self._timer.daemon = True

    @property
    def state(self) -> PodUseState:
        """Result of the newest rounds."""
        return self._state

    @property
    def why_empty(self) -> str:
        """Reason why no round has measured pods yet."""
        if not self._workloads.enabled:
            return "pods are not measured (workloads.enabled)"
        return self._state.failure or "the first round is not complete"

    def start(self) -> None:
        """Start the loop in the background after 5 seconds, unless ``workloads.enabled`` is off."""
        if self._workloads.enabled:
            self._timer.start()

    def stop(self) -> None:
        """Stop, and close all connections."""
        self._timer.cancel()
        self._loop.stop()
        if self._sources is not None:
            self._sources.close()
        self._loop.join(_STOP_SECONDS)

    def run_once(self) -> bool:
        """Run one round; return whether it succeeded. The background thread calls this method; tests may, too."""
        with gc_pause():
            return self._run_once()

    def _run_once(self) -> bool:
        began, now = time.monotonic(), int(self._clock())
        try:
            if self._sources is None:
                self._sources = self._open(self._settings)
            window = Window(f"{self._workloads.interval_seconds:g}s", now - int(self._workloads.interval_seconds), now)
            with use_budget(self._settings.watch.usage_budget()):
                deadline = Deadline.after(self._workloads.timeout_seconds)
                use, pods = self._sources.read(window, deadline)
                capacity = self._sources.pods.capacity(deadline)
                if self._learner is not None:
                    self._learner.note(self._sources.autoscaling(deadline), self._sources.pods.killed(deadline))
        except SettingsError as error:
            _log.info("the use of pods is not measured", extra={"reason": "; ".join(error.problems)})
            self._loop.stop()  # no later round could succeed
            self._state = replace(self._state, failure="; ".join(error.problems))
            return False
        except ProviderError as error:
            self._failed(str(error))
            return False
        except Exception as error:
            self._failed(f"the provider failed unexpectedly: {type(error).__name__}: {error}")
            raise  # the loop logs it
        for observer in self._observers:
            observer.observe(use, pods, capacity)
        self._succeeded(use, pods, time.monotonic() - began)
        return True

    def _failed(self, reason: str) -> None:
        if self._loop.is_stopped:
            return  # the provider was closed, which explains the failure
        self._outage.failed(reason)
        self._state = replace(self._state, failures=self._state.failures + 1, failure=reason)

    def _succeeded(self, use: "ContainerUse", pods: "RunningPods", seconds: float) -> None:
        import numpy as np

        from watcher.usage.learn.recurrence import Recurrence

        if self._recurrence is None:
            self._recurrence = Recurrence().update
        self._outage.worked()
        for finding in use.findings:
            _log.info("a problem with the use of pods", extra={"kind": finding.kind, "problem": finding.message})
        self._state = replace(
            self._state,
            timestamp=use.timestamp,
            seconds=seconds,
            containers=int(np.isfinite(use.cpu_cores).sum()),
            pods=len(pods),
            workloads=len({pod.template.workload for pod in pods.values()}),
            recurring_share=self._recurrence(pods),
            failure="",
        )
