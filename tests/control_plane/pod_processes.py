"""A stand-in for kubelets: pods of a namespace run as processes of this machine, with the commands of the image."""

import contextlib
import sys
import threading
from collections.abc import Sequence
from typing import Any, Self

import requests
from control_plane.cluster import ControlPlane
from control_plane.pods import PodRunner
from control_plane.processes import Process

_SECONDS = 0.2


class PodProcesses:
    """Thread that runs a process for each pod, reports its end in the pod's status, and stops it with the pod.

    Use it as a context manager. Only pods of the components that a test names are run; each has one container of our
    image. A deleted pod gets SIGTERM.

    Args:
        cluster: cluster with the pods.
        namespace: namespace of the pods.
        components: labels ``app.kubernetes.io/component`` of the pods to run.
        program: command that stands for ``trimaran``.

    Attributes:
        logs: output of the processes so far, by component.
    """

    def __init__(self, cluster: ControlPlane, namespace: str, *components: str, program: Sequence[str] = ()) -> None:
        self._cluster, self._namespace, self._components = cluster, namespace, components
        self._program = program or (sys.executable, "-m", "trimaran")
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._running: dict[str, Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.logs: dict[str, list[Any]] = {name: [] for name in components}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        for process in self._running.values():
            process.kill()

    def output(self, component: str) -> str:
        """Return what the processes of a component have written."""
        return "".join(log.read_text() for log in self.logs[component])

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS):
            pods = {each["metadata"]["name"]: each for each in self._cluster.api.items(self._pods)}
            for name in self._running.keys() - pods.keys():
                threading.Thread(target=self._running.pop(name).terminate, daemon=True).start()
            for name, pod in pods.items():
                component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
                if component not in self._components or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
                    continue
                if name not in self._running:
                    self._running[name] = self._started(pod)
                    self.logs[component].append(self._running[name].log)
                elif (status := self._running[name].status) is not None:
                    self._report(name, "Failed" if status else "Succeeded")

    def _started(self, pod: dict[str, Any]) -> Process:
        (container,) = pod["spec"]["containers"]
        environment = {each["name"]: each.get("value", self._namespace) for each in container.get("env", ())}
        job = {"kind": "Job", "metadata": pod["metadata"], "spec": {"template": {"spec": pod["spec"]}}}
        runner = PodRunner(self._cluster, [job], self._namespace)
        return runner.run(*self._program, *container["args"], **environment)

    def _report(self, name: str, phase: str) -> None:
        with contextlib.suppress(requests.HTTPError):  # the pod was deleted meanwhile
            self._cluster.api.patch(f"{self._pods}/{name}/status", {"status": {"phase": phase}})
