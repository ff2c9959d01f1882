"""A real kube-scheduler as a process, and a parser for the scores in its log."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from control_plane.builds import binary
from control_plane.cluster import SCHEDULER, ControlPlane
from control_plane.processes import Process, numbered
from support.ports import start_on_free_ports

_VERBOSE = 10  # log level that includes every plugin's score for every node
_LINE = re.compile(
    r'"(?P<event>Attempting to schedule pod|OpportunisticBatch provided node hint|Plugin scored node for pod|'
    r'Extender scored node for pod|Calculated node\'s final score for pod)" pod="(?P<pod>[^"]+)"'
    r'(?: (?:plugin|extender)="(?P<plugin>[^"]+)")?(?: node="(?P<node>[^"]+)" score=(?P<score>-?\d+))?'
    r'(?: profile="[^"]+" cycleCount=\d+ hint="(?P<hint>[^"]+)")?'
)


@dataclass
class Attempt:
    """Scores in the log of one attempt to schedule a pod.

    Attributes:
        pod: ``namespace/name``.
        scores: plugin to node to score, normalized and multiplied by the plugin's weight. Empty if fewer than two
            nodes were feasible, because the scheduler then scores no node.
        extenders: URL of the extender to node to score, as the extender returned it.
        totals: node to its final score, the sum that decides.
        hint: node that an earlier attempt found best for equal pods, tried first and without scores; "" if there is
            none (feature gate OpportunisticBatching).
    """

    pod: str
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    extenders: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    hint: str = ""


class Scheduler:
    """A kube-scheduler or a program built from it. Use it as a context manager: it is ready when the block starts.

    Args:
        cluster: cluster to schedule in.
        profiles: profiles of the KubeSchedulerConfiguration; every node is scored unless a profile limits it.
        program: program to run, a key of :data:`control_plane.builds.PROGRAMS`.
        verbosity: log level; below 10 the log has no scores, and scheduling is several times as fast.
        configuration: further fields of the KubeSchedulerConfiguration, such as ``extenders``.

    Attributes:
        process: the process.
        log: file with its output.
        url: address of its health checks and metrics.
    """

    process: Process
    url: str

    def __init__(
        self,
        cluster: ControlPlane,
        profiles: list[Mapping[str, Any]],
        program: str = "kube-scheduler",
        verbosity: int = _VERBOSE,
        **configuration: Any,
    ) -> None:
        self._cluster = cluster
        self._program = program
        self._verbosity = verbosity
        self.log = numbered(cluster.folder, f"{program}.log")
        self._config = self.log.with_suffix(".yaml")
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(cluster.kubeconfig(SCHEDULER)), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "profiles": profiles,
            **configuration,
        }
        self._config.write_text(yaml.safe_dump(document))

    def __enter__(self) -> Self:
        self.process = start_on_free_ports(self._start)
        self.process.wait_until(self._is_ready, f"{self._program} schedules")
        return self

    def _start(self, port: int) -> Process:
        self.url = f"https://127.0.0.1:{port}"
        kubeconfig, certificate = self._cluster.kubeconfig(SCHEDULER), self._cluster.serving_certificate
        command = [
            binary(self._program), "--config", self._config, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--secure-port", str(port), "--bind-address", "127.0.0.1",
            "--tls-cert-file", certificate, "--tls-private-key-file", certificate, "-v", str(self._verbosity),
        ]  # fmt: skip
        return Process(command, self.log)

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def attempts(self) -> list[Attempt]:
        """Return the attempts in the log, in order."""
        return list(read_attempts(self.log))

    def _is_ready(self) -> bool:
        authority = str(self._cluster.certificates.certificate)
        return requests.get(f"{self.url}/readyz", verify=authority, timeout=60).ok


def read_attempts(log: Path) -> Iterator[Attempt]:
    """Yield the attempts in a log; their lines never mix, because a scheduler makes one attempt at a time."""
    attempt = Attempt("")
    with log.open(errors="replace") as lines:
        for line in lines:
            match = _LINE.search(line)
            if match is None:
                continue
            event, pod, plugin, node, score, hint = match.groups()
            if event == "Attempting to schedule pod":
                if attempt.pod:
                    yield attempt
                attempt = Attempt(pod)
                continue
            if pod != attempt.pod:
                raise ValueError(f"{log}: {pod} is scored while {attempt.pod} is being placed")
            if hint:
                attempt.hint = hint
            elif event.startswith("Calculated"):
                attempt.totals[node] = int(score)
            else:
                scores = attempt.scores if event.startswith("Plugin") else attempt.extenders
                scores.setdefault(plugin, {})[node] = int(score)
    if attempt.pod:
        yield attempt
