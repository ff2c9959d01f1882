"""The extender as a process, for use with a real kube-scheduler."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.processes import Process, numbered
from control_plane.scheduler import Scheduler
from control_plane.varied import varied

from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.extender.settings import ExtenderSection

#: A profile "load-aware" that scores with LoadVariationRiskBalancing and its default arguments.
LOAD_AWARE: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "load-aware",
            "plugins": {"score": {"enabled": [{"name": "LoadVariationRiskBalancing", "weight": 1}]}},
        }
    ],
}

_SECTION = "trimaran.extender.settings:ExtenderSection"
_CONSTANTS = {f"extender__{name}" for name in ExtenderSection.__class_vars__}
_SAMPLE = re.compile(r"^(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


class Extender:
    """A ``trimaran extender``. Use it as a context manager: it is ready when the block starts.

    Args:
        cluster: cluster with the nodes to score.
        configuration: KubeSchedulerConfiguration with Trimaran's plugins.
        watcher: address of the watcher; without one the extender embeds a watcher.
        file: TOML file with settings, which the extender reloads after each change.
        kubeconfig: kubeconfig of the extender; the administrator's by default.
        certificate: serving certificate for HTTPS; clients then need a client certificate.
        client_certificate: client certificate of the tests and, by default, of the scheduler.
        environment: environment variables in addition to those of this process.
        program: command that stands for ``trimaran``.
        settings: further settings, as ``section__key``, or constants of the section ``extender``.

    Attributes:
        process: the process.
    """

    process: Process

    def __init__(
        self,
        cluster: ControlPlane,
        configuration: Mapping[str, Any],
        watcher: str = "",
        file: Path | None = None,
        *,
        kubeconfig: Path | None = None,
        certificate: Path | None = None,
        client_certificate: Path | None = None,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "trimaran"),
        **settings: object,
    ) -> None:
        self._cluster = cluster
        self._configuration = configuration
        self._environment = environment
        self._client_certificate = client_certificate
        self._file = numbered(cluster.folder, "extender.yaml")
        self._file.write_text(yaml.safe_dump(dict(configuration)))
        if constants := {name: value for name, value in settings.items() if name in _CONSTANTS}:
            program = varied(_SECTION, {name.partition("__")[2]: value for name, value in constants.items()})
            settings = {name: value for name, value in settings.items() if name not in constants}
        self._command = [
            *program, "extender", "--config", str(self._file),
            "--kube-config", str(kubeconfig or cluster.kubeconfig()), "--port", "0",
        ]  # fmt: skip
        if file is None:
            settings = {"extender__mode": "active", **settings}
        else:
            self._command += ["--settings", str(file)]
        if watcher:
            self._command += ["--watcher", watcher]
        if certificate:
            settings |= {
                "server__certificate": certificate, "server__client_ca_file": cluster.certificates.certificate
            }  # fmt: skip
        for name, value in settings.items():
            self._command += ["--set", f"{name.replace('__', '.')}={value}"]

    @property
    def url(self) -> str:
        """Address of the extender."""
        return self.process.url

    def __enter__(self) -> Self:
        self.process = Process(self._command, self._file.with_suffix(".log"), self._environment)
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()

    def restart(self) -> None:
        """Kill the extender, and start it again on the same port; it is ready when the method returns."""
        self.process.restart()
        self._wait()

    def _wait(self) -> None:
        self.process.wait_until(lambda: self._get("/readyz").ok, "the extender is ready", 120)

    def scheduler(self, timeout: str = "500ms", certificate: Path | None = None, **options: Any) -> Scheduler:
        """Return a stock kube-scheduler that calls this extender, with the configuration from ``render_config``."""
        authority, client = str(self._cluster.certificates.certificate), str(certificate or self._client_certificate)
        files = (authority, client, client) if self.url.startswith("https") else ()
        rendered = render_config(self._configuration, ExtenderEndpoint(self.url, *files))
        rendered["extenders"][0]["httpTimeout"] = timeout
        return Scheduler(self._cluster, rendered["profiles"], extenders=rendered["extenders"], **options)

    def metrics(self) -> dict[str, float]:
        """Return the values of the extender's metrics, by series."""
        text = self._get("/metrics").text
        return {series: float(value) for series, value in _SAMPLE.findall(text)}

    def scores(self, pod: Mapping[str, Any], node_names: Sequence[str]) -> dict[str, int]:
        """Return the scores of the nodes for a pod, from ``POST /prioritize``."""
        arguments = {"Pod": pod, "NodeNames": list(node_names)}
        response = requests.post(f"{self.url}/prioritize", json=arguments, timeout=60, **self._tls)
        response.raise_for_status()
        return {priority["Host"]: priority["Score"] for priority in response.json()}

    def assumption_hits(self) -> tuple[int, int]:
        """Return the number of correct assumptions and the number of checked assumptions."""
        metrics = self.metrics()
        hits, misses = (int(metrics[f'trimaran_assumptions_total{{outcome="{name}"}}']) for name in ("hits", "misses"))
        return hits, hits + misses

    def outcome(self, name: str) -> float:
        """Return the number of answers with this outcome, from the extender's metrics."""
        return self.metrics()[f'trimaran_extender_answers_total{{outcome="{name}"}}']

    @property
    def _tls(self) -> dict[str, Any]:
        if not self.url.startswith("https"):
            return {}
        return {"verify": str(self._cluster.certificates.certificate), "cert": str(self._client_certificate)}

    def _get(self, path: str) -> requests.Response:
        return requests.get(f"{self.url}{path}", timeout=60, **self._tls)
