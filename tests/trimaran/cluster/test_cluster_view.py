"""Nodes and pods of an API server as one table: what reaches it, what does not, and how it ends."""

import itertools
import logging
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_plane.manifests import Object, container, node, pod
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_api import SILENCE, ScriptedApi, page
from support.servers import wait_until

from runtime.kubernetes.api import Event
from scoring import Container, NodeTable, Pod, ResourceList
from trimaran.cluster.interner import Shared
from trimaran.cluster.view import NODES, ClusterView
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

DOCUMENT = Path(__file__).parents[3] / "docs" / "cluster.md"


def bound(name: str, node_name: str, cpu: str = "100m", uid: str = "") -> Object:
    """Return a pod on a node as the API has it."""
    made = pod(name, container(requests={"cpu": cpu}), nodeName=node_name)
    return {**made, "metadata": {**made["metadata"], "uid": uid or f"uid-{name}"}}


class TwoLists:
    """An API with a script for nodes and one for pods."""

    def __init__(self, nodes: ScriptedApi, pods: ScriptedApi) -> None:
        self.nodes, self.pods = nodes, pods

    def pages(self, path: str, *arguments: Any, **query: Any) -> Any:
        return (self.nodes if path == NODES else self.pods).pages(path, *arguments, **query)

    def watch(self, path: str, *arguments: Any, **query: Any) -> Any:
        return (self.nodes if path == NODES else self.pods).watch(path, *arguments, **query)

    def abort(self) -> None:
        self.nodes.abort()
        self.pods.abort()


def scripted(
    nodes: list[Object], pods: list[Object], node_events: list[Event] | None = None, events: list[Event] | None = None
) -> TwoLists:
    """Return an API that has these, tells of these events, and then falls silent."""
    return TwoLists(
        ScriptedApi([[page("1", *nodes)]], [[*(node_events or []), SILENCE]]),
        ScriptedApi([[page("1", *pods)]], [[*(events or []), SILENCE]]),
    )


def followed(api: TwoLists) -> ClusterView:
    """Return a view of an API once all that it has to tell was told."""
    view = ClusterView(api).start()
    assert view.wait(10)
    assert api.nodes.silent.wait(10)
    assert api.pods.silent.wait(10)
    return view


def test_lists_and_events_are_one_table() -> None:
    """Lists come in pieces, pods before their nodes; events change them; the view is that of a fresh list."""
    nodes = [node("node-1"), node("node-2")]
    pods = [bound(f"pod-{number}", f"node-{number % 3}") for number in range(500)]
    late, gone, changed = node("node-0"), pods[1], bound("pod-500", "node-2", "300m")
    view = followed(
        scripted(nodes, pods, [Event("ADDED", late, "2")], [Event("DELETED", gone, "2"), Event("ADDED", changed, "3")])
    )
    expected = NodeTable.from_k8s([*nodes, late], [*pods[:1], *pods[2:], changed])
    with view.reading() as table:
        assert sorted(table.names) == sorted(expected.names)
        assert table.requests("cpu")[table.rows_of(expected.names)].tolist() == expected.requests("cpu").tolist()
    view.close()


def test_an_object_that_cannot_be_read_is_told_once_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Neither as listed nor as an update, which takes the earlier one away; a deleted one is not told of."""
    bad = [bound(name, "node-1", "much") for name in ("listed", "updated", "mended", "deleted")]
    good = [bound(name, "node-1") for name in ("updated", "mended")]
    events = [
        Event("MODIFIED", bad[1], "2"), Event("MODIFIED", bad[1], "3"),
        Event("MODIFIED", good[1], "4"), Event("DELETED", bad[3], "5"),
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        view = followed(scripted([node("node-1")], [bad[0], good[0], bad[2], bad[3]], events=events))
    assert view.unreadable.keys() == {"default/listed", "default/updated"}
    assert "default/updated" in view.unreadable["default/updated"]
    assert len([each for each in caplog.records if "cannot be read" in each.message]) == 4
    with view.reading() as table:
        assert [each.name for each in table.pods("node-1")] == ["mended"]
    view.close()


def test_close_ends_both_watches_without_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Close returns once nothing is under way, and nothing is logged as broken; the table stays readable."""
    view = followed(scripted([node("node-1")], []))
    with caplog.at_level(logging.WARNING):
        view.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("reflector-")]
    assert not caplog.records
    with view.reading() as table:
        assert table.names == ("node-1",)


def test_assumed_until_the_watch_tells_or_time_is_up() -> None:
    """A placement that was advised counts, once, until it is too old to be believed."""
    now = [0.0]
    api = scripted([node("node-1")], [])
    view = ClusterView(api, assume_seconds=30, monotonic=lambda: now[0]).start()
    assert view.wait(10)
    wanted = Pod(name="new", containers=(Container(ResourceList({"cpu": 100})),))
    view.assume(wanted, "node-1")
    view.assume(wanted, "node-1")
    with view.reading() as table:
        assert table.requests("cpu").tolist() == [100]
    now[0] = 30.0
    with view.reading() as table:
        assert table.requests("cpu").tolist() == [0]
    assert view.outcomes.expired == 1
    view.close()


def test_a_pod_that_is_deleted_is_remembered_for_as_long_as_windows_show_it() -> None:
    """When it left is known; a pod that became unreadable, was only assumed or waited did not leave."""
    pods = [bound(name, "node-1") for name in ("deleted", "unreadable", "missing")]
    waiting = bound("waiting", "")
    events = [
        Event("MODIFIED", bound("unreadable", "node-1", "much"), "2"),
        Event("DELETED", waiting, "3"),
        Event("DELETED", pods[0], "4"),
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
def test_longer_windows_are_remembered_for_longer(remember: tuple[float, ...], left: list[str]) -> None:
    """It grows with the windows that metrics have, and what a longer one needs is kept."""
    pods = [bound(name, "node-1") for name in ("first", "second")]
    api = scripted([node("node-1")], pods, events=[Event("DELETED", pods[0], "3"), Event("DELETED", pods[1], "4")])
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


def test_a_pod_that_cannot_be_counted_does_not_stop_the_view() -> None:
    """Two pods of one node ask for more than fits a number: the one is counted, the other is told of, the third too."""
    pods = [pod(name, container(requests={"memory": "8E"}), nodeName="node-1") for name in ("one", "two")]
    huge = [{**each, "metadata": {**each["metadata"], "uid": each["metadata"]["name"]}} for each in pods]
    view = followed(
        scripted([node("node-1")], [huge[0], bound("third", "node-1")], events=[Event("ADDED", huge[1], "2")])
    )
    with view.reading() as table:
        counted = {each.name for each in table.pods("node-1")}
    assert "third" in counted
    assert counted | {name.rpartition("/")[2] for name in view.unreadable} == {"one", "two", "third"}
    assert view.lists == 2
    view.close()


def test_the_documented_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pending pod is scored and assumed, each seeing the ones before."""
    made, way_in = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[::-1]
    assert "KubernetesApi(Access(" in way_in
    waiting = [bound(name, "", "1500m") for name in ("first", "second")]
    assumed = []
    monkeypatch.setattr(ClusterView, "assume", lambda _, pod, node_name: assumed.append((pod.name, node_name)))
    data = {name: NodeMetrics((Metric("m", "CPU", "AVG", "15m", value),)) for name, value in (("a", 30.0), ("b", 5.0))}
    snapshot = WatcherMetrics(1900, Window("15m", 1000, 1900), "test", data)
    exec(made, {"api": scripted([node("a"), node("b")], waiting), "snapshot": snapshot})
    assert [name for name, _ in assumed] == ["first", "second"]


def test_pods_of_one_owner_share_what_they_have_in_common() -> None:
    """Their containers are one object in memory."""
    api = scripted([node("node-1")], [bound("pod-1", "node-1"), bound("pod-2", "node-1")])
    view = followed(api)
    with view.reading() as table:
        first, second = table.pods("node-1")
    assert first != second
    assert first.containers is second.containers
    assert first.node_name is second.node_name
    view.close()


@given(st.lists(st.tuples(st.sampled_from(["100m", "100.5m", "101m", "0.1", "1"]), st.booleans()), max_size=6))
def test_what_is_shared_is_equal_to_the_last_billionth(wanted: list[tuple[str, bool]]) -> None:
    """Amounts that differ only before they are rounded stay apart, and so do a sidecar and a container."""
    shared = Shared()
    for cpu, sidecar in wanted:
        kind = "initContainers" if sidecar else "containers"
        each = {"metadata": {"name": cpu}, "spec": {kind: [container(requests={"cpu": cpu}, sidecar=sidecar)]}}
        read, kept = Pod.from_k8s(each), shared.within(Pod.from_k8s(each), apart=frozenset({"name", "uid"}))
        assert kept == read
        for own, theirs in zip(
            (*read.containers, *read.init_containers), (*kept.containers, *kept.init_containers), strict=True
        ):
            assert own.requests.nano("cpu") == theirs.requests.nano("cpu")


def test_what_is_shared_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of owners that are long gone do not pile up."""
    monkeypatch.setattr("trimaran.cluster.interner._MOST", 50)
    shared = Shared()
    for number in range(1000):
        shared.within(Pod(name=f"{number}", node_name=f"node-{number}"), apart=frozenset({"name", "uid"}))
    assert len(shared) < 70


def test_the_view_tells_how_old_it_is() -> None:
    """Age is from the last word of the API server on."""
    view = ClusterView(scripted([], []))
    before = view.age_seconds
    assert not view.is_synced
    wait_until(lambda: view.age_seconds > before, "time passes", 5)
    view.close()
