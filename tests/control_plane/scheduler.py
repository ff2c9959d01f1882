"""A real scheduler as a process, and what its log says about every score it gave."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from control_plane.builds import binary
from control_plane.cluster import SCHEDULER, ControlPlane
from control_plane.processes import Process
from support.servers import free_port

_VERBOSE = 10  # from here on the log has every plugin's score for every node
_LINE = re.compile(
    r'"(?P<what>Attempting to schedule pod|Plugin scored node for pod|Extender scored node for pod|'
    r'Calculated node\'s final score for pod)" pod="(?P<pod>[^"]+)"'
    r'(?: (?:plugin|extender)="(?P<plugin>[^"]+)")?(?: node="(?P<node>[^"]+)" score=(?P<score>-?\d+))?'
)


@dataclass
class Attempt:
    """What the log says of one attempt to place a pod.

    Attributes:
        pod: ``namespace/name``.
        scores: plugin to node to score, as it counts: normalized and times the plugin's weight. Empty when there was
            nothing to choose: fewer than two nodes were feasible.
        extenders: extender's URL to node to score, as the extender gave it.
        totals: node to the sum that the choice was made by.
    """

    pod: str
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    extenders: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)


class Scheduler:
    """A kube-scheduler, or one built from its parts. Use it as a context manager: it schedules when the block starts.

    Args:
        cluster: where it schedules.
        profiles: of its KubeSchedulerConfiguration; every node is scored unless a profile says otherwise.
        program: what to run, of :data:`control_plane.builds.PROGRAMS`.
        verbosity: of its log; below 10 there are no scores in it, and it schedules several times as fast.
        configuration: more of its KubeSchedulerConfiguration, such as ``extenders``.

    Attributes:
        process: the process.
        log: the file with its output.
        url: where it tells its health and metrics.
    """

    process: Process

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
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        name = f"{program}-{self._port}"
        self.log = cluster.folder / f"{name}.log"
        self._config = cluster.folder / f"{name}.yaml"
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(cluster.kubeconfig(SCHEDULER)), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "profiles": profiles,
            **configuration,
        }
        self._config.write_text(yaml.safe_dump(whole))

    def __enter__(self) -> Self:
        kubeconfig, certificate = self._cluster.kubeconfig(SCHEDULER), self._cluster.serving_certificate
        command = [
            binary(self._program), "--config", self._config, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--secure-port", str(self._port), "--bind-address", "127.0.0.1",
            "--tls-cert-file", certificate, "--tls-private-key-file", certificate, "-v", str(self._verbosity),
        ]  # fmt: skip
        self.process = Process(command, self.log)
        self.process.wait_until(self._is_ready, f"{self._program} schedules")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def attempts(self) -> list[Attempt]:
        """Return what the log says of each attempt, in the order in which they were made."""
        return list(read_attempts(self.log))

    def _is_ready(self) -> bool:
        authority = str(self._cluster.certificates.certificate)
        return requests.get(f"{self.url}/readyz", verify=authority, timeout=5).ok


def read_attempts(log: Path) -> Iterator[Attempt]:
    """Read the attempts in a log. A scheduler makes one after the other, so their lines never mix."""
    attempt = Attempt("")
    with log.open(errors="replace") as lines:
        for line in lines:
            found = _LINE.search(line)
            if found is None:
                continue
            what, pod, plugin, node, score = found.groups()
            if what == "Attempting to schedule pod":
                if attempt.pod:
                    yield attempt
                attempt = Attempt(pod)
                continue
            if pod != attempt.pod:
                raise ValueError(f"{log}: {pod} is scored while {attempt.pod} is being placed")
            if what.startswith("Calculated"):
                attempt.totals[node] = int(score)
            else:
                scores = attempt.scores if what.startswith("Plugin") else attempt.extenders
                scores.setdefault(plugin, {})[node] = int(score)
    if attempt.pod:
        yield attempt
