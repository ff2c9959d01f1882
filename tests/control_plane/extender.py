"""The extender as a process beside a real kube-scheduler."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from support.servers import free_port

from extender.kube_scheduler import Way, written

_SAMPLE = re.compile(r"^(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


class Extender:
    """A ``trimaran extender``. Use it as a context manager: it knows nodes and pods when the block starts.

    Args:
        cluster: whose nodes it scores.
        configuration: the KubeSchedulerConfiguration with plugins of ours.
        watcher: its watcher's address.
        file: a TOML file with settings, which it reads anew when it changes.
        settings: more of its settings, as ``section__key``.

    Attributes:
        process: the process.
        url: where it answers.
    """

    process: Process

    def __init__(
        self,
        cluster: ControlPlane,
        configuration: Mapping[str, Any],
        watcher: str,
        file: Path | None = None,
        **settings: object,
    ) -> None:
        self._cluster = cluster
        self._configuration = configuration
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._file = cluster.folder / f"extender-{port}.yaml"
        self._file.write_text(yaml.safe_dump(dict(configuration)))
        self._command = [
            sys.executable, "-m", "trimaran", "extender", "--config", str(self._file), "--watcher", watcher,
            "--kube-config", str(cluster.kubeconfig()), "--port", str(port),
        ]  # fmt: skip
        if file is not None:
            self._command += ["--settings", str(file)]
        for name, value in settings.items():
            self._command += ["--set", f"{name.replace('__', '.')}={value}"]

    def __enter__(self) -> Self:
        self.process = Process(self._command, self._file.with_suffix(".log"))
        self.process.wait_until(lambda: requests.get(f"{self.url}/readyz", timeout=5).ok, "the extender is ready", 40)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()

    def scheduler(self, timeout: str = "500ms", **options: Any) -> Scheduler:
        """Return a stock kube-scheduler that asks it, with the configuration that the product writes."""
        made = written(self._configuration, Way(self.url))
        made["extenders"][0]["httpTimeout"] = timeout
        return Scheduler(self._cluster, made["profiles"], extenders=made["extenders"], **options)

    def metrics(self) -> dict[str, float]:
        """Return what it counts, by series."""
        text = requests.get(f"{self.url}/metrics", timeout=10).text
        return {series: float(value) for series, value in _SAMPLE.findall(text)}

    def assumed(self) -> tuple[int, int]:
        """Return how many pods went where they were assumed, and of how many that is known."""
        found = self.metrics()
        hits, misses = (int(found[f'trimaran_assumptions_total{{outcome="{name}"}}']) for name in ("hits", "misses"))
        return hits, hits + misses

    def outcome(self, name: str) -> float:
        """Return how many answers came to be in a way."""
        return self.metrics()[f'trimaran_extender_answers_total{{outcome="{name}"}}']
