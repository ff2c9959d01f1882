"""Which nodes the filter refuses, whom it lets pass, and who is woken."""

import dataclasses
from typing import Any

import orjson
import pytest
import requests
from support.extending import CONFIGURATION, HeldMetrics, StillView, asked, metrics, profiles
from werkzeug.test import Client

from scoring import Node, Pod, ResourceList
from trimaran.extender import requeuer as waking
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
    """A filter over a cluster that stands still, of nodes with 4 cores and 16 GiB."""

    def __init__(self, options: FilterOptions = OPEN, **more: Any) -> None:
        self.now = 1000.0
        self.view, self.metrics = StillView(*LOADS), HeldMetrics(LOADS)
        self.filter = NodeFilter(
            profiles().by_scheduler, self.view, self.metrics, options, monotonic=lambda: self.now, **more
        )

    def ask(self, *names: str, **changes: Any) -> list[str]:
        """Return which candidates pass."""
        document = asked(*(names or LOADS), **{"cpu": "400m", **changes})
        return list(self.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).passed)

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in self.filter.counts.items() if count}


@pytest.mark.parametrize(
    ("cpu", "passing"),
    [("400m", ["node-1", "node-2", "node-3"]), ("401m", ["node-2", "node-3"]), ("1601m", ["node-2"])],
)
def test_expected_use_counts(cpu: str, passing: list[str]) -> None:
    """A node passes up to its limit, by what it uses and what the pod requests; the reason names both."""
    bench = Bench()
    assert bench.ask(cpu=cpu) == passing
    document = asked(*LOADS, cpu=cpu)
    refused = bench.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).refused
    assert refused.keys() == LOADS.keys() - set(passing)
    assert all("expected, the limit is 90 %" in reason for reason in refused.values())


def test_pods_on_their_way_count() -> None:
    """What was assumed since the measurement is used up; a node does not take one pod after the other."""
    bench = Bench()
    assert "node-1" in bench.ask(cpu="300m")
    bench.view.assume(Pod("p", uid="p", requests=ResourceList({"cpu": 200})), "node-1")
    assert "node-1" not in bench.ask(cpu="300m")


def test_a_nodes_annotation_wins() -> None:
    """It may be stricter or laxer than the setting; what cannot be read is as if it were not there."""
    bench = Bench()
    amounts = ResourceList({"cpu": 4000, "memory": 16 << 30, "pods": 110})
    for name, limit in (("node-1", "99"), ("node-2", "15"), ("node-3", "much")):
        bench.view.state.put_node(Node(name, amounts, amounts, created_at=0.0, use_limits={"cpu": limit}))
    assert bench.ask(cpu="700m") == ["node-1", "node-3"]
    node = {"metadata": {"name": "n", "annotations": {"trimaran.io/limit-cpu-percent": "75", "other": "1"}}}
    assert Node.from_k8s(node).use_limits == {"cpu": "75"}


def test_never_all_by_default() -> None:
    """Where all that were asked about are over, all pass, and that is counted."""
    bench = Bench()
    assert bench.ask("node-1", cpu="3") == ["node-1"]
    assert bench.ask(cpu="4") == list(LOADS)
    assert bench.counted() == {"all_over": 2}
    assert not bench.filter.waiting


def test_closed_lets_a_pod_wait_and_then_pass() -> None:
    """For its time no node is given; after it all are, whatever they use."""
    bench = Bench(CLOSED)
    assert bench.ask(cpu="4") == []
    bench.now += 59
    assert bench.ask(cpu="4") == []
    assert list(bench.filter.waiting) == ["uid-of-pod-1"]
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
def test_some_pods_always_pass(change: dict[str, Any], namespace: str) -> None:
    """DaemonSets' and static pods, and those of exempt namespaces, go where they have to."""
    bench = Bench(CLOSED)
    document = asked(*LOADS, cpu="4")
    document["Pod"]["metadata"] |= {"namespace": namespace, **change}
    assert list(bench.filter.answer(ExtenderArgs.decode(orjson.dumps(document))).passed) == list(LOADS)
    assert bench.counted() == {"exempt": 1}


def test_shadow_and_other_schedulers_are_not_filtered() -> None:
    """Whom the extender does not act for it does not hold up either."""
    assert Bench(CLOSED, is_active=lambda _: False).ask(cpu="4") == list(LOADS)
    assert Bench(CLOSED).ask(cpu="4", scheduler="default-scheduler") == list(LOADS)


def test_what_is_not_known_passes() -> None:
    """Without metrics all nodes; a node that is not measured, suspect, or not in the view; each by itself."""
    bench = Bench(CLOSED)
    held = bench.metrics.held
    bench.metrics.held = None
    assert bench.ask(cpu="4") == list(LOADS)
    bench.metrics.held = metrics({"node-1": 80.0, "node-2": 80.0})
    assert bench.ask(cpu="4") == ["node-3"]
    doubted = {**held.data, "node-1": NodeMetrics(held.data["node-1"].metrics, {}, {"suspect": "frozen"})}
    bench.metrics.held = dataclasses.replace(held, data=doubted)
    assert bench.ask(cpu="4") == ["node-1"]
    assert bench.ask("node-1", "node-2", "new", cpu="4") == ["node-1", "new"]


class Patches:
    """An API server that takes patches, or refuses them."""

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
    monkeypatch.setattr(waking.time, "monotonic", lambda: bench.now)
    return bench


def test_one_patch_wakes_those_that_wait_when_a_node_cools(clock: Bench) -> None:
    """Nothing is written while all are over; one patch when one is not; no more than one each ten seconds."""
    api = Patches()
    waker = Requeuer(api, clock.filter)
    for number in range(5):
        clock.ask(cpu="3900m", pod=f"pod-{number}")
    waker.run_cycle()
    assert api.sent == []
    clock.metrics.held = metrics({**LOADS, "node-2": -0.0, "node-3": 0.0, "node-1": 0.0} | {"node-2": 0.0})
    clock.filter._options = dataclasses.replace(CLOSED, limits={"cpu": 98.0, "memory": 98.0})
    clock.filter._limits = None
    for _ in range(3):
        waker.run_cycle()
    assert api.sent == ["/api/v1/nodes/node-1"]
    clock.now += 10
    waker.run_cycle()
    assert len(api.sent) == 2
    for number in range(5):
        assert clock.ask(cpu="3900m", pod=f"pod-{number}")
    clock.now += 10
    waker.run_cycle()
    assert len(api.sent) == 2


def test_a_pod_is_woken_once_when_its_time_is_over(clock: Bench) -> None:
    """Then kube-scheduler asks again, and it passes; one that never comes back is forgotten."""
    api = Patches()
    waker = Requeuer(api, clock.filter)
    clock.ask(cpu="4")
    clock.now += 61
    for _ in range(3):
        waker.run_cycle()
        clock.now += 10
    assert len(api.sent) == 1
    clock.now += 1000
    waker.run_cycle()
    assert not clock.filter.waiting


def test_without_the_right_to_patch_it_is_told(clock: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Pods then wait for the scheduler's own 5 minutes; nothing fails."""
    api = Patches()
    api.refuses = True
    clock.ask(cpu="4")
    clock.now += 61
    Requeuer(api, clock.filter).run_cycle()
    assert "cannot be woken" in caplog.text


def client(bench: Bench) -> Client:
    telemetry = ExtenderTelemetry()
    telemetry.watch_filter(bench.filter)
    prioritizer = Prioritizer(profiles(), bench.view, bench.metrics, PrioritizerOptions(20))
    return Client(create_app(prioritizer, telemetry, lambda: True, None, [filter_routes(bench.filter)]))


def test_refused_nodes_are_unresolvable() -> None:
    """kube-scheduler gets the names that pass, and the others where preemption does not look."""
    asking = client(Bench())
    found = asking.post("/filter", data=orjson.dumps(asked(*LOADS, cpu="1"))).json
    assert found["NodeNames"] == ["node-2", "node-3"]
    assert found["FailedAndUnresolvableNodes"].keys() == {"node-1"}
    assert (found["FailedNodes"], found["Nodes"], found["Error"]) == ({}, None, "")
    assert 'trimaran_extender_filtered_total{outcome="narrowed"} 1.0' in asking.get("/metrics").text


def victims(name: str, *pods: str) -> dict[str, Any]:
    return {name: {"Pods": [{"UID": f"uid-of-{pod}"} for pod in pods], "NumPDBViolations": 0}}


def test_preemption_leaves_nodes_alone_that_stay_over() -> None:
    """What the killed pods request is taken off first; a node that is below its limit then stays a candidate."""
    bench = Bench(CLOSED)
    for number, name in enumerate(("node-1", "node-2")):
        requests_ = ResourceList({"cpu": 200 + 600 * number})
        bench.view.state.put_pod(Pod(name, uid=f"uid-of-{name}", node_name=name, requests=requests_, scheduled_at=0.0))
    bench.metrics.held = metrics({**LOADS, "node-2": 80.0})
    document = {
        "Pod": asked(cpu="1")["Pod"], "NodeNameToVictims": None,
        "NodeNameToMetaVictims": victims("node-1", "node-1") | victims("node-2", "node-2"),
    }  # fmt: skip
    found = client(bench).post("/preempt", data=orjson.dumps(document)).json
    assert found == {"NodeNameToMetaVictims": victims("node-2", "node-2")}
    for bad in (b"{", b"[]", b"{}", orjson.dumps({**document, "NodeNameToMetaVictims": {"node-1": {"Pods": [1]}}})):
        assert client(bench).post("/preempt", data=bad).status_code == 400


def test_requests_that_cannot_be_answered_are_refused() -> None:
    """Whole nodes are no names: the answer would be no node at all."""
    whole = {**asked(), "NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "node-1"}}]}}
    answer = client(Bench()).post("/filter", data=orjson.dumps(whole))
    assert answer.status_code == 400
    assert "nodeCacheCapable" in answer.json["error"]["message"]
    assert client(Bench()).post("/filter", data=b"{").status_code == 400


def test_a_defect_lets_all_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in the filter costs no pod its nodes."""
    bench = Bench()
    monkeypatch.setattr(bench.filter, "answer", lambda _: 1 / 0)
    found = client(bench).post("/filter", data=orjson.dumps(asked(*LOADS))).json
    assert found["NodeNames"] == list(LOADS)


def test_the_schedulers_file_has_the_filter() -> None:
    """``--filter`` writes the verb and asks about all nodes; a file without the latter is named."""
    made = render_config(CONFIGURATION, ExtenderEndpoint("http://127.0.0.1:2021", filters=True))
    assert made["extenders"][0]["filterVerb"] == "filter"
    assert made["percentageOfNodesToScore"] == 100
    assert list(validate_config(made)) == []
    found = " ".join(validate_config({**made, "percentageOfNodesToScore": 10}))
    assert "percentageOfNodesToScore" in found
    del made["extenders"][0]["preemptVerb"]
    assert "preemptVerb" in " ".join(validate_config(made))
    made["extenders"][0]["filterVerb"] = "filters"
    assert "answers 'filter'" in " ".join(validate_config(made))
    assert "filterVerb" not in render_config(CONFIGURATION, ExtenderEndpoint("http://127.0.0.1:2021"))["extenders"][0]
