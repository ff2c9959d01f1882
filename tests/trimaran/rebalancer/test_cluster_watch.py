"""Watches of the rebalancer: synced once every kind is listed, and as old as the kind that is longest silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.nodes_api import http_error
from support.rebalancing import NOW, deployment, node, pod, rfc3339
from support.servers import wait_until
from support.watched_api import PATHS, WatchedApi

from runtime.kubernetes.api import ResourceExpired
from runtime.kubernetes.paths import NODES, PODS
from runtime.kubernetes.workloads import Workload
from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer.cluster_watch import BUDGETS, SCALERS, WORKLOADS, ClusterWatch
from trimaran.rebalancer.facts import NodeBarrier
from trimaran.rebalancer.look import NO_USE, ClusterLook

WEB = Workload("default", "Deployment", "app-a")


@contextmanager
def watching(api: WatchedApi) -> Iterator[ClusterWatch]:
    """Start the watches; yield them once all lists that are not held are stored."""
    watch = ClusterWatch(api, api)
    watch.start()
    try:
        wait_until(lambda: api.watched == set(PATHS) - api.held, "the lists are stored")
        yield watch
    finally:
        watch.close()


def look_of(watch: ClusterWatch) -> ClusterLook:
    return watch.look(NO_USE, {}, (0.0, 0.0), NOW)


@pytest.mark.parametrize("path", PATHS)
def test_the_cluster_is_known_once_every_kind_is_listed(path: str) -> None:
    """While the list of one kind has not arrived, the watches are not synced."""
    api = WatchedApi(held=path)
    with watching(api) as watch:
        assert not watch.is_synced
        api.release()
        wait_until(lambda: watch.is_synced, "every list has arrived")


@pytest.mark.parametrize("path", PATHS)
def test_one_silent_kind_makes_the_watches_old(path: str) -> None:
    """The age is the time since the API server last reported on the kind that is longest silent."""
    api, begin = WatchedApi(held=path), time.monotonic()
    with watching(api) as watch:
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 0.2, "some time passes")
        for other in set(PATHS) - {path}:
            api.tell(other, "BOOKMARK", {})
        age = watch.age_seconds
        assert 0.2 < age <= time.monotonic() - begin


def test_a_change_is_in_the_next_look() -> None:
    """A look has workloads, budgets, scalings and nodes as the API server sent them last, without deleted ones."""
    api = WatchedApi()
    budget = {"metadata": {"name": "budget", "namespace": "default"}, "status": {"disruptionsAllowed": 1},
              "spec": {"selector": {"matchLabels": {"app": "app-a"}}}}  # fmt: skip
    scaler = {"metadata": {"name": "scaler", "namespace": "default"}, "status": {"lastScaleTime": rfc3339(NOW - 60)},
              "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "app-a"}}}  # fmt: skip
    with watching(api) as watch:
        look = look_of(watch)
        assert (len(look.nodes), len(look.pods), look.state.workloads[WEB].replicas) == (3, 10, 2)
        assert (look.state.budgets, look.state.scalers) == ({}, {})
        api.tell(BUDGETS, "ADDED", budget)
        api.tell(SCALERS, "ADDED", scaler)
        api.tell(WORKLOADS["Deployment"], "MODIFIED", deployment("app-a", 3))
        api.tell(WORKLOADS["StatefulSet"], "ADDED", deployment("db", 4, "StatefulSet"))
        api.tell(NODES, "MODIFIED", node("node-idle", spec={"unschedulable": True}))
        look = look_of(watch)
        assert [each.allowed for each in look.state.budgets["default"]] == [1]
        assert look.state.scalers == {WEB: NOW - 60}
        assert look.state.workloads[WEB].replicas == 3
        assert look.state.workloads[Workload("default", "StatefulSet", "db")].replicas == 4
        assert look.nodes["node-idle"].barriers == {NodeBarrier.CORDONED}
        for path, gone in ((BUDGETS, budget), (SCALERS, scaler), (WORKLOADS["Deployment"], deployment("app-a", 3))):
            api.tell(path, "DELETED", gone)
        api.tell(NODES, "DELETED", node("node-idle"))
        look = look_of(watch)
        assert (look.state.budgets, look.state.scalers, WEB in look.state.workloads) == ({}, {}, False)
        assert (set(look.nodes), set(watch.node_names())) == ({"node-hot", "node-cold"}, {"node-hot", "node-cold"})


@pytest.mark.parametrize("kind", ["finished", "deleted"])
def test_a_pod_that_is_gone_is_no_pod_of_its_workload(kind: str) -> None:
    """A finished or deleted pod is in no look, so that it neither counts as a replica nor moves."""
    api, uid = WatchedApi(), "uid-of-default-app-a-hot"
    with watching(api) as watch:
        manifest = pod("app-a-hot", "node-hot", of="app-a")
        assert uid in look_of(watch).pods
        if kind == "finished":
            api.tell(PODS, "MODIFIED", {**manifest, "status": {**manifest["status"], "phase": "Succeeded"}})
        else:
            api.tell(PODS, "DELETED", manifest)
        look = look_of(watch)
        assert uid not in look.pods
        assert [each.pod.name for each in look.members[WEB]] == ["app-a-idle"]


@pytest.mark.parametrize("path", [NODES, PODS, WORKLOADS["Deployment"]])
def test_what_a_new_list_lacks_is_gone(path: str) -> None:
    """An object that was deleted while the watch was broken is in no look after the next list."""
    api = WatchedApi()
    with watching(api) as watch:
        look = look_of(watch)
        assert ("node-hot" in look.nodes, "uid-of-default-app-a-hot" in look.pods, WEB in look.state.workloads) == (
            True, True, True,
        )  # fmt: skip
        del api.objects[path][0]
        api.fail(path, ResourceExpired("too old"))
        gone: dict[str, Callable[[ClusterLook], bool]] = {
            NODES: lambda look: "node-hot" not in look.nodes,
            PODS: lambda look: "uid-of-default-app-a-hot" not in look.pods,
            WORKLOADS["Deployment"]: lambda look: WEB not in look.state.workloads,
        }
        wait_until(lambda: gone[path](look_of(watch)), "the new list is stored")


@pytest.mark.parametrize(("path", "rule"), [(PODS, '"pods"'), (BUDGETS, '"poddisruptionbudgets"')])
def test_a_watch_without_its_right_names_the_rule(path: str, rule: str) -> None:
    """While one kind may not be watched, the failures have the reason and the missing rule, once."""
    api = WatchedApi()
    with watching(api) as watch:
        assert watch.failures == ()
        api.fail(path, http_error(403))
        wait_until(lambda: watch.failures, "the failure is shown")
        (failure,) = watch.failures
        assert "403" in failure
        assert rule in failure


def test_a_node_with_a_pod_that_cannot_be_read_is_unknown() -> None:
    """The look names the node whose free CPU and memory are not known, until that pod is gone."""
    api, bad = WatchedApi(), pod("bad", "node-idle", request="much")
    with watching(api) as watch:
        assert look_of(watch).unknown_nodes == {}
        api.tell(PODS, "ADDED", bad)
        assert set(look_of(watch).unknown_nodes) == {"node-idle"}
        api.tell(PODS, "DELETED", bad)
        assert look_of(watch).unknown_nodes == {}


def test_pods_with_a_note_are_found() -> None:
    """A note that a former leader left on a pod is found, and no longer once it is removed."""
    api, note = WatchedApi(), TargetNote("node-idle", "node-hot", NOW).annotations()
    with watching(api) as watch:
        assert watch.noted_pods() == []
        noted = pod("app-a-hot", "node-hot", of="app-a", metadata={"annotations": note})
        api.tell(PODS, "MODIFIED", noted)
        assert [each.name for each in watch.noted_pods()] == ["app-a-hot"]
        api.tell(PODS, "MODIFIED", pod("app-a-hot", "node-hot", of="app-a"))
        assert watch.noted_pods() == []
