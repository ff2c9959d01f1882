"""Filter of nodes over a limit, its routes, and requeuing of rejected pods."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
import requests
from support.extending import CONFIGURATION, SettableMetrics, StaticView, extender_args, metrics, profiles
from werkzeug.test import Client

from scoring import Node, Pod, ResourceList
from trimaran.extender import requeuer
from trimaran.extender.app import create_app
from trimaran.extender.filter_routes import filter_routes
from trimaran.extender.filtering import FilterOptions, NodeFilter
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config, validate_config
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.requeuer import Requeuer
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs
from watcher.model import NodeMetrics

LOADS = {"node-1": 80.0, "node-2": 10.0, "node-3": 50.0}
LIMITS = {"cpu": 90.0, "memory": 90.0}
OPEN, CLOSED = FilterOptions(LIMITS), FilterOptions(LIMITS, "closed", max_wait_seconds=60)


class Bench:
    """Filter over a static cluster of nodes with 4 cores and 16 GiB."""

    def __init__(self, options: FilterOptions = OPEN, **more: Any) -> None:
        self.now = 1000.0
        self.view, self.metrics = StaticView(*LOADS), SettableMetrics(LOADS)
        self.filter = NodeFilter(
            profiles().by_scheduler, self.view, self.metrics, options, monotonic=lambda: self.now, **more
        )

    def ask(self, *names: str, **changes: Any) -> list[str]:
        """Return the candidates that pass."""
        document = extender_args(*(names or LOADS), **{"cpu": "400m", **changes})
        return list(self.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).passed)

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in self.filter.counts.items() if count}


@pytest.mark.parametrize(
    ("cpu", "passing"),
    [("400m", ["node-1", "node-2", "node-3"]), ("401m", ["node-2", "node-3"]), ("1601m", ["node-2"])],
)
def test_a_node_passes_up_to_its_limit(cpu: str, passing: list[str]) -> None:
    """A node passes up to its limit of measured use plus the pod's requests, and the reason names the limit."""
    bench = Bench()
    assert bench.ask(cpu=cpu) == passing
    document = extender_args(*LOADS, cpu=cpu)
    refused = bench.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).refused
    assert refused.keys() == LOADS.keys() - set(passing)
    assert all("90 %" in reason for reason in refused.values())


def test_assumed_pods_count() -> None:
    """The requests of a pod assumed since the measurement count."""
    bench = Bench()
    assert "node-1" in bench.ask(cpu="300m")
    bench.view.assume(Pod("p", uid="p", requests=ResourceList({"cpu": 200})), "node-1")
    assert "node-1" not in bench.ask(cpu="300m")


def test_a_node_annotation_overrides_the_limit() -> None:
    """An annotation can raise or lower the limit of a node, and an invalid one is ignored."""
    bench = Bench()
    amounts = ResourceList({"cpu": 4000, "memory": 16 << 30, "pods": 110})
    for name, limit in (("node-1", "99"), ("node-2", "15"), ("node-3", "much")):
        bench.view.state.put_node(Node(name, amounts, amounts, created_at=0.0, use_limits={"cpu": limit}))
    assert bench.ask(cpu="700m") == ["node-1", "node-3"]
    node = {"metadata": {"name": "n", "annotations": {"trimaran.io/limit-cpu-percent": "75", "other": "1"}}}
    assert Node.from_k8s(node).use_limits == {"cpu": "75"}


def test_all_nodes_pass_if_all_are_over() -> None:
    """In the default mode all nodes pass if all are over, which is counted."""
    bench = Bench()
    assert bench.ask("node-1", cpu="3") == ["node-1"]
    assert bench.ask(cpu="4") == list(LOADS)
    assert bench.counted() == {"all_over": 2}
    assert not bench.filter.waiting


def test_a_closed_filter_lets_a_pod_pass_after_the_longest_wait() -> None:
    """In closed mode no node passes until the pod has waited for the longest time."""
    bench = Bench(CLOSED)
    assert bench.ask(cpu="4") == []
    bench.now += 59
    assert bench.ask(cpu="4") == []
    assert [waiting.args.pod.uid for waiting in bench.filter.waiting] == ["uid-of-pod-1"]
    bench.now += 1
    assert bench.ask(cpu="4") == list(LOADS)
    assert not bench.filter.waiting
    assert bench.counted() == {"rejected": 2, "waited_enough": 1}


@pytest.mark.parametrize(
    ("change", "namespace"),
    [({"ownerReferences": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}, "default"),
     ({"ownerReferences": [{"kind": "Node", "name": "node-1", "controller": True}]}, "default"),
     ({}, "kube-system")],
)  # fmt: skip
def test_exempt_pods_always_pass(change: dict[str, Any], namespace: str) -> None:
    """DaemonSets' and static pods and exempt namespaces are not filtered."""
    bench = Bench(CLOSED)
    document = extender_args(*LOADS, cpu="4")
    document["Pod"]["metadata"] |= {"namespace": namespace, **change}
    assert list(bench.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).passed) == list(LOADS)
    assert bench.counted() == {"exempt": 1}


def test_shadow_and_other_schedulers_are_not_filtered() -> None:
    """Pods in shadow and pods of other schedulers are not filtered."""
    assert Bench(CLOSED, is_active=lambda _: False).ask(cpu="4") == list(LOADS)
    assert Bench(CLOSED).ask(cpu="4", scheduler="default-scheduler") == list(LOADS)


def test_unmeasured_nodes_pass() -> None:
    """All nodes pass without metrics, and so does a node that is unmeasured, suspect or unknown."""
    bench = Bench(CLOSED)
    snapshot = bench.metrics.current
    bench.metrics.current = None
    assert bench.ask(cpu="4") == list(LOADS)
    bench.metrics.current = metrics({"node-1": 80.0, "node-2": 80.0})
    assert bench.ask(cpu="4") == ["node-3"]
    data = {**snapshot.data, "node-1": NodeMetrics(snapshot.data["node-1"].metrics, {}, {"suspect": "frozen"})}
    bench.metrics.current = dataclasses.replace(snapshot, data=data)
    assert bench.ask(cpu="4") == ["node-1"]
    assert bench.ask("node-1", "node-2", "new", cpu="4") == ["node-1", "new"]


class Patches:
    """API server that accepts or refuses patches."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refuses = False

    def send(self, method: str, path: str, _deadline: object, body: Any = None, content_type: str = "") -> Any:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        assert list(body["metadata"]["annotations"]) == ["trimaran.io/cooled-at"]
        if self.refuses:
            raise requests.HTTPError("403")
        self.sent.append(path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(CLOSED)
    monkeypatch.setattr(requeuer.time, "monotonic", lambda: bench.now)
    return bench


def test_one_patch_requeues_waiting_pods_when_a_node_cools(clock: Bench) -> None:
    """A cooled node is patched once for all waiting pods, and at most every ten seconds."""
    api = Patches()
    requeuing = Requeuer(api, clock.filter)
    for number in range(5):
        clock.ask(cpu="3900m", pod=f"pod-{number}")
    requeuing.run_cycle()
    assert api.sent == []
    clock.metrics.current = metrics({**LOADS, "node-2": -0.0, "node-3": 0.0, "node-1": 0.0} | {"node-2": 0.0})
    clock.filter._options = dataclasses.replace(CLOSED, limits={"cpu": 98.0, "memory": 98.0})
    clock.filter._limits = None
    for _ in range(3):
        requeuing.run_cycle()
    assert api.sent == ["/api/v1/nodes/node-1"]
    clock.now += 10
    requeuing.run_cycle()
    assert len(api.sent) == 2
    for number in range(5):
        assert clock.ask(cpu="3900m", pod=f"pod-{number}")
    clock.now += 10
    requeuing.run_cycle()
    assert len(api.sent) == 2


def test_a_pod_is_requeued_once_after_the_longest_wait(clock: Bench) -> None:
    """After the longest wait a pod is requeued once, and forgotten if it does not return."""
    api = Patches()
    requeuing = Requeuer(api, clock.filter)
    clock.ask(cpu="4")
    clock.now += 61
    for _ in range(3):
        requeuing.run_cycle()
        clock.now += 10
    assert len(api.sent) == 1
    clock.now += 1000
    requeuing.run_cycle()
    assert not clock.filter.waiting


def test_a_pod_whose_patch_failed_is_requeued_later(clock: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A pod counts as requeued once the patch has succeeded; a refused one is logged, and tried again after 10 s."""
    api = Patches()
    api.refuses = True
    requeuing = Requeuer(api, clock.filter)
    clock.ask(cpu="4")
    clock.now += 61
    requeuing.run_cycle()
    assert "cannot be requeued" in caplog.text
    assert (requeuing.patches, [each.requeued for each in clock.filter.waiting]) == (0, [False])
    api.refuses = False
    requeuing.run_cycle()
    assert api.sent == []
    for _ in range(3):
        clock.now += 10
        requeuing.run_cycle()
    assert (requeuing.patches, len(api.sent)) == (1, 1)
    assert [each.requeued for each in clock.filter.waiting] == [True]


def client(bench: Bench) -> Client:
    telemetry = ExtenderTelemetry()
    telemetry.watch_filter(bench.filter)
    prioritizer = Prioritizer(profiles(), bench.view, bench.metrics, PrioritizerOptions(20))
    return Client(create_app(prioritizer, telemetry, str, None, [filter_routes(bench.filter)]))


def test_refused_nodes_are_unresolvable() -> None:
    """Refused nodes are in FailedAndUnresolvableNodes, which preemption ignores."""
    http = client(Bench())
    result = http.post("/filter", data=orjson.dumps(extender_args(*LOADS, cpu="1"))).json
    assert result["NodeNames"] == ["node-2", "node-3"]
    assert result["FailedAndUnresolvableNodes"].keys() == {"node-1"}
    assert (result["FailedNodes"], result["Nodes"], result["Error"]) == ({}, None, "")
    assert 'trimaran_extender_filtered_total{outcome="narrowed"} 1.0' in http.get("/metrics").text


def victims(name: str, *pods: str) -> dict[str, Any]:
    return {name: {"Pods": [{"UID": f"uid-of-{pod}"} for pod in pods], "NumPDBViolations": 0}}


def test_preemption_spares_nodes_that_stay_over_their_limit() -> None:
    """Preemption may use a node only if it is below its limit without the victims' requests."""
    bench = Bench(CLOSED)
    for number, name in enumerate(("node-1", "node-2")):
        requests_ = ResourceList({"cpu": 200 + 600 * number})
        bench.view.state.put_pod(Pod(name, uid=f"uid-of-{name}", node_name=name, requests=requests_, scheduled_at=0.0))
    bench.metrics.current = metrics({**LOADS, "node-2": 80.0})
    document = {
        "Pod": extender_args(cpu="1")["Pod"], "NodeNameToVictims": None,
        "NodeNameToMetaVictims": victims("node-1", "node-1") | victims("node-2", "node-2"),
    }  # fmt: skip
    result = client(bench).post("/preempt", data=orjson.dumps(document)).json
    assert result == {"NodeNameToMetaVictims": victims("node-2", "node-2")}
    for bad in (b"{", b"[]", b"{}", orjson.dumps({**document, "NodeNameToMetaVictims": {"node-1": {"Pods": [1]}}})):
        assert client(bench).post("/preempt", data=bad).status_code == 400


def test_whole_nodes_are_refused() -> None:
    """A filter request with whole nodes is a bad request that names ``nodeCacheCapable``."""
    whole = {**extender_args(), "NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "node-1"}}]}}
    response = client(Bench()).post("/filter", data=orjson.dumps(whole))
    assert response.status_code == 400
    assert "nodeCacheCapable" in response.json["error"]["message"]
    assert client(Bench()).post("/filter", data=b"{").status_code == 400


def test_all_nodes_pass_after_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unexpected error all nodes pass."""
    bench = Bench()
    monkeypatch.setattr(bench.filter, "answer", lambda _: 1 / 0)
    result = client(bench).post("/filter", data=orjson.dumps(extender_args(*LOADS))).json
    assert result["NodeNames"] == list(LOADS)


def test_the_rendered_file_has_the_filter() -> None:
    """``--filter`` renders the verbs and ``percentageOfNodesToScore: 100``, and a file without them has problems."""
    sampled = {**CONFIGURATION["profiles"][0], "percentageOfNodesToScore": 5}
    sampling = {**CONFIGURATION, "profiles": [sampled, *CONFIGURATION["profiles"][1:]]}
    rendered = render_config(sampling, ExtenderEndpoint("http://127.0.0.1:2021", filters=True))
    assert "percentageOfNodesToScore" not in rendered["profiles"][0]  # it would override the file's
    assert rendered["extenders"][0]["filterVerb"] == "filter"
    assert rendered["percentageOfNodesToScore"] == 100
    assert list(validate_config(rendered)) == []
    for odd in ({"percentageOfNodesToScore": 10}, {"profiles": sampling["profiles"]}):
        assert "percentageOfNodesToScore: must be 100" in " ".join(validate_config({**rendered, **odd}))
    del rendered["extenders"][0]["preemptVerb"]
    assert "preemptVerb" in " ".join(validate_config(rendered))
    rendered["extenders"][0]["filterVerb"] = "filters"
    assert "serves 'filter'" in " ".join(validate_config(rendered))
    assert "filterVerb" not in render_config(CONFIGURATION, ExtenderEndpoint("http://127.0.0.1:2021"))["extenders"][0]


def test_pods_may_pass_while_the_waiting_ones_are_read() -> None:
    """Requests and the requeuer use the filter at the same time; no pod is counted twice and nothing is lost."""
    bench = Bench(CLOSED)
    stop, failures = threading.Event(), []

    def read() -> None:
        try:
            while not stop.is_set():
                for waiting in bench.filter.waiting:
                    bench.filter.mark_requeued(waiting)
                    bench.filter.forget(waiting)
        except Exception as error:  # noqa: BLE001  reported by the test's thread
            failures.append(error)

    with ThreadPoolExecutor(5) as threads:
        reader = threads.submit(read)
        list(threads.map(lambda number: bench.ask(pod=f"pod-{number}", cpu="4"), range(400)))
        stop.set()
        reader.result()
    assert not failures
    assert bench.filter.counts["rejected"] == 400
