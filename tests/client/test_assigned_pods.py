"""The record of recently placed pods, and what upstream's does to the same pods."""

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


def test_a_pod_that_was_assigned_without_a_uid_is_the_one_that_is_observed():
    """A scheduler may place a pod by its manifest; the watch then tells the uid, and it counts once, as of then."""
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
    """Upstream keeps a minute from now and forgets to purge when no entry is young; here the window's end decides.

    With a window that ended as metrics of a minute ago do, every pod that TargetLoadPacking counts is kept, and none is
    kept that was placed more than five minutes before the window's end.
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


def test_what_is_kept_depends_on_the_window_and_not_on_the_time_of_day():
    """While no newer window comes, a pod stays however long it takes; a window five minutes later lets it go."""
    pods = AssignedPods()
    pods.assign(pod(), "a", NOW)
    pods.prune(NOW - 600)
    pods.prune(NOW + 300)
    assert len(pods) == 1
    pods.prune(NOW + 301)
    assert len(pods) == 0


def test_pods_are_kept_in_the_order_they_were_placed_in():
    """Not in that of the calls: events come late."""
    pods = AssignedPods()
    pods.assign(pod("second"), "a", NOW)
    pods.assign(pod("third"), "b", NOW + 5)
    pods.observe(event(name="first", seconds_ago=10))
    assert recorded(pods) == [("first", "a", NOW - 10), ("second", "a", NOW), ("third", "b", NOW + 5)]


def test_after_a_restart_running_pods_are_not_just_placed():
    """The first list of every running pod: only those count that were placed lately by their own timestamps."""
    pods = AssignedPods()
    pods.prune(NOW)
    pods.observe(event("ADDED", "old", startTime="2023-11-14T20:00:00Z"))
    pods.observe(event("ADDED", "unknown"))
    pods.observe(event("ADDED", "new", seconds_ago=5))
    assert recorded(pods) == [("new", "a", NOW - 5)]


def test_a_first_list_may_come_before_the_first_window():
    """The same when no window is known yet: what is old goes with the first one."""
    pods = AssignedPods()
    pods.observe(event("ADDED", "old", startTime="2023-11-14T20:00:00Z"))
    pods.observe(event("ADDED", "new", seconds_ago=5))
    pods.prune(NOW)
    assert [name for name, _, _ in recorded(pods)] == ["new"]


def test_our_own_time_stays_when_the_api_server_confirms():
    """The bound pod comes back with a time in whole seconds and status changes: it stays where and when it was."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW + 0.25)
    for kind in ("ADDED", "MODIFIED"):
        pods.observe(event(kind, seconds_ago=0))
    assert recorded(pods) == [("web", "a", NOW + 0.25)]


def test_another_node_than_ours_is_believed():
    """When the pod was bound elsewhere after all, the API server's word counts, with its time."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW)
    pods.observe(event(node="b", seconds_ago=2))
    assert recorded(pods) == [("web", "b", NOW - 2)]


@pytest.mark.parametrize(
    "gone", [event("DELETED"), event(phase="Succeeded"), event(phase="Failed"), event("DELETED", node="")]
)
def test_pods_that_are_gone_go(gone):
    """Deleted and terminated pods use nothing."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW)
    pods.observe(gone)
    assert len(pods) == 0


@pytest.mark.parametrize(
    "other",
    [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}},
        {"type": "ERROR", "object": {"kind": "Status", "code": 410}},
        event("ADDED", "pending", node=""),
        event("DELETED", "stranger"),
    ],
)
def test_other_events_change_nothing(other):
    """Bookmarks, errors, pending pods and pods that were never recorded."""
    pods = AssignedPods()
    pods.assign(pod(uid="web"), "a", NOW)
    pods.observe(other)
    assert recorded(pods) == [("web", "a", NOW)]


def test_a_pod_that_could_not_be_bound_is_taken_back():
    """forget() drops it, and knows no error for one that is not there."""
    pods = AssignedPods()
    pods.assign(pod(), "a", NOW)
    pods.forget(pod())
    pods.forget(pod())
    assert len(pods) == 0


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_a_time_must_be_one(at):
    """What is no time would break the order: it is refused with the pod's name."""
    with pytest.raises(ValueError, match="pod default/web was placed at"):
        AssignedPods().assign(pod(), "a", at)


def test_the_record_is_bounded():
    """When no window ever comes, the oldest go beyond the limit."""
    pods = AssignedPods(max_pods=3)
    for number in range(10):
        pods.assign(pod(f"p{number}"), "a", NOW + number)
    assert [name for name, _, _ in recorded(pods)] == ["p7", "p8", "p9"]


def test_a_table_gets_what_it_does_not_know():
    """New pods are counted, known ones get our time, those it has elsewhere and unknown nodes are left alone."""
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


def test_scores_see_the_record():
    """A pod placed after the window's end moves TargetLoadPacking's score as upstream means it to."""
    amounts = ResourceList({"cpu": 4000})
    nodes = NodeTable([Node("a", amounts, amounts)])
    load = NodeMetrics((Metric("m", "CPU", "AVG", "15m", 0.0),))
    snapshot = WatcherMetrics(NOW, Window("15m", NOW - 900, NOW), "test", {"a": load})
    pods = AssignedPods()
    pods.assign(pod(), "a", NOW + 1)
    pods.add_to(nodes)
    assert TargetLoadPacking(default_requests_multiplier=1).predicted_use(pod()) == 1000
    assert TargetLoadPacking(default_requests_multiplier=1).score(Pod(), nodes, snapshot)[0] == round(40 + 60 * 25 / 40)


def test_threads_may_share_it():
    """Writers, readers and pruning at once: nothing is lost, nothing breaks."""
    pods = AssignedPods()
    together = threading.Barrier(4)
    errors = []

    def write(number):
        try:
            together.wait(5)
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
def test_any_history_leaves_what_a_plain_record_would(steps):
    """Whatever is assigned, forgotten and pruned in whatever order: the same as a mapping that is searched through."""
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
