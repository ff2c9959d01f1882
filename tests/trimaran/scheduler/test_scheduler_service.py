"""Scheduling thread, outcomes, shadow, settings and rights of ``trimaran scheduler``, without a control plane."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.binding_api import BindingApi, refusal
from support.waiting import LIMIT_SECONDS

from runtime.errors import SettingsError
from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.paths import NODES, OPTIONAL_LISTS, PODS, list_path
from runtime.settings.loading import load
from trimaran.scheduler.framework.decisions import Bind, Prepare, Unschedulable
from trimaran.scheduler.framework.extension_points import Preemption
from trimaran.scheduler.plugins.preemption.shared_nodes import node_sharing
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.profiles.object_cache import STANDARD_KINDS
from trimaran.scheduler.service.binder import Binder
from trimaran.scheduler.service.event_queue import EventQueue, NodeFeed, PodFeed
from trimaran.scheduler.service.executor import DecisionExecutor
from trimaran.scheduler.service.pod_events import PodEventWriter
from trimaran.scheduler.service.pod_status_writer import StatusWriter
from trimaran.scheduler.service.scheduling_loop import DecisionHandler, SchedulingLoop
from trimaran.scheduler.service.service import setup_of
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.scheduler.service.shadow import ShadowRecord
from trimaran.scheduler.service.telemetry import SchedulerTelemetry

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "deploy/kubernetes/standalone-scheduler.yaml"


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}


def pod(name: str, cpu: str = "1", node_name: str = "", uid: str = "") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "ours", "containers": [container], **({"nodeName": node_name} if node_name else {})}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
        "spec": spec,
    }


class Live:
    """A scheduler with two nodes and the feeds of its event_queue; its thread does not run."""

    def __init__(self, make: Callable[..., DecisionHandler] | None = None) -> None:
        self.event_queue, self.telemetry, self.api = EventQueue(), SchedulerTelemetry(), BindingApi()
        self.scheduler = read_setup(default_document("ours")).scheduler(seed=0)
        self.leads = True
        self.handler = self._executor() if make is None else make(self.scheduler, self.telemetry)
        self.nodes, self.pods = NodeFeed(self.event_queue), PodFeed(self.event_queue, self.handler.observe)  # type: ignore[attr-defined]
        self.loop = SchedulingLoop(
            self.scheduler,
            self.event_queue,
            self.handler,
            lambda: self.leads,
            lambda: None,
            decides_early=make is not None,
        )
        self.nodes.replace([node("node-0"), node("node-1")])

    def _executor(self) -> DecisionExecutor:
        events = PodEventWriter(self.api, lambda: self.leads, "ours")
        statuses = StatusWriter([self.api], lambda: self.leads, events.write)
        binder = Binder([self.api, self.api], lambda: self.leads, is_outdated=self.scheduler.is_outdated)
        executor = DecisionExecutor(binder, statuses, events, self.event_queue, self.telemetry, ["ours"])
        executor.start()
        return executor

    def run(self, until: Callable[[], object]) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not until():
            self.loop.run_once()
            assert time.monotonic() < end, self.api.sent

    def value(self, sample: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(sample, labels) or 0.0


@pytest.fixture
def live() -> Iterator[Live]:
    live = Live()
    yield live
    assert isinstance(live.handler, DecisionExecutor)
    assert live.handler.stop()


def test_pods_are_bound_within_the_room(live: Live) -> None:
    """Eight of ten pods fit; the others get the condition, an Event, and a node once there is one."""
    for number in range(10):
        live.api.add(f"web-{number}", f"uid-web-{number}")
    live.pods.replace([pod(f"web-{number}") for number in range(10)])
    bound = lambda: [each["spec"]["nodeName"] for each in live.api.pods.values() if "nodeName" in each["spec"]]  # noqa: E731
    scheduled = lambda: live.value("scheduler_schedule_attempts_total", result="scheduled", profile="ours")  # noqa: E731
    live.run(lambda: scheduled() == 8)
    live.run(lambda: sum("conditions" in each["status"] for each in live.api.pods.values()) == 2)
    assert sorted(bound()) == ["node-0"] * 4 + ["node-1"] * 4
    live.nodes.put(node("node-2"))
    live.run(lambda: scheduled() == 10)
    assert bound().count("node-2") == 2
    assert live.value("scheduler_pod_scheduling_attempts_count") == 10


def test_nothing_is_decided_before_this_process_leads(live: Live) -> None:
    """Changes are applied, but no request is sent."""
    live.leads = False
    live.api.add("web", "uid-web")
    live.pods.put(pod("web"))
    for _ in range(10):
        live.loop.run_once()
    assert live.api.sent == []
    live.leads = True
    live.run(lambda: live.api.pods["default/web"]["spec"])


def test_a_refused_binding_frees_its_node(live: Live) -> None:
    """The pod is counted as an error, and tried again after its backoff."""
    live.api.add("large", "uid-large")
    live.api.before = lambda _method, path: refusal(409) if path.endswith("binding") else None
    live.pods.put(pod("large", cpu="4"))
    live.run(lambda: live.value("scheduler_schedule_attempts_total", result="error", profile="ours") == 1)
    live.api.before = lambda _method, _path: None
    live.run(lambda: live.api.pods["default/large"]["spec"])


def test_room_that_another_scheduler_takes_first_and_rejections_are_counted(live: Live) -> None:
    """A decision that waits for the API server is dropped; a rejected pod keeps its node out for a while."""
    live.nodes.drop(node("node-1"))
    waiting = threading.Event()
    live.api.before = lambda _method, _path: None if waiting.wait(5) else refusal(500)
    for number in range(3):  # more than there are threads to bind
        live.api.add(f"web-{number}", f"uid-web-{number}")
        live.pods.put(pod(f"web-{number}"))
    live.run(lambda: live.scheduler.in_flight == 3)
    live.pods.put(
        {**pod("other", "2", "node-0"), "spec": {**pod("other", "2", "node-0")["spec"], "schedulerName": "x"}}
    )
    live.run(lambda: live.scheduler.is_outdated("uid-web-2"))
    waiting.set()
    live.run(lambda: live.value("trimaran_scheduler_outdated_decisions_total") == 1)
    assert "nodeName" not in live.api.pods["default/web-2"]["spec"]
    assert isinstance(live.handler, DecisionExecutor)
    assert live.handler.has_bound("uid-web-0", "node-0")
    assert not live.handler.has_bound("uid-web-0", "node-1")
    assert not live.handler.has_bound("uid-other", "node-0")
    live.handler.report_rejection("node-0", "OutOfcpu")
    live.run(lambda: live.loop.counts.get("nodes_in_backoff") == 1)
    assert live.value("trimaran_scheduler_kubelet_rejections_total", reason="OutOfcpu") == 1


def test_a_change_that_cannot_be_applied_stops_no_other(live: Live) -> None:
    """A defect with one object leaves it out."""

    def fail(*_arguments: object) -> None:
        raise RuntimeError("defect")

    live.event_queue.post(fail)
    live.api.add("web", "uid-web")
    live.pods.put(pod("web"))
    live.run(lambda: live.api.pods["default/web"]["spec"])


def test_shadow_compares_and_sends_nothing() -> None:
    """The regret is the difference of our scores; the pod then counts where the other scheduler has bound it."""
    live = Live(ShadowRecord)
    record = live.handler
    assert isinstance(record, ShadowRecord)
    live.pods.put(pod("filler", "3", "node-0"))
    for number, theirs in enumerate(("node-0", "node-1")):
        live.pods.put(pod(f"web-{number}"))
        live.pods.put(pod(f"web-{number}", node_name=theirs))
    live.pods.put(pod("large", cpu="2"))
    live.pods.put(pod("large", cpu="2", node_name="node-0"))
    live.run(lambda: record.total == 3)
    first, second, large = record.compared
    assert first.regret is not None
    assert (first.ours, first.theirs, first.regret > 0) == ("node-1", "node-0", True)
    assert (second.ours, second.theirs, second.regret) == ("node-1", "node-1", 0)
    assert (large.ours, large.theirs, large.regret) == ("node-1", "node-0", None)
    assert (record.agreed, record.missed) == (1, 0)
    report: Any = record.report()
    assert (report["compared"], report["infeasible"]) == (3, 1)
    assert live.value("trimaran_scheduler_shadow_pods_total", agreed="false") == 2
    assert {placed.pod.name for _, placed in live.scheduler.state.table.placed_pods()} == {
        "filler", "web-0", "web-1", "large",
    }  # fmt: skip
    assert live.api.sent == []


def test_shadow_compares_pods_that_would_wait_and_preemptions() -> None:
    """The first decision on a pod that waits counts; a preemption is compared by its nominated node, without regret."""
    live = Live(ShadowRecord)
    record, table = live.handler, live.scheduler.state
    assert isinstance(record, ShadowRecord)
    live.run(lambda: len(table.table) == 2)
    waiting, preempting = Pod.from_k8s(pod("waits")), Pod.from_k8s(pod("preempts"))
    for each in (waiting, preempting):
        record.observe(each.uid, each)
    record.handle(Prepare(waiting, "node-0", ()), 0.0)
    record.handle(Bind(waiting, "node-1", 2), 0.0)
    record.handle(Unschedulable(preempting, "full", preemption=Preemption("node-1", ())), 0.0)
    for each, node_name in ((waiting, "node-0"), (preempting, "node-1")):
        record.observe(each.uid, replace(each, node_name=node_name))
    assert (record.total, record.agreed, record.missed, record.nominated) == (2, 2, 0, 1)
    assert [(each.ours, each.regret) for each in record.compared] == [("node-0", 0)]
    report: Any = record.report()
    assert (report["infeasible"], report["nominated"]) == (0, 1)


def test_shared_nodes_are_found() -> None:
    """Nodes with pods of several schedulers, nodes without a taint, and pods without a selector; not DaemonSets."""
    taint = {"taints": [{"key": "dedicated", "value": "ours", "effect": "NoSchedule"}]}
    nodes = [Node.from_k8s({**node(f"node-{number}"), "spec": taint if number else {}}) for number in range(3)]
    ours = [
        Pod(f"ours-{number}", node_name=f"node-{number}", scheduler_name="ours", node_selector={"dedicated": "ours"})
        for number in range(3)
    ]
    daemon = pod("daemon", node_name="node-2")
    daemon["spec"]["schedulerName"] = "default-scheduler"
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
    sharing = node_sharing(nodes, [*ours, Pod("other", node_name="node-1"), Pod.from_k8s(daemon)], ["ours"])
    assert (sharing.own, sharing.shared, sharing.untainted) == (("node-0", "node-2"), ("node-1",), ("node-0",))
    assert ["node-1" in sharing.problems()[0], "node-0" in sharing.problems()[1]] == [True, True]
    assert node_sharing(nodes, ours[1:], ["ours"]).problems() == []
    anywhere = replace(ours[1], node_selector={})
    (problem,) = node_sharing(nodes, [anywhere], ["ours"]).problems()
    assert "default/ours-1" in problem
    assert node_sharing(nodes[1:], [anywhere], ["ours"]).problems() == []


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({}, "--name"),
        ({"scheduler.name": "ours", "scheduler.config": "x.yaml"}, "scheduler.name"),
        ({"scheduler.config": "missing.yaml"}, "missing.yaml cannot be read"),
    ],
)
def test_a_scheduler_without_a_name_does_not_start(flags: dict[str, object], problem: str) -> None:
    """It is off by default: it needs a file or a name, not both."""
    with pytest.raises(SettingsError, match=problem):
        setup_of(load(SchedulerSettings, flags).settings.scheduler)


def test_the_manifest_grants_what_is_asked() -> None:
    """The account may list and watch what is watched, and has no other right than those of its requests."""
    documents = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
    granted = {
        (group, resource, verb)
        for rule in documents["ClusterRole"]["rules"]
        for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip
    groups = [path for paths in OPTIONAL_LISTS.values() for path in paths]
    paths = [path.split("/") for path in (NODES, PODS, *map(list_path, STANDARD_KINDS), *groups)]
    watched = {("" if parts[1] == "api" else parts[2], parts[-1]) for parts in paths}
    assert granted == {
        *((*each, verb) for each in watched for verb in ("list", "watch")),
        ("", "pods/binding", "create"), ("", "pods/status", "patch"), ("", "pods", "get"), ("", "pods", "delete"),
        ("events.k8s.io", "events", "create"),
    }  # fmt: skip
    setup = read_setup(yaml.safe_load(documents["ConfigMap"]["data"]["scheduler.yaml"]))
    assert setup.scheduler_names == ("trimaran-standalone",)
