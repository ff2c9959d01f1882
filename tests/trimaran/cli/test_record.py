"""``trimaran record``: recording from a fake Kubernetes API and a real Prometheus, and replay of the trace."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.fake_kubernetes import FakeKubernetes, node, pod, run_fake_kubernetes
from support.servers import reply, run_prometheus, serving

from trimaran.cli.main import main
from trimaran.traces.reading import read_trace
from trimaran.traces.recording.history import Span
from trimaran.traces.recording.lifetimes import UsageCollector
from trimaran.traces.recording.pods import specs_from_api
from trimaran.traces.trace import Trace

MINUTES = 180
GIB = 1024**3
NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}


@dataclass(frozen=True)
class Recorded:
    """Sources of a recording."""

    kubernetes: FakeKubernetes
    config: Path
    prometheus: str
    end: int

    def run(self, *arguments: object) -> Result:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.end))
        sources = ("--prometheus", self.prometheus, "--kube-config", self.config, "--until", until)
        asked = ("--last", f"{MINUTES}m", "--warm-up", "60m")
        return CliRunner().invoke(main, ["record", *map(str, (*sources, *asked, *arguments))])


def owned_pod(name: str, node_name: str, kind: str, owner: str, cpu: str, memory: str, **labels: str) -> dict[str, Any]:
    """Return a pod with an owner, and one container with requests."""
    manifest = pod(name, node_name, namespace="shop")
    manifest["metadata"] |= {
        "labels": labels,
        "ownerReferences": [{"kind": kind, "name": owner, "uid": f"uid-of-{owner}", "controller": True}],
    }
    resources = {"requests": {"cpu": cpu, "memory": memory}} if cpu else {}
    manifest["spec"]["containers"][0]["resources"] = resources
    return manifest


def history(begin: int) -> Iterator[str]:
    """Yield metrics of cAdvisor and kube-state-metrics about six pods, in OpenMetrics text.

    web uses half a core, and a whole core in its last hour; batch runs from minute 60 to 100; idle has no requests;
    logs belongs to a DaemonSet; old is deleted, and only in kube-state-metrics; stranger is in neither source.
    """
    lives = {"web-5f7c9d-aaaaa": (-10, MINUTES + 1), "batch-28391040-x": (60, 100), "idle": (0, MINUTES + 1),
             "logs-1": (0, MINUTES + 1), "old-0": (0, 50), "stranger": (5, 15)}  # fmt: skip
    cores = {"web-5f7c9d-aaaaa": 0.5, "batch-28391040-x": 2.0, "idle": 0.01, "logs-1": 0.1, "old-0": 1.5, "stranger": 1}
    yield "# TYPE container_cpu_usage_seconds counter\n"
    for name, (start, end) in lives.items():
        used = 0.0
        for minute in range(start, end):
            for container in ("main", "POD"):
                labels = f'namespace="shop",pod="{name}",container="{container}"'
                yield f"container_cpu_usage_seconds_total{{{labels}}} {used} {begin + 60 * minute}\n"
            used += 60 * (2 if name.startswith("web") and minute >= 120 else 1) * cores[name]
    yield "# TYPE container_memory_working_set_bytes gauge\n"
    for name, (start, end) in lives.items():
        for minute in range(start, end):
            for container in ("main", "POD"):
                labels = f'namespace="shop",pod="{name}",container="{container}"'
                used = 1e300 if name == "idle" and minute == 30 and container == "main" else GIB  # an impossible value
                yield f"container_memory_working_set_bytes{{{labels}}} {used} {begin + 60 * minute}\n"
    yield f'container_memory_working_set_bytes{{id="/docker/1",container="main"}} {GIB} {begin + 60}\n'  # without a pod
    infos = {
        "kube_pod_info": ['pod="old-0",node="a",created_by_kind="ReplicaSet",created_by_name="old-6d8"'],
        "kube_replicaset_owner": ['replicaset="old-6d8",owner_kind="Deployment",owner_name="old"'],
        "kube_pod_container_resource_requests": [
            'pod="old-0",container="main",resource="cpu",instance="one"',
            'pod="old-0",container="main",resource="cpu",instance="two"',
            'pod="old-0",container="side",resource="cpu"',
            'pod="old-0",container="main",resource="memory"',
        ],
        # Only one of two containers has limits, so the pod has none.
        "kube_pod_container_resource_limits": [
            'pod="old-0",container="main",resource="memory"', 'pod="old-0",container="main",resource="cpu"',
        ],
    }  # fmt: skip
    for name, series in infos.items():
        yield f"# TYPE {name} gauge\n"
        for labels in series:
            value = 2 * GIB if "memory" in labels else 1
            for minute in range(50):
                yield f'{name}{{namespace="shop",{labels}}} {value} {begin + 60 * minute}\n'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("record")
    end = int(time.time()) // 60 * 60 - 120
    nodes = {"a": node("a", pool="web"), "b": node("b", cpu="8")}
    pods = [
        owned_pod("web-5f7c9d-aaaaa", "a", "ReplicaSet", "web-5f7c9d", "1", "2Gi", **{"pod-template-hash": "5f7c9d"}),
        owned_pod("batch-28391040-x", "b", "Job", "batch-28391040", "4", "4Gi"),
        owned_pod("idle", "b", "StatefulSet", "idle", "", ""),
        owned_pod("logs-1", "a", "DaemonSet", "logs", "500m", "1Gi"),
        owned_pod("huge", "", "Job", "huge", "1e18", "1Gi"),  # never runs; it must not break the recording
    ]
    objects = {"nodes": nodes, "pods": {f"shop/{each['metadata']['name']}": each for each in pods}}
    with (
        run_prometheus(folder, history(end - 60 * MINUTES)) as prometheus,
        run_fake_kubernetes(folder, **objects) as kubernetes,
    ):
        yield Recorded(kubernetes, kubernetes.kube_config(), prometheus, end)


@pytest.fixture(scope="module")
def trace(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("traces") / "yesterday"
    result = recorded.run(folder)
    assert result.exit_code == 0, result.output
    summary = (
        "2 nodes, 4 pods, 180 minutes, 1 DaemonSet and static pods subtracted from their nodes, "
        "1 pods without a CPU or memory request"
    )
    assert summary in result.stdout
    assert "1 pods" in result.stderr
    assert "shop/stranger" in result.stderr
    assert "namespace and pod" in result.stderr
    return read_trace(folder)


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({}, 1000),
        ({"resources": {"limits": {"cpu": "3"}}}, 3000),
        ({"initContainers": [{"name": "s", "restartPolicy": "Always"}]}, -1),
        ({"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}]}, 2000),
        ({"initContainers": [{"name": "i"}]}, 1000),
    ],
)
def test_the_limit_of_a_pod_is_that_of_all_that_runs(spec: dict[str, Any], limit: int) -> None:
    """Limits of the pod as a whole come first; sidecars count as containers, other init containers do not."""
    manifest = pod("web")
    manifest["spec"] = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}], **spec}
    (found,) = specs_from_api([manifest]).values()
    assert found.limits[0] == limit


@pytest.mark.server
def test_pods_have_their_owners_requests_and_limits(trace: Trace) -> None:
    """Owners, requests and limits come from the Kubernetes API or from kube-state-metrics."""
    rows = dict(
        zip(
            trace.pods,
            zip(trace.owner_kinds, trace.owners, trace.cpu_request_milli.tolist(), trace.memory_request_bytes.tolist(),
                trace.memory_limit_bytes.tolist(), strict=True),
            strict=True,
        )
    )  # fmt: skip
    assert (trace.cpu_limit_milli == -1).all()
    assert rows == {
        "shop/web-5f7c9d-aaaaa": ("Deployment", "shop/web", 1000, 2 * GIB, -1),
        "shop/batch-28391040-x": ("Job", "shop/batch", 4000, 4 * GIB, -1),
        "shop/idle": ("StatefulSet", "shop/idle", 1, 1024**2, -1),
        "shop/old-0": ("Deployment", "shop/old", 2000, 2 * GIB, -1),
    }


@pytest.mark.server
def test_lifetimes_and_use_are_those_of_the_history(trace: Trace) -> None:
    """Lifetimes are those of the memory series; use is that of each minute, without the pause container."""
    index = {name: number for number, name in enumerate(trace.pods)}
    lifetimes = {
        name: (int(trace.arrival_minute[number]), int(trace.end_minute[number])) for name, number in index.items()
    }
    web, batch = index["shop/web-5f7c9d-aaaaa"], index["shop/batch-28391040-x"]
    assert lifetimes["shop/web-5f7c9d-aaaaa"] == (0, MINUTES)
    assert lifetimes["shop/idle"] == (0, MINUTES)
    # Minute 59 ends with the first sample; a query of Prometheus returns the last sample for five more minutes.
    assert lifetimes["shop/batch-28391040-x"] == (59, 104)
    assert trace.usage(batch)[0][3:40] == pytest.approx(np.full(37, 2000), rel=0.001)
    use = trace.usage(web)[0]
    assert use[:119] == pytest.approx(np.full(119, 500), rel=0.001)
    assert use[122:] == pytest.approx(np.full(58, 1000), rel=0.001)
    assert trace.usage(index["shop/idle"])[1] == pytest.approx(np.full(MINUTES, GIB), rel=0.001)


@pytest.mark.server
def test_requests_of_daemon_sets_are_subtracted_from_nodes(trace: Trace) -> None:
    """A node's capacity is its allocatable minus the requests of DaemonSet pods; overcommit is 1."""
    assert trace.nodes == ("a", "b")
    assert trace.cpu_capacity_milli.tolist() == [3500, 8000]
    assert trace.memory_capacity_bytes.tolist() == [15 * GIB, 16 * GIB]
    assert (trace.overcommit, trace.warm_up_minutes, trace.minutes) == ((1.0, 1.0), 60, MINUTES)


@pytest.mark.server
def test_a_recording_can_be_replayed(recorded: Recorded, tmp_path: Path) -> None:
    """``simulate compare`` replays a recording that was made in short queries and of selected nodes."""
    result = recorded.run(tmp_path / "w", "--minutes-at-once", 25, "--node-selector", "pool=web")
    assert result.exit_code == 0, result.output
    assert "2 pods" in result.stdout
    command = [
        "simulate",
        "compare",
        "--trace",
        str(tmp_path / "w"),
        "--policy",
        "default",
        "--policy",
        "congestion-cost",
        "--json",
    ]
    measures = json.loads(CliRunner().invoke(main, command).stdout)["w"]
    assert measures["default"]["nodes"] == 1
    assert measures["default"]["unplaced_pods"] == 0
    assert recorded.run(tmp_path / "w").exit_code == 2


@pytest.mark.server
def test_a_query_that_is_too_large_is_split(recorded: Recorded, tmp_path: Path) -> None:
    """A query with too many samples is repeated in halves; no minute is lost or queried twice."""
    spans: list[tuple[int, int]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "query_range" not in handler.path:
            reply(handler, NOTHING)
            return
        start, end = (int(re.search(rf"{name}=(\d+)", handler.path)[1]) for name in ("start", "end"))
        if end - start >= 60 * 40:
            error = {
                "status": "error",
                "errorType": "execution",
                "error": "query processing would load too many samples",
            }
            reply(handler, error, 422)
            return
        spans.append((start, end))
        values = [[at, "1"] for at in range(start, end + 1, 60)]
        result = [{"metric": {"namespace": "shop", "pod": "idle"}, "values": values}]
        reply(handler, {"status": "success", "data": {"resultType": "matrix", "result": result}})

    with serving(answer) as fake:
        result = recorded.run(tmp_path / "w", "--prometheus", fake.url)
    assert result.exit_code == 0, result.output
    cpu = spans[: len(spans) // 2]
    assert [end - start for start, end in cpu[:-1]] == [60 * 29] * (len(cpu) - 1)
    assert all(later[0] == earlier[1] + 60 for earlier, later in pairwise(cpu))
    assert cpu[-1][1] == recorded.end


@pytest.mark.server
def test_labels_that_a_scrape_renames_name_the_pods(recorded: Recorded, tmp_path: Path, trace: Trace) -> None:
    """The recording is the same where the target's labels hide those of the containers (no honor_labels)."""
    renamed = (
        re.sub(r'namespace="shop",pod="([^"]*)",container="([^"]*)"', _RENAMED, line)
        if line.startswith("container_")
        else line
        for line in history(recorded.end - 60 * MINUTES)
    )
    with run_prometheus(tmp_path, renamed) as prometheus:
        result = recorded.run(tmp_path / "w", "--prometheus", prometheus)
    assert result.exit_code == 0, result.output
    again = read_trace(tmp_path / "w")
    assert (again.pods, again.owners) == (trace.pods, trace.owners)
    np.testing.assert_array_equal(again.use.cpu, trace.use.cpu)


_RENAMED = (
    r'exported_namespace="shop",exported_pod="\1",exported_container="\2",job="cadvisor",'
    'namespace="monitoring",pod="cadvisor-1",container="cadvisor"'
)


@pytest.mark.server
def test_series_without_pod_labels_are_an_error(recorded: Recorded, tmp_path: Path) -> None:
    """If no series has a pod, as after a scrape that renames labels, the error is one line, and nothing is written."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "query_range" not in handler.path:
            reply(handler, NOTHING)
            return
        end = int(re.search(r"end=(\d+)", handler.path)[1])
        result = [{"metric": {}, "values": [[end, "1"]]}]
        reply(handler, {"status": "success", "data": {"resultType": "matrix", "result": result}})

    with serving(answer) as fake:
        result = recorded.run(tmp_path / "w", "--prometheus", fake.url)
    assert result.exit_code == 1
    assert "namespace and pod" in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "w").exists()


@pytest.mark.server
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--prometheus", "prometheus:9090"], 2, "--prometheus prometheus:9090: must begin with http:// or https://"),
        (
            ["--prometheus", "http://127.0.0.1:1"],
            1,
            "Prometheus at http://127.0.0.1:1: Connection refused; check the address",
        ),
        (["--matchers", 'cluster="none"'], 1, "has no CPU of containers"),
        (["--matchers", "cluster="], 1, "parse error"),
        (["--warm-up", "3h"], 2, "--warm-up, 180 minutes, must be less than --last, 180 minutes"),
        (["--rate", "5s"], 2, "--rate must be at least 60 seconds, not 5"),
        (["--until", "2999-01-01"], 2, "is in the future"),
        (["--node-selector", "pool=none"], 1, "the cluster has no nodes with pool=none: see --node-selector"),
        (["--kube-config", "/nowhere"], 2, "--kube-config"),
        (["--header", "X-Scope-OrgID"], 2, "--header must be NAME=VALUE"),
        (["--ca-file", "/nowhere"], 2, "--ca-file /nowhere: no such file"),
        (["--token-file", "/nowhere"], 1, "the token file /nowhere cannot be read"),
    ],
)
def test_a_mistake_is_one_line(
    recorded: Recorded, tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    """The error names the option or source, nothing is written, and there is no traceback."""
    result = recorded.run(tmp_path / "w", *arguments)
    assert result.exit_code == status, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "w").exists()


@pytest.mark.server
def test_a_refusal_of_the_kubernetes_api_is_reported(recorded: Recorded, tmp_path: Path) -> None:
    """Missing RBAC to list pods is an error with the API server's status."""
    recorded.kubernetes.forbidden.add(("", "pods", "list"))
    try:
        result = recorded.run(tmp_path / "w")
    finally:
        recorded.kubernetes.forbidden.clear()
    assert result.exit_code == 1
    assert "Kubernetes API" in result.stderr
    assert "403" in result.stderr


def span(start: int, **pods: list[float]) -> Span:
    """Return a span of pods' values; NaN is a gap."""
    length = max(map(len, pods.values()))
    series = [({"namespace": "n", "pod": name}, np.array(values, np.float64)) for name, values in pods.items()]
    return Span(start, start + length, series)


def test_a_long_gap_ends_a_lifetime() -> None:
    """A pod with a long gap has two lifetimes; a gap of all pods is an outage of Prometheus, and ends none."""
    nan = float("nan")
    usage = UsageCollector(60)
    always = [1.0] * 20 + [nan] * 20 + [1.0] * 20
    away = [2.0] * 4 + [nan] * 12 + [4.0] * 4 + [nan] * 20 + [8.0] * 20
    usage.add(1, span(0, always=always, away=away))
    lifetimes = [(each.key[1], each.number, each.start, each.end) for each in usage.lifetimes()]
    assert lifetimes == [("always", 0, 0, 60), ("away", 0, 0, 4), ("away", 1, 16, 60)]
    (interpolated,) = [each.use[1] for each in usage.lifetimes() if each.number]
    assert (np.diff(interpolated) >= 0).all()
    assert interpolated[[0, 3, -1]].tolist() == [4.0, 4.0, 8.0]


@pytest.mark.server
def test_the_days_before_become_a_past(tmp_path: Path) -> None:
    """The mean pod of each owner of the trace on each day that the Prometheus has, as shares of its mean request."""
    end = int(time.time()) // 60 * 60 - 120
    begin = end - 3600 * 3
    cores = {-2: 0.25, -1: 0.5, 0: 1.0}  # by day; the recording is day 0

    def lines() -> Iterator[str]:
        yield "# TYPE container_cpu_usage_seconds counter\n"
        for name in ("web-5f7c9d-aaaaa", "web-5f7c9d-bbbbb"):
            used = 0.0
            for at in range(begin - 86400 * 2, end + 1, 60):
                labels = f'namespace="shop",pod="{name}",container="main"'
                yield f"container_cpu_usage_seconds_total{{{labels}}} {used} {at}\n"
                used += 60 * cores[(at - begin) // 86400] * (1 if name.endswith("a") else 3)
        yield "# TYPE container_memory_working_set_bytes gauge\n"
        for name in ("web-5f7c9d-aaaaa", "web-5f7c9d-bbbbb"):
            for at in range(begin - 86400 * 2, end + 1, 60):
                labels = f'namespace="shop",pod="{name}",container="main"'
                yield f"container_memory_working_set_bytes{{{labels}}} {GIB} {at}\n"

    pods = {
        f"shop/{name}": owned_pod(name, "a", "ReplicaSet", "web-5f7c9d", "2", "2Gi", **{"pod-template-hash": "5f7c9d"})
        for name in ("web-5f7c9d-aaaaa", "web-5f7c9d-bbbbb")
    }
    with (
        run_prometheus(tmp_path, lines()) as prometheus,
        run_fake_kubernetes(tmp_path, nodes={"a": node("a")}, pods=pods) as kubernetes,
    ):
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
        done = CliRunner().invoke(main, [
            "record", str(tmp_path / "trace"), "--prometheus", prometheus, "--kube-config",
            str(kubernetes.kube_config()), "--until", until, "--last", "3h", "--history-days", "3",
        ])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "2 of 3 days" in done.stderr
    history = read_trace(tmp_path / "trace").history
    assert history is not None
    assert list(zip(history.owner_kinds, history.owners, history.days.tolist(), strict=True)) == [
        ("Deployment", "shop/web", -1), ("Deployment", "shop/web", -2),
    ]  # fmt: skip
    assert np.nanmedian(history.cpu, axis=1) == pytest.approx([0.5, 0.25], rel=0.01)
    assert np.nanmedian(history.memory, axis=1) == pytest.approx([0.5, 0.5], rel=0.01)
