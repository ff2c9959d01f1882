"""Closed loop on a real control plane: hot nodes with and without this project, if pods do not use their requests.

There are 100 nodes simulated by KWOK, the real metrics-server, a watcher, and a stock kube-scheduler. Each node has a
resident pod, which stays all the time and uses 6 to 70 % of the node, whatever it requests. Other pods come and go: one
in five uses three times its request, the others a fifth of it. The same pods arrive in the same order in three runs:
kube-scheduler alone, kube-scheduler with the extender, and kube-scheduler alone with `trimaran nodes --taints`. A node
is hot while its pods use at least 80 % of its CPU. The use of a pod is set by an annotation, and the pods on each node
are observed every two seconds.

    python research/closed_loop.py [minutes [changing]] [run ...]

A run takes 20 minutes by default; windows and minimum times are much shorter than usual. With "changing", a fifth of
the resident pods exchange their use in the middle of the run, which no component can foresee. A word of a run's name
selects the run; by default all three take place.
"""

import heapq
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from control_plane.api import path_of
from control_plane.cluster import ControlPlane
from control_plane.extender import Extender
from control_plane.manifests import container, node, pod
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from control_plane.usage import CPU_ANNOTATION, MEMORY_ANNOTATION, Kwok, MetricsServer
from control_plane.varied import varied
from support.servers import Service

from trimaran.extender.answer import PrioritizeOutcome
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.plugins import DEFAULT_PLUGIN

NODES, CORES, HOT_PERCENT = 100, 8, 80
PODS_A_SECOND, SECONDS_OF_LIFE = 3, 200
WINDOW = "30s"
_TAINTS = {"interval_seconds": 3, "min_hot_seconds": 30, "max_hot_fraction": 0.5}
RUNS = ("kube-scheduler alone", "with the extender", "with soft taints alone")
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"score": {"enabled": [{"name": DEFAULT_PLUGIN, "weight": 1}]}},
        }
    ],
}


def using(name: str, milli_request: int, milli_use: int, node_name: str = "", mebibytes: int = 100) -> dict[str, Any]:
    """Return a v1 Pod whose CPU and memory use is set by annotations, independent of its requests.

    Args:
        name: name of the pod.
        milli_request: CPU request in millicores.
        milli_use: CPU use in millicores.
        node_name: node that the pod is bound to; "" for a pending pod.
        mebibytes: memory use in MiB.
    """
    annotations = {CPU_ANNOTATION: f"{milli_use}m", MEMORY_ANNOTATION: f"{mebibytes}Mi"}
    spec = {"nodeName": node_name} if node_name else {}
    return pod(
        name, container(requests={"cpu": f"{milli_request}m", "memory": "128Mi"}), annotations=annotations, **spec
    )


class Observer:
    """Thread that adds up the CPU use of the pods on each node every two seconds, and measures hot nodes.

    Attributes:
        hot_seconds: seconds that nodes were at 80 % of their CPU or more, added up over nodes.
        over_seconds: seconds that nodes were above 100 %, added up over nodes.
        peak: highest use of any node, percent.
        placed: number of pods with a node.
        waiting: number of pods without a node.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.hot_seconds = self.over_seconds = 0.0
        self.peak = 0.0
        self.placed = 0
        self.waiting = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(2):
            use = dict.fromkeys((f"node-{n}" for n in range(NODES)), 0.0)
            self.placed = self.waiting = 0
            for pod_ in self._cluster.api.items("/api/v1/pods"):
                name = pod_["spec"].get("nodeName")
                self.waiting += not name
                if name:
                    self.placed += 1
                    use[name] += float(pod_["metadata"]["annotations"][CPU_ANNOTATION].removesuffix("m"))
            now = time.monotonic()
            percents = [100 * milli / (1000 * CORES) for milli in use.values()]
            self.hot_seconds += (now - before) * sum(percent >= HOT_PERCENT for percent in percents)
            self.over_seconds += (now - before) * sum(percent > 100 for percent in percents)
            self.peak = max(self.peak, *percents)
            before = now


@contextmanager
def loop(folder: Path, run: str) -> Iterator[ControlPlane]:
    """Start the programs of a run, and yield the control plane.

    Args:
        folder: folder for the programs' files.
        run: one of :data:`RUNS`.
    """
    dice = random.Random(1)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(folder))
        kwok = stack.enter_context(Kwok(cluster))
        cluster.api.create(*(kwok.for_kwok(node(f"node-{n}", str(CORES), "32Gi")) for n in range(NODES)))
        for n in range(NODES):
            memory = dice.randint(6000, 16000)  # a watcher suspects a cluster that uses none
            cluster.api.create(using(f"resident-{n}", 1000, dice.randint(500, 5600), f"node-{n}", memory))
        metrics = stack.enter_context(MetricsServer(cluster))
        metrics.wait_for(NODES, 120)
        service = Service(
            folder / "watcher.sqlite", folder / "watch.log",
            "--provider", "KubernetesMetricsServer", "--interval", "5",
            TRIMARAN_PROVIDER__KUBE_CONFIG=str(cluster.kubeconfig()), TRIMARAN_WATCH__WINDOWS=WINDOW,
            TRIMARAN_WATCH__SAMPLE_INTERVAL_SECONDS="5",
        )  # fmt: skip
        stack.callback(service.kill)
        service.wait_for("/readyz")
        config: dict[str, Any] = {"profiles": [{"schedulerName": "default-scheduler"}]}
        if run == RUNS[1]:
            settings = {"extender__refresh_seconds": 2, "extender__deadline_seconds": 0.3}
            extender = stack.enter_context(Extender(cluster, CONFIGURATION, service.url, **settings))
            stack.callback(lambda: print(answers_of(extender), flush=True))
            config = render_config(CONFIGURATION, ExtenderEndpoint(extender.url))
        if run == RUNS[2]:
            command = [
                *varied("trimaran.soft_taints.settings:NodesSection", _TAINTS), "nodes", "--taints",
                "--watcher", service.url, "--port", "0",
                "--kube-config", str(cluster.kubeconfig()), "--set", "nodes.writes_per_minute=120",
                "--set", "cluster.lease_namespace=default", "--set", "nodes.hot_percent=70",
                "--set", "nodes.cool_percent=60",
            ]  # fmt: skip
            process = Process(command, folder / "nodes.log")
            stack.callback(process.terminate)
            time.sleep(40)  # two windows, so that all runs start alike
        else:
            time.sleep(40)
        extenders = {"extenders": config["extenders"]} if "extenders" in config else {}
        stack.enter_context(Scheduler(cluster, config["profiles"], verbosity=2, **extenders))
        yield cluster


def answers_of(extender: Extender) -> str:
    """Return a text with the number of the extender's answers of each outcome."""
    counts = {name: extender.outcome(name) for name in PrioritizeOutcome}
    return "answers: " + ", ".join(f"{count:.0f} {name}" for name, count in counts.items() if count)


def measure(run: str, minutes: float, *, changing: bool) -> Observer:
    """Carry out a run: start the programs, create and delete pods; return the observer with its measurements.

    Args:
        run: one of :data:`RUNS`.
        minutes: duration.
        changing: in the middle of the run, let a fifth of the resident pods exchange their use.
    """
    dice = random.Random(2)
    with tempfile.TemporaryDirectory() as folder, loop(Path(folder), run) as cluster, Observer(cluster) as observer:
        start, number, changed = time.monotonic(), 0, not changing
        ends: list[tuple[float, str]] = []
        while (passed := time.monotonic() - start) < 60 * minutes:
            while number < passed * PODS_A_SECOND:
                heavy, life = dice.random() < 0.2, dice.expovariate(1 / SECONDS_OF_LIFE)
                cluster.api.create(using(f"pod-{number}", 500, 1500 if heavy else 100))
                heapq.heappush(ends, (number / PODS_A_SECOND + life, f"pod-{number}"))
                number += 1
            while ends and ends[0][0] < passed:
                cluster.api.delete(f"/api/v1/namespaces/default/pods/{heapq.heappop(ends)[1]}")
            if not changed and passed > 30 * minutes:
                changed = True
                change_places(cluster)
            time.sleep(0.2)
    return observer


def change_places(cluster: ControlPlane) -> None:
    """Let every fifth resident pod take over the CPU use of the next of these pods."""
    residents = [cluster.api.get(f"/api/v1/namespaces/default/pods/resident-{n}") for n in range(0, NODES, 5)]
    uses = [resident["metadata"]["annotations"][CPU_ANNOTATION] for resident in residents]
    for resident, use in zip(residents, [*uses[1:], uses[0]], strict=True):
        cluster.api.patch(path_of(resident), {"metadata": {"annotations": {CPU_ANNOTATION: use}}})


def main() -> None:
    """Print a row for each run."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print(f"{NODES} nodes of {CORES} cores, {PODS_A_SECOND} pods a second that live {SECONDS_OF_LIFE} s on average")
    print(f"{minutes:g} minutes a run, window {WINDOW}\n")
    print("| run | pods at the end | hot node-minutes | above 100 % | fullest node |\n|---|---:|---:|---:|---:|")
    words = [word for word in sys.argv[2:] if word != "changing"]
    for run in (name for name in RUNS if not words or any(word in name for word in words)):
        observer = measure(run, minutes, changing="changing" in sys.argv)
        print(
            f"| {run} | {observer.placed - NODES} (waiting {observer.waiting}) | {observer.hot_seconds / 60:.1f} | "
            f"{observer.over_seconds / 60:.1f} | {observer.peak:.0f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
