"""Requests and QoS class of the same pods in every reader of pods.

``UNKNOWN`` is the table of what a reader cannot know, with what it takes instead.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from kubernetes.client import ApiClient
from support.servers import run_prometheus

from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession
from runtime.kubernetes import pod_demand, quantity
from runtime.kubernetes.manifests import parse_pods
from runtime.kubernetes.objects import CPU, MEMORY, Node, Pod, ResourceList
from runtime.kubernetes.qos import qos_class
from trimaran.cluster.object_reader import pod_reader
from trimaran.extender.decisions.manifest import pod_manifest
from trimaran.extender.wire import ExtenderArgs
from trimaran.simulator.cluster import Cluster
from trimaran.traces.reading import read_trace
from trimaran.traces.recording.assembly import assemble
from trimaran.traces.recording.history import PrometheusHistory
from trimaran.traces.recording.lifetimes import Lifetime
from trimaran.traces.recording.pods import PodSpec, specs_from_api, specs_from_kube_state_metrics
from trimaran.traces.recording.prometheus import DirectPrometheus
from trimaran.traces.trace import write_trace
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings
from watcher.usage.sources.kube_state_metrics import KubeStatePods
from watcher.usage.sources.manifests import ManifestReader
from watcher.usage.sources.pods import PodKey, RunningPod, requested

Manifest = dict[str, Any]
Amounts = tuple[int, int, str]  # millicores, MiB, QoS class
MEBI = 2**20


def named(name: str, cpu: str = "", memory: str = "", *, limited: bool = False, **fields: Any) -> Manifest:
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
    kinds = ("requests", "limits") if limited else ("requests",)
    return {"name": name, "resources": dict.fromkeys(kinds, requests) if requests else {}, **fields}


def pod(name: str, qos: str, *containers: Manifest, status: Manifest | None = None, **spec: Any) -> Manifest:
    """Return a pod as the API server has it."""
    owner = {"kind": "StatefulSet", "name": name, "controller": True, "uid": name, "apiVersion": "apps/v1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "ownerReferences": [owner]},
        "spec": {"nodeName": "node-1", "containers": list(containers), **spec},
        "status": {"phase": "Running", "qosClass": qos, **(status or {})},
    }


SIDECAR = named("mesh", "500m", "256Mi", limited=True, restartPolicy="Always")
MAIN = named("main", "1", "1Gi", limited=True)
RESIZED = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0,
           "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
           "allocatedResources": {"cpu": "3", "memory": "1Gi"}}  # fmt: skip
WHOLE = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
PODS: list[tuple[Manifest, Amounts]] = [
    (pod("plain", "Guaranteed", MAIN), (1000, 1024, "Guaranteed")),
    (pod("mesh", "Guaranteed", MAIN, initContainers=[SIDECAR]), (1500, 1280, "Guaranteed")),
    (pod("first", "Burstable", MAIN, initContainers=[SIDECAR, named("init", "4")]), (4500, 1280, "Burstable")),
    (pod("last", "Burstable", MAIN, initContainers=[named("init", "4"), SIDECAR]), (4000, 1280, "Burstable")),
    (pod("large", "Burstable", MAIN, initContainers=[named("init", "4", "8Gi")]), (4000, 8192, "Burstable")),
    (pod("whole", "Guaranteed", named("main", "1"), named("free"), resources=WHOLE), (2000, 4096, "Guaranteed")),
    (pod("partly", "Burstable", MAIN, resources={"requests": {"cpu": "2"}}), (2000, 1024, "Burstable")),
    (pod("free", "BestEffort", named("main")), (0, 0, "BestEffort")),
    (pod("mixed", "Burstable", MAIN, named("free")), (1000, 1024, "Burstable")),
    (pod("kata", "Guaranteed", MAIN, overhead={"cpu": "250m", "memory": "128Mi"}), (1250, 1152, "Guaranteed")),
    (pod("both", "Guaranteed", named("main"), overhead={"cpu": "250m"}, resources=WHOLE), (2250, 4096, "Guaranteed")),
    (pod("debug", "Guaranteed", MAIN, ephemeralContainers=[{"name": "debugger-x7k2p", "image": "busybox"}]),
     (1000, 1024, "Guaranteed")),
    (pod("resize", "Guaranteed", MAIN, status={"containerStatuses": [RESIZED]}), (3000, 1024, "Guaranteed")),
]  # fmt: skip
NAMES = [manifest["metadata"]["name"] for manifest, _ in PODS]

# What a reader cannot know, and what it takes for it: reader -> pod -> (millicores, MiB, QoS class).
SPECIFICATION_ONLY = {"resize": (1000, 1024, "Guaranteed")}  # a manifest in a file has no status
NO_ORDER = {"last": (4500, 1280, "Burstable")}  # init containers in no order: each may run with all sidecars
# A trace has one request and one limit for each pod, and no QoS class; a limit below the request is none.
ONE_LIMIT = {
    "resize": (3000, 1024, "Burstable"),
    "free": (1, 1, "Burstable"),  # enough for its use, which the trace has as a share of the request
}
UNKNOWN: dict[str, Mapping[str, Amounts]] = {
    "file": SPECIFICATION_ONLY,
    "template": SPECIFICATION_ONLY,
    "decision": {"resize": (1000, 1024, "Guaranteed")},  # a pod that is placed has not been resized
    "recording": ONE_LIMIT,
    # Without kube-scheduler's metrics, requests of the pod as a whole are unknown, too.
    "kube-state-metrics": {
        **NO_ORDER, **SPECIFICATION_ONLY, "whole": (1000, 0, "Guaranteed"), "partly": (1000, 1024, "Burstable"),
        "both": (250, 0, "Guaranteed"),
    },
    "kube-state-metrics, kube-scheduler": SPECIFICATION_ONLY,
}  # fmt: skip


def of(read: Pod) -> Amounts:
    return (
        pod_demand.in_tree_requests(read, CPU),
        pod_demand.in_tree_requests(read, MEMORY) // MEBI,
        qos_class(read),
    )


def as_written(manifest: Manifest) -> Manifest:
    """Return the manifest that a user would have applied."""
    name, owned = manifest["metadata"]["name"], {"namespace": "shop"}
    return {**{key: manifest[key] for key in ("apiVersion", "kind", "spec")}, "metadata": {"name": name, **owned}}


def from_client(manifest: Manifest) -> Any:
    """Return the object of the kubernetes client."""
    return ApiClient().deserialize(json.dumps(manifest), "V1Pod", "application/json")


def from_template(manifest: Manifest) -> Pod:
    template = {"spec": {key: each for key, each in manifest["spec"].items() if key != "nodeName"}}
    return Pod.from_k8s({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}})


def from_watch(manifest: Manifest) -> Pod:
    read = pod_reader().read(manifest)
    assert read is not None
    return read


def from_extender(manifest: Manifest) -> Pod:
    return ExtenderArgs.decode(json.dumps({"Pod": manifest, "NodeNames": ["node-1"]}).encode()).pod


def from_trace(specs: Mapping[PodKey, PodSpec], folder: Path) -> dict[str, Pod]:
    """Return the pods of a replay of a recording, by name."""
    node = Node("node-1", allocatable=ResourceList({CPU: 64_000, MEMORY: 2**38}))
    lives = [Lifetime(key, 0, 0, 61, np.zeros((2, 61))) for key in specs]
    world, _ = assemble("w", [node], lives, specs, minutes=61, warm_up_minutes=1, only_these_nodes=False)
    write_trace(world, folder)
    cluster = Cluster(read_trace(folder), (1.0, 1.0))
    return {name.partition("/")[2]: cluster.pod(number) for number, name in enumerate(cluster.trace.pods)}


READERS: dict[str, Callable[[Manifest], Pod]] = {
    "API": Pod.from_k8s,
    "client": lambda manifest: Pod.from_k8s(from_client(manifest)),
    "client's dict": lambda manifest: Pod.from_k8s(from_client(manifest).to_dict()),
    "file": lambda manifest: Pod.from_k8s(parse_pods(yaml.safe_dump(as_written(manifest)), "pods.yaml")[0]),
    "template": from_template,
    "watch": from_watch,
    "extender": from_extender,
    "decision": lambda manifest: Pod.from_k8s(pod_manifest(Pod.from_k8s(manifest))),
}


def expected(reader: str) -> dict[str, Amounts]:
    return {name: UNKNOWN.get(reader, {}).get(name, amounts) for name, (_, amounts) in zip(NAMES, PODS, strict=True)}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_manifests_counts_the_whole_pod(reader: str) -> None:
    """Each reader of manifests has kube-scheduler's requests and the API server's QoS class of each pod."""
    assert {name: of(READERS[reader](manifest)) for name, (manifest, _) in zip(NAMES, PODS, strict=True)} == (
        expected(reader)
    )


def test_a_recording_keeps_the_requests(tmp_path: Path) -> None:
    """The pods of a replayed recording request what they requested in the cluster."""
    replayed = from_trace(specs_from_api(manifest for manifest, _ in PODS), tmp_path / "trace")
    assert {name: of(each) for name, each in replayed.items()} == expected("recording")


def of_running(running: RunningPod, qos: str) -> Amounts:
    """Return the amounts of a pod of the watcher, which knows of QoS whether it is Guaranteed."""
    milli, memory = requested(running.template)
    return milli, memory // MEBI, qos if running.template.is_guaranteed == (qos == "Guaranteed") else "wrong"


@pytest.mark.parametrize("has_class", [True, False], ids=["reported class", "no class"])
def test_the_watcher_reads_manifests_like_kube_scheduler(has_class: bool) -> None:
    """The watcher's pods have the same requests, and the reported class or the one that follows from them."""
    reader, found = ManifestReader(), {}
    for name, (manifest, (*_, qos)) in zip(NAMES, PODS, strict=True):
        status = {key: each for key, each in manifest["status"].items() if has_class or key != "qosClass"}
        read = reader.read({**manifest, "status": status})
        assert read is not None
        found[name] = of_running(read[0], qos)
    assert found == expected("watcher")


def add_containers(name: str, spec: Manifest, add: Callable[..., None]) -> None:
    for field, kind in (("containers", "container"), ("initContainers", "init_container")):
        for each in spec.get(field, ()):
            labels = f'pod="{name}",container="{each["name"]}"'
            policy = f',restart_policy="{each["restartPolicy"]}"' if "restartPolicy" in each else ""
            add(f"kube_pod_{kind}_info", labels + policy)
            for which, amounts in each["resources"].items():
                for resource, amount in amounts.items():
                    metric = f"kube_pod_{kind}_resource_{which}"
                    add(metric, f'{labels},resource="{resource}"', quantity.nano_value(amount) / 1e9)


def series(*, has_scheduler: bool) -> dict[str, list[tuple[str, float]]]:
    """Return what kube-state-metrics, and kube-scheduler, export of the pods."""
    found: dict[str, list[tuple[str, float]]] = {}

    def add(metric: str, labels: str, value: float = 1) -> None:
        found.setdefault(metric, []).append((labels, value))

    for manifest, _ in PODS:
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        add("kube_pod_info", f'pod="{name}",node="node-1",created_by_kind="StatefulSet",created_by_name="{name}"')
        add("kube_pod_status_phase", f'pod="{name}",phase="Running"')
        add("kube_pod_status_qos_class", f'pod="{name}",qos_class="{manifest["status"]["qosClass"]}"')
        add_containers(name, spec, add)
        overhead = {"cpu": "kube_pod_overhead_cpu_cores", "memory": "kube_pod_overhead_memory_bytes"}
        for resource, amount in spec.get("overhead", {}).items():
            add(overhead[resource], f'pod="{name}"', quantity.nano_value(amount) / 1e9)
        if has_scheduler:
            desired = Pod.from_k8s({**manifest, "status": {}})
            for resource, scale in ((CPU, 1000), (MEMORY, 1)):
                labels = f'pod="{name}",resource="{resource}"'
                if amount := pod_demand.in_tree_requests(desired, resource):
                    add("kube_pod_resource_request", labels, amount / scale)
    return found


@pytest.fixture(params=["kube-state-metrics", "kube-state-metrics, kube-scheduler"])
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    at = int(time.time()) - 30
    lines = [
        line
        for metric, rows in series(has_scheduler="kube-scheduler" in request.param).items()
        for line in (f"# TYPE {metric} gauge\n", *(f'{metric}{{namespace="shop",{key}}} {v} {at}\n' for key, v in rows))
    ]
    with run_prometheus(tmp_path, lines) as url:
        yield request.param, url


@pytest.mark.server
@pytest.mark.usefixtures("closed_sessions")
def test_pods_of_kube_state_metrics_are_the_same(exported: tuple[str, str]) -> None:
    """The watcher and a recording have the same requests from kube-state-metrics, but for what it does not export."""
    reader, url = exported
    provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
    running = KubeStatePods(provider.series, "").running(Deadline.after(10))
    classes = {name: amounts[2] for name, (_, amounts) in zip(NAMES, PODS, strict=True)}
    assert {key.name: of_running(each, classes[key.name]) for key, each in running.items()} == expected(reader)
    provider.close()
    with BoundedSession(lambda request: request) as session:
        history = PrometheusHistory(DirectPrometheus(session, url), int(time.time()) - 3600, 60)
        recorded = specs_from_kube_state_metrics(history, [PodKey("shop", name) for name in NAMES], "")
    wanted = {name: amounts[:2] for name, amounts in expected(reader).items()}
    assert {key.name: (each.requests[0], each.requests[1] // MEBI) for key, each in recorded.items()} == wanted
