"""One round of pod use of a large cluster: processor time and memory of the watcher's process.

5,000 nodes, 100,000 pods of 8,000 workloads, one of them with 20,000 pods; every fifth pod has a sidecar. Prometheus is
a real one, with eleven samples of each series of cAdvisor; the metrics API and kube-state-metrics, from which a watcher
that may not list pods reads them, are answers of this size over HTTP. Each row is a process of its own; memory is the
highest of its whole life, with the interpreter, its imports and the running pods. Baseline: one query for each
resource, with all labels, parsed into JSON objects.

    python benchmarks/pod_use.py [pods]

Needs Prometheus (apt-get install prometheus).
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from common import Table

from watcher.providers.prometheus.container_labels import CPU_SERIES
from watcher.providers.prometheus.pod_use import MEMORY_SERIES

WORKLOADS, LARGEST, NAMESPACES = 8_000, 0.2, 200
SAMPLES, STEP_SECONDS = 11, 30
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
ROUNDS = 3


def pods(count: int) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield namespace, ReplicaSet, name and containers of each pod."""
    for number in range(count):
        workload = 0 if number < LARGEST * count else 1 + number % (WORKLOADS - 1)
        replica_set = f"workload-{workload}-6d8f7c9b5"
        suffix = "".join(LETTERS[number // len(LETTERS) ** power % len(LETTERS)] for power in range(5))
        containers = ("main", "proxy") if number % 5 == 0 else ("main",)
        yield f"team-{workload % NAMESPACES}", replica_set, f"{replica_set}-{suffix}", containers


def history(count: int, end: int) -> Iterator[str]:
    """Yield the series of cAdvisor with the labels that a kubelet gives them, in OpenMetrics text."""
    for metric, kind in (
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_working_set_bytes", "gauge"),
    ):
        yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
        for number, (namespace, _, name, containers) in enumerate(pods(count)):
            for container in containers:
                labels = (
                    f'namespace="{namespace}",pod="{name}",container="{container}",id="/kubepods.slice/{number:036x}",'
                    f'image="registry.example.com/team/app:1",name="{number:064x}",node="node-{number % 5000}",'
                    f'instance="10.0.{number % 5000 // 256}.{number % 256}:10250",job="kubelet"'
                )
                for sample in range(SAMPLES):
                    before = STEP_SECONDS * (SAMPLES - 1 - sample)
                    value = 1e5 - before * (number % 40) / 20 if kind == "counter" else 2**20 * (50 + number % 900)
                    yield f"{metric}{{{labels}}} {value} {end - before}\n"


def pod_metrics(count: int) -> bytes:
    """Return the list of PodMetrics that metrics-server sends."""
    items = [
        {
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-11-25T12:00:00Z",
                         "labels": {"app": replica_set, "pod-template-hash": "6d8f7c9b5"}},
            "timestamp": "2026-11-25T12:00:00Z", "window": "15s",
            "containers": [{"name": each, "usage": {"cpu": f"{number * 7919 % 10**9}n", "memory": f"{number + 9}Ki"}}
                           for each in containers],
        }
        for number, (namespace, replica_set, name, containers) in enumerate(pods(count))
    ]  # fmt: skip
    metadata = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
    return json.dumps({**metadata, "items": items}).encode()


def vector(rows: Iterable[tuple[dict[str, str], str]]) -> bytes:
    """Return series with their values as Prometheus sends them."""
    result = [{"metric": labels, "value": [1, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def kube_state_metrics(count: int) -> dict[str, bytes]:
    """Return Prometheus' answers to the queries of kube-state-metrics, by metric."""
    every = list(pods(count))
    keys = [{"namespace": namespace, "pod": name} for namespace, _, name, _ in every]
    owners = [{"created_by_kind": "ReplicaSet", "created_by_name": replica_set} for _, replica_set, _, _ in every]
    parents = {(namespace, replica_set) for namespace, replica_set, _, _ in every}
    containers = [
        {**key, "container": name} for key, (_, _, _, names) in zip(keys, every, strict=True) for name in names
    ]
    resources = vector((labels, "0.5") for labels in containers)
    return {
        "kube_pod_info": vector(({**key, "node": "n", **owner}, "1") for key, owner in zip(keys, owners, strict=True)),
        "kube_pod_status_phase": vector((key, "1") for key in keys),
        "kube_pod_start_time": vector((key, "1700000000") for key in keys),
        "kube_pod_labels": vector(({**key, "label_pod_template_hash": "6d8f7c9b5"}, "1") for key in keys),
        "kube_job_owner": vector([]),
        "kube_replicaset_owner": vector(
            ({"namespace": namespace, "replicaset": name, "owner_kind": "Deployment", "owner_name": name[:-10]}, "1")
            for namespace, name in parents
        ),
        "kube_pod_container_resource_requests": resources,
        "kube_pod_container_resource_limits": resources,
    }


def running_pods(count: int) -> dict[object, object]:
    """Return the running pods, read from manifests as a list of the API server has them."""
    from watcher.workloads.manifests import ManifestReader

    reader, running = ManifestReader(), {}
    for namespace, replica_set, pod, containers in pods(count):
        resources = {"requests": {"cpu": "500m", "memory": "256Mi"}}
        manifest = {
            "metadata": {"namespace": namespace, "name": pod, "labels": {"pod-template-hash": "6d8f7c9b5"},
                         "ownerReferences": [{"kind": "ReplicaSet", "name": replica_set, "controller": True}]},
            "spec": {"nodeName": "n", "containers": [{"name": each, "resources": resources} for each in containers]},
            "status": {"startTime": "2026-11-25T12:00:00Z"},
        }  # fmt: skip
        read, identity = reader.read(manifest)
        running[identity.key] = read
    return running


def rounds_of(settings: object, provider: object, count: int, end: int) -> Callable[[], int]:
    """Return a function that runs a round and returns the number of containers with a known use."""
    from watcher.pipeline.pod_use import PodUseRounds
    from watcher.workloads.sources import PodUseSources

    running, seen = running_pods(count), []
    workloads = len({replica_set for _, replica_set, _, _ in pods(count)})

    class Pods:
        problems = ()

        def running(self, _deadline: object) -> object:
            return dict(running)

        def close(self) -> None: ...

    class Observer:
        def observe(self, use: object, _pods: object) -> None:
            seen[:] = [use]

    rounds = PodUseRounds(
        settings, [Observer()], lambda _settings: PodUseSources("", provider, Pods()), clock=lambda: end
    )

    def run_round() -> int:
        assert rounds.run_once(), rounds.state.failure
        assert not seen[0].findings, seen[0].findings
        assert rounds.state.workloads == workloads
        return rounds.state.containers

    return run_round


def measure(mode: str, address: str, count: int, end: int) -> None:
    """Measure in this process; print processor seconds, seconds and containers of the best round, and peak MB."""
    from runtime.http.budget import use_budget
    from runtime.http.gather import Deadline
    from watcher.providers.base import open_provider
    from watcher.settings import ProviderSettings, Settings, WorkloadSettings
    from watcher.workloads.collector import paused_collector
    from watcher.workloads.kube_state_metrics import KubeStatePods

    workloads = WorkloadSettings(timeout_seconds=600)  # for a machine that is busy with the server, too
    name = "KubernetesMetricsServer" if mode == "metrics API" else "Prometheus"
    settings = Settings(provider=ProviderSettings(name=name, address=address), workloads=workloads)
    provider = open_provider(settings)

    def read_pods() -> int:
        with use_budget(workloads.budget()), paused_collector():  # as in a round
            found = KubeStatePods(provider.series, "").running(Deadline.after(600))
        return sum(len(pod.template.containers) for pod in found.values())

    def query_all() -> int:
        values = {}
        for promql in (f"rate({CPU_SERIES}[5m] @ {end})", f"{MEMORY_SERIES} @ {end}"):
            for labels, value in list(provider.series(promql, Deadline.after(600))):
                values.setdefault((labels["namespace"], labels["pod"], labels["container"]), []).append(value)
        return len(values)

    calls = {"kube-state-metrics": read_pods, "baseline": query_all}
    call = calls.get(mode) or rounds_of(settings, provider, count, end)
    results = []
    for _ in range(ROUNDS):
        began, used = time.time(), time.process_time()
        containers = call()
        results.append((time.process_time() - used, time.time() - began, containers))
    print(json.dumps([*min(results), peak_megabytes()]))


def peak_megabytes() -> float:
    """Return the highest memory of this process. getrusage would include that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def run(table: Table, mode: str, address: str, count: int, end: int) -> None:
    command = [sys.executable, __file__, "--measure", mode, address, str(count), str(end)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    processor, seconds, containers, megabytes = json.loads(output.splitlines()[-1])
    table.row(mode, f"{containers:,}", f"{processor:.2f}", f"{seconds:.2f}", f"{megabytes:.0f}")


def main(count: int) -> None:
    from support.servers import reply, run_prometheus, serving

    end = int(time.time()) - 10
    table = Table(f"{count:,} pods, best of {ROUNDS} rounds", ["source", "containers", "processor s", "s", "peak MB"])
    body = pod_metrics(count)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, body)

    answers = kube_state_metrics(count)

    def answer_query(handler: BaseHTTPRequestHandler) -> None:
        (promql,) = parse_qs(urlsplit(handler.path).query)["query"]
        reply(handler, next(body for metric, body in answers.items() if f"({metric}{{" in promql))

    with serving(answer) as fake:
        run(table, "metrics API", fake.url, count, end)
    with serving(answer_query) as fake:
        run(table, "kube-state-metrics", fake.url, count, end)
    with tempfile.TemporaryDirectory() as folder, run_prometheus(Path(folder), history(count, end)) as url:
        run(table, "Prometheus", url, count, end)
        run(table, "baseline", url, count, end)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        mode, address, size, at = sys.argv[2:]
        measure(mode, address, int(size), int(at))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
