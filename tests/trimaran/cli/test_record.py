"""``trimaran record``: from a Kubernetes API and a real Prometheus with history to a trace that is replayed."""

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
from trimaran.traces.recording.history import Span
from trimaran.traces.recording.lifetimes import UsageCollector
from trimaran.traces.trace import Trace, read_trace

MINUTES = 180
GIB = 1024**3


@dataclass(frozen=True)
class Recorded:
    """A cluster that was recorded: its sources, and what there is."""

    kubernetes: FakeKubernetes
    config: Path
    prometheus: str
    end: int

    def run(self, *arguments: object) -> Result:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.end))
        sources = ("--prometheus", self.prometheus, "--kube-config", self.config, "--until", until)
        asked = ("--last", f"{MINUTES}m", "--warm-up", "60m")
        return CliRunner().invoke(main, ["record", *map(str, (*sources, *asked, *arguments))])


def made_by(name: str, node_name: str, kind: str, owner: str, cpu: str, memory: str, **labels: str) -> dict[str, Any]:
    """Return a pod of one container that has an owner and requests."""
    made = pod(name, node_name, namespace="shop")
    made["metadata"] |= {
        "labels": labels,
        "ownerReferences": [{"kind": kind, "name": owner, "uid": f"uid-of-{owner}", "controller": True}],
    }
    resources = {"requests": {"cpu": cpu, "memory": memory}} if cpu else {}
    made["spec"]["containers"][0]["resources"] = resources
    return made


def history(begin: int) -> Iterator[str]:
    """Yield what cAdvisor and kube-state-metrics told of six pods, in OpenMetrics text.

    web uses half a core all the time, and a whole one in its last hour; batch lives from minute 60 to 100; idle asks
    for nothing; logs is a DaemonSet's; old is gone: the Kubernetes API knows nothing of it; nobody knows stranger.
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
                used = 1e300 if name == "idle" and minute == 30 and container == "main" else GIB  # what no node has
                yield f"container_memory_working_set_bytes{{{labels}}} {used} {begin + 60 * minute}\n"
    yield f'container_memory_working_set_bytes{{id="/docker/1",container="main"}} {GIB} {begin + 60}\n'  # of no pod
    infos = {
        "kube_pod_info": ['pod="old-0",node="a",created_by_kind="ReplicaSet",created_by_name="old-6d8"'],
        "kube_replicaset_owner": ['replicaset="old-6d8",owner_kind="Deployment",owner_name="old"'],
        "kube_pod_container_resource_requests": [
            'pod="old-0",container="main",resource="cpu",instance="one"',
            'pod="old-0",container="main",resource="cpu",instance="two"',
            'pod="old-0",container="side",resource="cpu"',
            'pod="old-0",container="main",resource="memory"',
        ],
        "kube_pod_container_resource_limits": ['pod="old-0",container="main",resource="memory"'],
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
        made_by("web-5f7c9d-aaaaa", "a", "ReplicaSet", "web-5f7c9d", "1", "2Gi", **{"pod-template-hash": "5f7c9d"}),
        made_by("batch-28391040-x", "b", "Job", "batch-28391040", "4", "4Gi"),
        made_by("idle", "b", "StatefulSet", "idle", "", ""),
        made_by("logs-1", "a", "DaemonSet", "logs", "500m", "1Gi"),
        made_by("huge", "", "Job", "huge", "1e18", "1Gi"),  # waits for ever, and costs nobody else anything
    ]
    what = {"nodes": nodes, "pods": {f"shop/{each['metadata']['name']}": each for each in pods}}
    with (
        run_prometheus(folder, history(end - 60 * MINUTES)) as prometheus,
        run_fake_kubernetes(folder, **what) as kubernetes,
    ):
        yield Recorded(kubernetes, kubernetes.kube_config(), prometheus, end)


@pytest.fixture(scope="module")
def trace(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("traces") / "yesterday"
    made = recorded.run(folder)
    assert made.exit_code == 0, made.output
    said = (
        "2 nodes, 4 runs of pods, 180 minutes, 1 pods of DaemonSets and static pods, taken off their nodes, 1 pods that"
    )
    assert said in made.stdout
    assert "1 pods are left out" in made.stderr
    assert "shop/stranger" in made.stderr
    assert "memory of containers without a namespace or a pod is left out" in made.stderr
    return read_trace(folder)


def test_pods_are_as_their_users_wrote_them(trace: Trace) -> None:
    """Owners stand for what made them, requests and limits come from the API, or from kube-state-metrics."""
    rows = dict(
        zip(
            trace.pods,
            zip(trace.owner_kinds, trace.owners, trace.cpu_request_milli.tolist(), trace.memory_request_bytes.tolist(),
                trace.memory_limit_bytes.tolist(), strict=True),
            strict=True,
        )
    )  # fmt: skip
    assert rows == {
        "shop/web-5f7c9d-aaaaa": ("Deployment", "shop/web", 1000, 2 * GIB, -1),
        "shop/batch-28391040-x": ("Job", "shop/batch", 4000, 4 * GIB, -1),
        "shop/idle": ("StatefulSet", "shop/idle", 1, 1024**2, -1),
        "shop/old-0": ("Deployment", "shop/old", 2000, 2 * GIB, 2 * GIB),
    }


def test_lives_and_use_are_those_of_the_history(trace: Trace) -> None:
    """Pods arrive and end as their memory did; use is what was used, minute by minute, without the pause container."""
    place = {name: number for number, name in enumerate(trace.pods)}
    lives = {name: (int(trace.arrival_minute[number]), int(trace.end_minute[number])) for name, number in place.items()}
    web, batch = place["shop/web-5f7c9d-aaaaa"], place["shop/batch-28391040-x"]
    assert lives["shop/web-5f7c9d-aaaaa"] == (0, MINUTES)
    assert lives["shop/idle"] == (0, MINUTES)
    # Minute 59 ends with the first sample; after the last, Prometheus believes a value for five minutes.
    assert lives["shop/batch-28391040-x"] == (59, 104)
    assert trace.usage(batch)[0][3:40] == pytest.approx(np.full(37, 2000), rel=0.001)
    use = trace.usage(web)[0]
    assert use[:119] == pytest.approx(np.full(119, 500), rel=0.001)
    assert use[122:] == pytest.approx(np.full(58, 1000), rel=0.001)
    assert trace.usage(place["shop/idle"])[1] == pytest.approx(np.full(MINUTES, GIB), rel=0.001)


def test_nodes_have_what_pods_of_daemon_sets_leave(trace: Trace) -> None:
    """What DaemonSets request is no scheduler's to give; overcommit is none, as it is the users' own requests."""
    assert trace.nodes == ("a", "b")
    assert trace.cpu_capacity_milli.tolist() == [3500, 8000]
    assert trace.memory_capacity_bytes.tolist() == [15 * GIB, 16 * GIB]
    assert (trace.overcommit, trace.warm_up_minutes, trace.minutes) == ((1.0, 1.0), 60, MINUTES)


def test_what_is_recorded_is_replayed(recorded: Recorded, tmp_path: Path) -> None:
    """``simulate compare`` takes the folder as it is, also in small spans and of chosen nodes only."""
    made = recorded.run(tmp_path / "w", "--minutes-at-once", 25, "--node-selector", "pool=web")
    assert made.exit_code == 0, made.output
    assert "2 pods on other nodes, left out" in made.stdout
    asked = [
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
    result = json.loads(CliRunner().invoke(main, asked).stdout)["w"]
    assert result["default"]["nodes"] == 1
    assert result["default"]["unplaced_pods"] == 0
    assert recorded.run(tmp_path / "w").exit_code == 2


def test_a_span_that_is_too_much_is_asked_for_in_parts(recorded: Recorded, tmp_path: Path) -> None:
    """What the server refuses as too many samples is asked for in halves, and nothing is lost or asked twice."""
    spans: list[tuple[int, int]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        start, end = (int(re.search(rf"{name}=(\d+)", handler.path)[1]) for name in ("start", "end"))
        if "query_range" in handler.path and end - start >= 60 * 40:
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
        made = recorded.run(tmp_path / "w", "--prometheus", fake.url)
    assert made.exit_code == 0, made.output
    cpu = spans[: len(spans) // 2]
    assert [end - start for start, end in cpu[:-1]] == [60 * 29] * (len(cpu) - 1)
    assert all(later[0] == earlier[1] + 60 for earlier, later in pairwise(cpu))
    assert cpu[-1][1] == recorded.end


def test_series_that_name_no_pod_are_told(recorded: Recorded, tmp_path: Path) -> None:
    """Where none does, as after a scrape that renames labels, it is one line, and nothing is written."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        end = int(re.search(r"end=(\d+)", handler.path)[1])
        result = [{"metric": {}, "values": [[end, "1"]]}]
        reply(handler, {"status": "success", "data": {"resultType": "matrix", "result": result}})

    with serving(answer) as fake:
        made = recorded.run(tmp_path / "w", "--prometheus", fake.url)
    assert made.exit_code == 1
    assert "no series of the CPU of containers has a namespace and a pod" in made.stderr
    assert "Traceback" not in made.output
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--prometheus", "prometheus:9090"], 2, "--prometheus prometheus:9090: must begin with http:// or https://"),
        (
            ["--prometheus", "http://127.0.0.1:1"],
            1,
            "Prometheus at http://127.0.0.1:1: Connection refused; is the address",
        ),
        (["--matchers", 'cluster="none"'], 1, "has no CPU of containers"),
        (["--matchers", "cluster="], 1, "parse error"),
        (["--warm-up", "3h"], 2, "--warm-up of 180 minutes leaves nothing of --last, 180 minutes"),
        (["--rate", "5s"], 2, "--rate must be at least 60 seconds, not 5"),
        (["--until", "2999-01-01"], 2, "is in the future"),
        (["--node-selector", "pool=none"], 1, "there are no nodes with pool=none: see --node-selector"),
        (["--kube-config", "/nowhere"], 2, "--kube-config"),
        (["--header", "X-Scope-OrgID"], 2, "--header must be NAME=VALUE"),
        (["--ca-file", "/nowhere"], 2, "--ca-file /nowhere: there is no such file"),
        (["--token-file", "/nowhere"], 1, "the token file /nowhere cannot be read"),
    ],
)
def test_a_mistake_is_one_line(
    recorded: Recorded, tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    """It is said which option or source, nothing is written, and there is no traceback."""
    made = recorded.run(tmp_path / "w", *arguments)
    assert made.exit_code == status, made.output
    assert said in made.stderr
    assert "Traceback" not in made.output
    assert not (tmp_path / "w").exists()


def test_a_refusal_of_the_kubernetes_api_is_told(recorded: Recorded, tmp_path: Path) -> None:
    """RBAC that forbids to list pods is said as the API server says it."""
    recorded.kubernetes.forbidden.add(("", "pods", "list"))
    try:
        made = recorded.run(tmp_path / "w")
    finally:
        recorded.kubernetes.forbidden.clear()
    assert made.exit_code == 1
    assert "the Kubernetes API cannot be used" in made.stderr
    assert "403" in made.stderr


def span(start: int, **pods: list[float]) -> Span:
    """Return a span of pods' values, NaN where there is none."""
    length = max(map(len, pods.values()))
    series = [({"namespace": "n", "pod": name}, np.array(values, np.float64)) for name, values in pods.items()]
    return Span(start, start + length, series)


def test_a_pod_that_is_gone_for_long_is_another_when_it_comes_back() -> None:
    """A StatefulSet's pod that was away lives twice; when nobody was seen, Prometheus was away, and nobody is gone."""
    nan = float("nan")
    uses = UsageCollector(60)
    always = [1.0] * 20 + [nan] * 20 + [1.0] * 20
    away = [2.0] * 4 + [nan] * 12 + [4.0] * 4 + [nan] * 20 + [8.0] * 20
    uses.add(1, span(0, always=always, away=away))
    lives = [(life.key[1], life.number, life.start, life.end) for life in uses.lives()]
    assert lives == [("always", 0, 0, 60), ("away", 0, 0, 4), ("away", 1, 16, 60)]
    (bridged,) = [life.use[1] for life in uses.lives() if life.number]
    assert (np.diff(bridged) >= 0).all()
    assert bridged[[0, 3, -1]].tolist() == [4.0, 4.0, 8.0]
