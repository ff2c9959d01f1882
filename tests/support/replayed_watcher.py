"""A watcher in its own process that measures pods of a replay's past: its clock is the end of the next round.

    python -m support.replayed_watcher PROMETHEUS STORE PORT PODS

The use of containers comes from a real Prometheus, the pods from manifests with the times of their lives. After kill -9
a new process continues with the round after the last stored one. It prints the time of each round that was learned.
"""

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.http.gather import Deadline
from runtime.server import service, serving
from runtime.server.fast_path import FastPath
from watcher.api.app import create_app
from watcher.pipeline.factory import open_watcher
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings, StoreSettings
from watcher.telemetry import WatcherTelemetry
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.manifests import ManifestReader
from watcher.usage.sources.pods import RunningPods
from watcher.usage.sources.sources import FirstWorking, PodUseSources

ROUND_SECONDS = 300


class PastPods:
    """Source of the pods that ran at a time; ``now`` is set for each round.

    Attributes:
        now: Unix seconds.
    """

    def __init__(self, lives: list[tuple[int, int, Mapping[str, Any]]]) -> None:
        self._lives, self._reader = lives, ManifestReader()
        self.now = 0

    def running(self, _deadline: Deadline) -> RunningPods:
        read = [self._reader.read(manifest) for start, end, manifest in self._lives if start < self.now < end]
        return {identity.key: pod for pod, identity in filter(None, read)}

    def capacity(self, _deadline: Deadline) -> None:
        return None

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


def start(address: str, store: Path, file: Path) -> FastPath:
    """Learn from one round after the other in the background; return the application that serves what is known."""
    past = json.loads(file.read_text())
    pods, settings = PastPods(past["lives"]), _settings(address, store)
    watcher = open_watcher(settings, store)
    sources = PodUseSources("Prometheus", PrometheusProvider(settings), FirstWorking([pods]))
    rounds = PodUseRounds(settings, [watcher.workloads], lambda _settings: sources, clock=lambda: pods.now)

    def learn() -> None:
        known = int(watcher.workloads.table().timestamp)
        for at in range(past["first"], past["last"] + 1, ROUND_SECONDS):
            if at > known:
                pods.now = at
                assert rounds.run_once(), rounds.state.failure
                sys.stdout.write(f"{at}\n")
                sys.stdout.flush()

    threading.Thread(target=learn, daemon=True).start()
    application = create_app(watcher, WatcherTelemetry()).wsgi_app
    assert isinstance(application, FastPath)
    return application


def _settings(address: str, store: Path) -> Settings:
    return Settings(provider=ProviderSettings(name="Prometheus", address=address), store=StoreSettings(path=store))


if __name__ == "__main__":
    prometheus, store_path, pods_file = sys.argv[1:]
    listener = serving.Listener(serving.listen("127.0.0.1", 0))
    sys.stdout.write(f"{service.url_of(listener)}\n")
    sys.stdout.flush()
    serving.serve(lambda: start(prometheus, Path(store_path), Path(pods_file)), [listener], threads=4)
