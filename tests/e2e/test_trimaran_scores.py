"""Scores of the upstream Trimaran scheduler, with metrics from our watcher, against the scores of ``scoring``.

The scheduler of sigs.k8s.io/scheduler-plugins requests ``/compat/watcher`` as it would request load-watcher. Each
score in its log is computed again, from the watcher's snapshot and the nodes and pods in the API.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from control_plane.api import Object, path_of
from control_plane.cluster import ControlPlane
from control_plane.scheduler import Scheduler
from control_plane.shapes import RUNTIME_CLASS, SHAPES, above_request, limits_alone, nodes, sidecar
from support.servers import Service

import client
from scoring import NodeTable, Pod, plugin_from_config

pytestmark = pytest.mark.e2e

NODES = 100
PODS = 2 * len(SHAPES)
# Arguments that differ from the plugins' defaults.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "TargetLoadPacking": {
        "targetUtilization": 55, "defaultRequests": {"cpu": "700m"}, "defaultRequestsMultiplier": "1.3",
    },
    "LoadVariationRiskBalancing": {"safeVarianceMargin": 1.5, "safeVarianceSensitivity": 2},
    "LowRiskOverCommitment": {"smoothingWindowSize": 3, "riskLimitWeights": {"cpu": 0.4, "memory": 0.7}},
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with a hundred mixed nodes and pods on some of them."""
    dice = random.Random(33)
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(RUNTIME_CLASS)
        cluster.api.create(*nodes(dice, NODES))
        old = [dice.choice((above_request, limits_alone, sidecar))(dice, f"old-{n}") for n in range(200)]
        for pod in old:
            pod["spec"]["nodeName"] = f"node-{dice.randrange(NODES)}"
        cluster.api.create(*old)
        yield cluster


def loads(dice: random.Random) -> Mapping[str, Any]:
    """Return random loads, idle to full and constant to varying; some nodes have only CPU, some no load."""
    result: dict[str, Any] = {}
    for number in range(NODES):
        cpu, memory = (
            {"average": dice.uniform(0, 100), "deviation": dice.choice((0, dice.uniform(0, 30)))} for _ in "12"
        )
        result[f"node-{number}"] = {"cpu": cpu, "memory": memory} if number % 9 else {"cpu": cpu}
    for number in range(5, NODES, 20):
        del result[f"node-{number}"]
    return result


def watching(watch: Callable[..., Service], folder: Path) -> Service:
    """Start a watcher that fetches only once during the test."""
    file = folder / "loads.json"
    file.write_text(json.dumps(loads(random.Random(7))))
    frozen = {"TRIMARAN_FAKE__FILE": str(file), "TRIMARAN_WATCH__EXPIRY_SECONDS": "3600"}
    service = watch("--provider", "Fake", "--interval", "3000", **frozen)
    service.wait_for("/readyz")
    return service


def profile(name: str, address: str) -> Object:
    """Return a profile with a single score plugin."""
    score_only = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": name}]}}
    return {
        "schedulerName": name,
        "plugins": {"multiPoint": {"enabled": [{"name": name}]}, **score_only},
        "pluginConfig": [{"name": name, "args": {"watcherAddress": address, **ARGUMENTS[name]}}],
    }


@pytest.mark.parametrize("name", ARGUMENTS)
def test_scores_equal_the_trimaran_schedulers(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path, name: str
) -> None:
    """Every score of upstream's plugin from our ``/compat/watcher`` equals the score of ``scoring``."""
    service = watching(watch, tmp_path)
    dice = random.Random(11)
    with Scheduler(cluster, [profile(name, f"{service.url}/compat")], "trimaran-scheduler") as scheduler:
        pods = [SHAPES[number % len(SHAPES)](dice, f"{name.lower()}-{number}") for number in range(PODS)]
        placed = [place(cluster, pod, scheduler, name) for pod in pods]
        attempts = {attempt.pod: attempt.scores.get(name, {}) for attempt in scheduler.attempts()}
    for pod in placed:
        cluster.api.delete(path_of(pod))

    table = NodeTable.from_k8s(cluster.api.items("/api/v1/nodes"))
    for pod in map(Pod.from_k8s, cluster.api.items("/api/v1/pods")):
        table.assume(pod, pod.node_name)  # upstream treats pods from before its start as just placed
    with client.connect(service.url) as watcher:
        plugin = plugin_from_config(name, ARGUMENTS[name]).prepare(table, watcher.metrics())
    rows: list[int] = []
    different = []
    for pod in map(Pod.from_k8s, placed):
        computed = plugin.score(pod)
        for node, logged in attempts[f"default/{pod.name}"].items():
            rows.append(logged)
            if computed[table.row(node)] != logged:
                different.append(f"{pod.name} on {node}: {logged}, computed {computed[table.row(node)]}")
        table.add(pod)
    assert not different, f"of {len(rows)} rows {len(different)} differ"
    assert len(rows) > NODES * PODS / 2
    assert len(set(rows)) > 20  # without metrics all scores would be the same


def place(cluster: ControlPlane, pod: Object, scheduler: Scheduler, scheduler_name: str) -> Object:
    """Create a pod; return it once it is placed and in upstream's cache of pods, which lags."""
    pod["spec"]["schedulerName"] = scheduler_name
    path = path_of(*cluster.api.create(pod))
    event = f'"Add event for scheduled pod" pod="default/{pod["metadata"]["name"]}"'
    scheduler.process.wait_until(lambda: event in scheduler.log.read_text(), event)
    return cluster.api.get(path)
