"""AssignedPods, compared with upstream's cache for the same pods."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client import AssignedPods
from scoring import Container, Node, NodeTable, Pod, ResourceList, TargetLoadPacking
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NOW = 1_700_000_000
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "vectors" / "assigned_cache.jsonl").read_text().splitlines()
]


def pod(name="web", **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": 1000})),), **fields)


def event(kind="MODIFIED", name="web", node="a", seconds_ago=None, **status):
    """Return a watch event with a pod as the API server sends it."""
    if seconds_ago is not None:
        at = f"2023-11-14T22:13:{20 - seconds_ago:02}Z"  # NOW is 22:13:20
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node
    return {"type": kind, "object": {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}}


def recorded(pods):
    return [(placed.pod.name, node, placed.placed_at) for node, placed in pods.placed()]


def test_a_pod_assigned_without_a_uid_is_recognized_when_observed():
    """A pod that was assigned without a uid gets the uid of the watch, keeps its time, and counts once."""
    pods = AssignedPods()
    pods.assign(pod(), "a", NOW)
    pods.observe(event("ADDED", seconds_ago=1))
    assert [(placed.pod.uid, node, placed.placed_at) for node, placed in pods.placed()] == [("web", "a", NOW)]
    pods.observe(event("DELETED"))
    assert len(pods) == 0
    pods.assign(pod(), "a", NOW)
    pods.observe(event("DELETED"))
    assert len(pods) == 0


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_upstreams_cases(case):
    """All pods that TargetLoadPacking counts are kept, and none that was placed over 300 s before the window's end.

    Upstream keeps pods for a minute from now, and purges nothing if no entry is young.
    """
    ages, kept_upstream = case["args"]["ages_seconds"], case["expected"]["kept_ages_seconds"]
    window_end = NOW - 90
    pods = AssignedPods()
    for number, age in enumerate(ages):
        pods.assign(pod(f"p{number}"), "a", NOW - age)
    pods.prune(window_end)
    kept = sorted((NOW - at for _, _, at in recorded(pods)), reverse=True)
    assert kept == sorted((age for age in ages if NOW - age >= window_end - 300), reverse=True)
    needed = [age for age in ages if NOW - age > window_end - 60]
    assert set(needed) <= set(kept)
    if case["tag"] == "mixed" and 61 in ages:
        assert 61 not in kept_upstream, "upstream purges what TargetLoadPacking still needs"
    if case["tag"] == "all_stale" and 3600 in ages:
        assert 3600 in kept_upstream, "upstream leaks when all are old"


def test_pods_are_in_order_of_placement():
    """Pods are in order of placement, not in order of the calls, since events arrive late."""
    pods = AssignedPods()
    pods.assign(pod("second"), "a", NOW)
    pods.assign(pod("third"), "b", NOW + 5)
    pods.observe(event(name="first", seconds_ago=10))
    assert recorded(pods) == [("first", "a", NOW - 10), ("second", "a", NOW), ("third", "b", NOW + 5)]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_first_list_adds_only_recently_placed_pods(is_early):
    """After a restart only pods with a recent timestamp count as recently placed, also before the first window."""
    pods = AssignedPods()
    if not is_early:
        pods.prune(NOW)
        pods.observe(event("ADDED", "unknown"))
    pods.observe(event("ADDED", "old", startTime="2023-11-14T20:00:00Z"))
    pods.observe(event("ADDED", "new", seconds_ago=5))
    pods.prune(NOW)
    assert recorded(pods) == [("new", "a", NOW - 5)]


def test_an_assigned_pod_keeps_its_time_when_observed():
    """An assigned pod keeps its exact time, although the API server has whole seconds only."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW + 0.25)
    for kind in ("ADDED", "MODIFIED"):
        pods.observe(event(kind, seconds_ago=0))
    assert recorded(pods) == [("web", "a", NOW + 0.25)]


def test_the_api_servers_node_replaces_the_assigned_one():
    """The API server's node and time replace those of an assigned pod that was bound elsewhere."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW)
    pods.observe(event(node="b", seconds_ago=2))
    assert recorded(pods) == [("web", "b", NOW - 2)]


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        (event("DELETED"), False),
        (event(phase="Succeeded"), False),
        (event(phase="Failed"), False),
        (event("DELETED", node=""), False),
        ({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}, True),
        ({"type": "ERROR", "object": {"kind": "Status", "code": 410}}, True),
        (event("ADDED", "pending", node=""), True),
        (event("DELETED", "stranger"), True),
    ],
)
def test_only_deleted_and_finished_pods_are_dropped(told, is_kept):
    """Deleted and finished pods use nothing; bookmarks, errors, pending pods and unknown pods change nothing."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW)
    pods.observe(told)
    assert recorded(pods) == ([("web", "a", NOW)] if is_kept else [])


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_a_time_must_be_finite(at):
    """A time that is not finite is rejected with the pod's name, since it would break the order."""
    with pytest.raises(ValueError, match="default/web: at "):
        AssignedPods().assign(pod(), "a", at)


def test_the_number_of_pods_is_limited():
    """The oldest pods are dropped above the limit, even if no window ever arrives."""
    pods = AssignedPods(max_pods=3)
    for number in range(10):
        pods.assign(pod(f"p{number}"), "a", NOW + number)
    assert [name for name, _, _ in recorded(pods)] == ["p7", "p8", "p9"]


def test_add_to_adds_unknown_pods_to_a_table():
    """New pods are added, pods on the same node get the recorded time, other pods and unknown nodes stay unchanged."""
    nodes = NodeTable([Node("a"), Node("b")], [pod("known", node_name="a"), pod("elsewhere", node_name="b")])
    pods = AssignedPods()
    for name, node in (("known", "a"), ("elsewhere", "a"), ("new", "b"), ("lost", "gone")):
        pods.assign(pod(name), node, NOW)
    pods.add_to(nodes)
    counted = {placed.pod.name: (nodes.names[row], placed.placed_at) for row, placed in nodes.placed_pods()}
    assert counted == {"known": ("a", NOW), "elsewhere": ("b", float("-inf")), "new": ("b", NOW)}
    version = nodes.version
    pods.add_to(nodes)
    assert nodes.version == version, "the second time there is nothing to do"


def test_scores_count_the_recorded_pods():
    """A pod placed after the window's end counts in TargetLoadPacking's score, as upstream intends."""
    amounts = ResourceList({"cpu": 4000})
    nodes = NodeTable([Node("a", amounts, amounts)])
    load = NodeMetrics((Metric("m", "CPU", "AVG", "15m", 0.0),))
    snapshot = WatcherMetrics(NOW, Window("15m", NOW - 900, NOW), "test", {"a": load})
    pods = AssignedPods()
    pods.assign(pod(), "a", NOW + 1)
    pods.add_to(nodes)
    assert TargetLoadPacking(default_requests_multiplier=1).predicted_use(pod()) == 1000
    assert TargetLoadPacking(default_requests_multiplier=1).score(Pod(), nodes, snapshot)[0] == round(40 + 60 * 25 / 40)


def test_concurrent_calls_lose_nothing():
    """Concurrent writing, reading and pruning lose no pod and keep the order."""
    pods = AssignedPods()
    together = threading.Barrier(4)
    errors = []

    def write(number):
        try:
            together.wait(60)
            for i in range(200):
                pods.assign(pod(f"{number}-{i}"), "a", NOW + i)
                pods.prune(NOW - 1)
                times = [at for _, _, at in recorded(pods)]
                assert times == sorted(times)
                if i % 2:
                    pods.forget(pod(f"{number}-{i}"))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(pods) == 400


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.sampled_from("pqr"), st.integers(0, 900)),
        st.tuples(st.just("forget"), st.sampled_from("pqr"), st.just(0)),
        st.tuples(st.just("prune"), st.just(""), st.integers(0, 900)),
    )
)


@given(STEPS)
def test_any_sequence_of_calls_matches_a_plain_dict(steps):
    """Any sequence of calls gives the same pods as a plain dict that is filtered and sorted."""
    pods, plain, cut_off = AssignedPods(), {}, float("-inf")
    for what, name, at in steps:
        if what == "assign":
            pods.assign(pod(name), "a", at)
            plain[name] = at
        elif what == "forget":
            pods.forget(pod(name))
            plain.pop(name, None)
        else:
            pods.prune(at)
            cut_off = at - 300
        plain = {name: at for name, at in plain.items() if at >= cut_off}
    assert recorded(pods) == [(name, "a", at) for at, name in sorted((at, f"{name}") for name, at in plain.items())]
