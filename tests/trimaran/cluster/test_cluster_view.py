"""View of an API server's nodes and pods as one table: updates, unreadable objects, shutdown and memory."""

import itertools
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_plane.manifests import Object, container, node, pod
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_api import SILENCE, ScriptedApi, page
from support.servers import wait_until
from support.threads import started

from runtime.kubernetes.api import WatchEvent
from runtime.kubernetes.paths import NODES
from runtime.kubernetes.workloads import workload_of
from scoring import Container, NodeTable, Pod, ResourceList, Workload
from trimaran.cluster.interner import Interner
from trimaran.cluster.view import ClusterView
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

DOCUMENT = Path(__file__).parents[3] / "docs" / "cluster.md"


def bound(name: str, node_name: str, cpu: str = "100m", uid: str = "") -> Object:
    """Return a pod that is bound to a node, as the API server sends it."""
    made = pod(name, container(requests={"cpu": cpu}), nodeName=node_name)
    return {**made, "metadata": {**made["metadata"], "uid": uid or f"uid-{name}"}}


class TwoLists:
    """API with one script for nodes and one for pods, which begins after that of the nodes."""

    def __init__(self, nodes: ScriptedApi, pods: ScriptedApi) -> None:
        self.nodes, self.pods = nodes, pods

    def pages(self, path: str, *arguments: Any, **query: Any) -> Any:
        if path == NODES:
            return self.nodes.pages(path, *arguments, **query)
        assert self.nodes.silent.wait(10)  # a pod that leaves before its node is known is not remembered
        return self.pods.pages(path, *arguments, **query)

    def watch(self, path: str, *arguments: Any, **query: Any) -> Any:
        return (self.nodes if path == NODES else self.pods).watch(path, *arguments, **query)

    def abort(self) -> None:
        self.nodes.abort()
        self.pods.abort()


def scripted(
    nodes: list[Object],
    pods: list[Object],
    node_events: list[WatchEvent] | None = None,
    events: list[WatchEvent] | None = None,
) -> TwoLists:
    """Return an API that lists these objects, sends these events, and is then silent."""
    return TwoLists(
        ScriptedApi([[page("1", *nodes)]], [[*(node_events or []), SILENCE]]),
        ScriptedApi([[page("1", *pods)]], [[*(events or []), SILENCE]]),
    )


def followed(api: TwoLists) -> ClusterView:
    """Return a view that has processed all events of an API."""
    view = ClusterView(api).start()
    assert view.wait(10)
    assert api.nodes.silent.wait(10)
    assert api.pods.silent.wait(10)
    return view


def test_lists_and_events_result_in_one_table() -> None:
    """After paged lists and events the table equals that of a fresh list."""
    nodes = [node("node-1"), node("node-2")]
    pods = [bound(f"pod-{number}", f"node-{number % 3}") for number in range(500)]
    late, gone, changed = node("node-0"), pods[1], bound("pod-500", "node-2", "300m")
    view = followed(
        scripted(
            nodes,
            pods,
            [WatchEvent("ADDED", late, "2")],
            [WatchEvent("DELETED", gone, "2"), WatchEvent("ADDED", changed, "3")],
        )
    )
    expected = NodeTable.from_k8s([*nodes, late], [*pods[:1], *pods[2:], changed])
    with view.reading() as table:
        assert sorted(table.names) == sorted(expected.names)
        assert table.requests("cpu")[table.rows_of(expected.names)].tolist() == expected.requests("cpu").tolist()
    view.close()


def test_each_binding_of_a_pending_pod_is_reported_once() -> None:
    """The callback gets the pod and its creation time when it gets a node; pods that were bound before do not count."""
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    waiting, done = pod("web", schedulerName="load-aware"), bound("web", "node-1")
    for each in (waiting, done):
        each["metadata"] |= {"uid": "uid-web", **created}
    events = [WatchEvent("MODIFIED", done, "2"), WatchEvent("MODIFIED", done, "3")]
    api = scripted([node("node-1")], [waiting, bound("old", "node-1")], events=events)
    reported: list[tuple[str, str, float | None]] = []
    view = ClusterView(api, on_bound=lambda pod, at: reported.append((pod.name, pod.node_name, at))).start()
    assert view.wait(10)
    assert api.pods.silent.wait(10)
    view.close()
    assert reported == [("web", "node-1", 1767225600.0)]


def test_an_unreadable_object_is_logged_once_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable object is logged once, its earlier version no longer counts, and a delete forgets its error."""
    bad = [bound(name, "node-1", "much") for name in ("listed", "updated", "mended", "deleted")]
    good = [bound(name, "node-1") for name in ("updated", "mended")]
    events = [
        WatchEvent("MODIFIED", bad[1], "2"), WatchEvent("MODIFIED", bad[1], "3"),
        WatchEvent("MODIFIED", good[1], "4"), WatchEvent("DELETED", bad[3], "5"),
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        view = followed(scripted([node("node-1")], [bad[0], good[0], bad[2], bad[3]], events=events))
    assert view.unreadable.keys() == {"default/listed", "default/updated"}
    assert "default/updated" in view.unreadable["default/updated"]
    assert len([each for each in caplog.records if "cannot be read" in each.message]) == 4
    with view.reading() as table:
        assert [each.name for each in table.pods("node-1")] == ["mended"]
    view.close()


def test_nodes_with_pods_that_cannot_be_counted_are_unknown() -> None:
    """A node is unknown while a pod on it is unreadable or has claims of an unknown form, until the pod finishes."""
    claiming = bound("claiming", "node-2")
    claiming["status"] = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}]}
    done = {**bound("done", "node-3", "much"), "status": {"phase": "Failed"}}
    gone = [bound(f"gone-{n}", "node-4", "much") for n in range(2)]
    events = [WatchEvent("DELETED", gone[0], "2"), WatchEvent("MODIFIED", bound("gone-1", "node-4"), "3")]
    pods = [bound("bad", "node-1", "much"), claiming, done, *gone, pod("pending", container(requests={"cpu": "much"}))]
    view = followed(scripted([node(f"node-{n}") for n in range(1, 5)], pods, events=events))
    assert view.unknown_nodes == {
        "node-1": "pod default/bad cannot be read",
        "node-2": "pod default/claiming has resource claims with amounts in an unknown form",
    }
    view.close()


def test_close_ends_both_watches_without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Close ends all threads without a warning, and the table stays readable."""
    view = followed(scripted([node("node-1")], []))
    with caplog.at_level(logging.WARNING):
        view.close()
    assert not started("reflector-")
    assert not caplog.records
    with view.reading() as table:
        assert table.names == ("node-1",)


def test_an_assumed_pod_counts_until_it_expires() -> None:
    """An assumed pod counts once, and no longer after ``assume_seconds``."""
    now = [0.0]
    api = scripted([node("node-1")], [])
    view = ClusterView(api, assume_seconds=30, monotonic=lambda: now[0]).start()
    assert view.wait(10)
    assumed = Pod(name="new", containers=(Container(ResourceList({"cpu": 100})),))
    view.assume(assumed, "node-1")
    view.assume(assumed, "node-1")
    with view.reading() as table:
        assert table.requests("cpu").tolist() == [100]
    now[0] = 30.0
    with view.reading() as table:
        assert table.requests("cpu").tolist() == [0]
    assert view.outcomes.expired == 1
    view.close()


def test_a_deleted_pod_is_remembered() -> None:
    """A deleted pod is remembered with its time; an unreadable or pending pod is not."""
    pods = [bound(name, "node-1") for name in ("deleted", "unreadable", "missing")]
    waiting = bound("waiting", "")
    events = [
        WatchEvent("MODIFIED", bound("unreadable", "node-1", "much"), "2"),
        WatchEvent("DELETED", waiting, "3"),
        WatchEvent("DELETED", pods[0], "4"),
    ]
    api = scripted([node("node-1")], [*pods, waiting], events=events)
    view = ClusterView(api, clock=lambda: 1000.0).start()
    assert api.pods.silent.wait(10)
    assert api.nodes.silent.wait(10)
    view.close()
    with view.reading() as table:
        left = [(each.pod.name, each.left_at) for _, each in table.left_since(np.array([0.0]))]
    assert left == [("deleted", 1000.0)]


@pytest.mark.parametrize(("remember", "left"), [((), ["second"]), ((7200.0, 60.0), ["first", "second"])])
def test_departed_pods_are_remembered_for_the_longest_time_set(remember: tuple[float, ...], left: list[str]) -> None:
    """A longer time extends how long departed pods are remembered, and a shorter one does not reduce it."""
    pods = [bound(name, "node-1") for name in ("first", "second")]
    api = scripted(
        [node("node-1")], pods, events=[WatchEvent("DELETED", pods[0], "3"), WatchEvent("DELETED", pods[1], "4")]
    )
    hours = itertools.count(1000.0, 3600.0)  # each look at the clock is an hour later
    view = ClusterView(api, clock=lambda: next(hours))
    for seconds in remember:
        view.remember_departed(seconds)
    view.start()
    assert api.pods.silent.wait(10)
    assert api.nodes.silent.wait(10)
    view.close()
    with view.reading() as table:
        assert [each.pod.name for _, each in table.left_since(np.array([0.0]))] == left


def test_amounts_that_overflow_together_saturate() -> None:
    """Pods whose requests exceed 64 bits together are counted and close their node, until enough of them have gone."""
    pods = [bound(name, "node-1") for name in ("one", "two", "third")]
    for each in pods[:2]:
        each["spec"]["containers"] = [container(requests={"memory": "8E"})]
    view = followed(scripted([node("node-1")], pods, events=[WatchEvent("DELETED", pods[0], "2")]))
    with view.reading() as table:
        assert {each.name for each in table.pods("node-1")} == {"two", "third"}
        assert table.in_tree_requests("memory").tolist() == [8 * 10**18]
    assert view.unreadable == view.unknown_nodes == {}
    view.close()


def test_the_example_in_the_docs_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example in docs/cluster.md scores and assumes every pending pod."""
    loop, setup = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[::-1]
    assert "KubernetesApi(ApiServerConfig(" in setup
    waiting = [bound(name, "", "1500m") for name in ("first", "second")]
    assumed = []
    monkeypatch.setattr(ClusterView, "assume", lambda _, pod, node_name: assumed.append((pod.name, node_name)))
    data = {name: NodeMetrics((Metric("m", "CPU", "AVG", "15m", value),)) for name, value in (("a", 30.0), ("b", 5.0))}
    snapshot = WatcherMetrics(1900, Window("15m", 1000, 1900), "test", data)
    exec(loop, {"api": scripted([node("a"), node("b")], waiting), "snapshot": snapshot})
    assert [name for name, _ in assumed] == ["first", "second"]


def test_equal_fields_of_pods_are_interned() -> None:
    """Equal containers and node names of two pods are one object in memory."""
    api = scripted([node("node-1")], [bound("pod-1", "node-1"), bound("pod-2", "node-1")])
    view = followed(api)
    with view.reading() as table:
        first, second = table.pods("node-1")
    assert first != second
    assert first.containers is second.containers
    assert first.node_name is second.node_name
    view.close()


@given(st.lists(st.tuples(st.sampled_from(["100m", "100.5m", "101m", "0.1", "1"]), st.booleans()), max_size=6))
def test_interned_pods_equal_the_originals_exactly(wanted: list[tuple[str, bool]]) -> None:
    """Interning keeps apart amounts that differ before rounding, and sidecars from containers."""
    interner = Interner()
    for cpu, sidecar in wanted:
        kind = "initContainers" if sidecar else "containers"
        each = {"metadata": {"name": cpu}, "spec": {kind: [container(requests={"cpu": cpu}, sidecar=sidecar)]}}
        read, interned = (
            Pod.from_k8s(each),
            interner.intern(Pod.from_k8s(each), unique_fields=frozenset({"name", "uid"})),
        )
        assert interned == read
        for ours, theirs in zip(
            (*read.containers, *read.init_containers), (*interned.containers, *interned.init_containers), strict=True
        ):
            assert ours.requests.nano("cpu") == theirs.requests.nano("cpu")


def test_the_interner_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of deleted owners do not accumulate."""
    monkeypatch.setattr("trimaran.cluster.interner._MOST", 50)
    interner = Interner()
    for number in range(1000):
        interner.intern(Pod(name=f"{number}", node_name=f"node-{number}"), unique_fields=frozenset({"name", "uid"}))
    assert len(interner) < 70


def test_the_age_of_the_view_grows() -> None:
    """The age counts from the last message of the API server."""
    view = ClusterView(scripted([], []))
    before = view.age_seconds
    assert not view.is_synced
    wait_until(lambda: view.age_seconds > before, "time passes")
    view.close()


def test_pods_have_their_workloads() -> None:
    """Pods of two ReplicaSets of one Deployment have one workload, or the one of a label that the view is given."""

    def replica(revision: str) -> dict[str, Any]:
        manifest = bound(f"web-{revision}-x", "node-1")
        references = [{"kind": "ReplicaSet", "name": f"web-{revision}", "uid": revision, "controller": True}]
        labels = {"pod-template-hash": revision, "team": "search"}
        manifest["metadata"] |= {"ownerReferences": references, "labels": labels}
        return manifest

    def workloads(**options: Any) -> set[Workload | None]:
        view = ClusterView(scripted([node("node-1")], [replica("7f9c"), replica("5d4b")]), **options).start()
        assert view.wait(10)
        with view.reading() as table:
            named = {placed.pod.workload for placed in table.placed_on(0)}
        view.close()
        return named

    assert workloads() == {Workload("default", "Deployment", "web")}
    by_team = partial(workload_of, owner_labels=("team",))
    assert workloads(name_workload=by_team) == {Workload("default", "Label", "search")}
