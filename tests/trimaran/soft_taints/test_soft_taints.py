"""Taints and annotations on nodes: hysteresis, patches, write budget, Lease and settings."""

import copy
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import requests
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.extending import metrics
from support.nodes_api import NodesApi, http_error

from client import NoMetrics
from trimaran.cli.main import main
from trimaran.soft_taints import annotations
from trimaran.soft_taints.hysteresis import HotNodeRule, node_loads
from trimaran.soft_taints.node_state import NodeState, NodeStateCache
from trimaran.soft_taints.writer import NodeWriter, WritePlan
from watcher.model import NodeMetrics, WatcherMetrics

NOW = 1_800_000_000
AT = "at=2027-01-15T08:00:00Z"
RULE = HotNodeRule(hot_percent=80, cool_percent=70, min_hot_seconds=300, max_hot_fraction=0.5)
NAMES = ("a", "b", "c", "d")
FOREIGN = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


# -- hysteresis ---------------------------------------------------------------------------------------------------


def test_two_limits_decide_when_a_node_is_hot() -> None:
    """A node is hot from 80 % on, normal below 70 %, and keeps its state in between."""
    hot = RULE.hot_nodes(NAMES, {"a": 80.0, "b": 79.9}, {}, 0)
    assert hot == {"a": 0}
    assert RULE.hot_nodes(NAMES, {"a": 70.0, "b": 79.9}, hot, 1000) == {"a": 0}
    assert RULE.hot_nodes(NAMES, {"a": 69.9, "b": 79.9}, hot, 1000) == {}


def test_a_node_stays_hot_for_the_minimum_time() -> None:
    """A node that cools quickly stays hot for the minimum time."""
    hot = RULE.hot_nodes(NAMES, {"a": 90.0}, {}, 0)
    assert RULE.hot_nodes(NAMES, {"a": 1.0}, hot, 299) == hot
    assert RULE.hot_nodes(NAMES, {"a": 1.0}, hot, 300) == {}


def test_the_hot_fraction_is_limited() -> None:
    """The most loaded nodes become hot first, and hot nodes are not displaced by hotter ones."""
    loads = {"a": 85.0, "b": 99.0, "c": 90.0, "d": 88.0}
    assert RULE.hot_nodes(NAMES, loads, {}, 0).keys() == {"b", "c"}
    assert RULE.hot_nodes(NAMES, loads, {"a": -1000.0}, 0).keys() == {"a", "b"}
    assert HotNodeRule(max_hot_fraction=0).hot_nodes(NAMES, loads, {}, 0) == {}


def test_an_unmeasured_node_cools_after_the_minimum_time() -> None:
    """A hot node without a measurement cools after the minimum time, and a deleted one is forgotten at once."""
    assert RULE.hot_nodes(NAMES, {}, {"a": 0.0, "gone": 0.0}, 299) == {"a": 0.0}
    assert RULE.hot_nodes(NAMES, {}, {"a": 0.0}, 300) == {}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 100)), st.floats(0, 1), st.floats(0, 1e6))
def test_the_hot_fraction_is_limited_for_any_loads(loads: Mapping[str, float], share: float, now: float) -> None:
    """For any loads the hot nodes are the hottest ones at the limit or above, within the fraction."""
    hot = HotNodeRule(max_hot_fraction=share).hot_nodes("abcdefgh", loads, {}, now)
    assert len(hot) <= share * 8
    assert all(loads[name] >= 80 for name in hot)
    assert all(loads[name] <= min(loads[each] for each in hot) for name in loads if hot and name not in hot)


def test_cool_percent_above_hot_percent_is_an_error() -> None:
    """Limits in the wrong order are errors that name them, in the rule and in the settings."""
    with pytest.raises(ValueError, match=r"cool_percent 90 .* hot_percent 80"):
        HotNodeRule(cool_percent=90)
    done = CliRunner().invoke(main, ["nodes", "--taints", "--set", "nodes.cool_percent=90"])
    assert done.exit_code == 2
    assert "cool_percent" in done.output


# -- annotations --------------------------------------------------------------------------------------------------


def desired(averages: Mapping[str, float], written: str = "", at: float = NOW, step: float = 5) -> str | None:
    return annotations.desired_annotation(averages, written, at, step, refresh_seconds=600)


def test_an_annotation_stays_within_a_step() -> None:
    """Values are multiples of the step, and a written value stays while it is within a step of the load."""
    first = desired({"CPU": 41.0, "Memory": 55.1})
    assert first == f"cpu=40,memory=55,{AT}"
    assert desired({"CPU": 45.0, "Memory": 50.0}, first) == first
    assert desired({"CPU": 45.1, "Memory": 50.0}, first) == f"cpu=45,memory=55,{AT}"
    assert desired({"CPU": 41.0}, first) == f"cpu=40,{AT}"
    assert desired({}, first) is None


@pytest.mark.parametrize("text", ["somebody's words", "cpu=40", "cpu=x,at=yesterday", "at=0001-01-01T00:00:00", "at="])
def test_an_annotation_that_cannot_be_read_is_replaced(text: str) -> None:
    """The text of another writer, and one without a time, is replaced."""
    assert desired({"CPU": 200.0}, text) == f"cpu=100,{AT}"
    assert desired({"CPU": 41.0}, text) == f"cpu=40,{AT}"


def test_an_unchanged_annotation_gets_a_new_time() -> None:
    """The time of a steady load is renewed once it is as old as the settings say, and not before."""
    first = desired({"CPU": 41.0})
    assert desired({"CPU": 44.0}, first or "", NOW + 599) == first
    assert desired({"CPU": 44.0}, first or "", NOW + 600) == "cpu=40,at=2027-01-15T08:10:00Z"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0.5, 20))
def test_an_annotation_is_never_more_than_a_step_off(loads: list[float], step: float) -> None:
    """For any series of loads the written value is within a step of the load."""
    written = ""
    for percent in loads:
        written = desired({"CPU": percent}, written, step=step) or ""
        assert abs(annotations.AnnotatedLoad.parse(written).loads["cpu"] - percent) <= step * 1.001 + 1e-4


def test_largest_change_measures_a_change() -> None:
    """The change of a value is its difference in percent, and a new annotation counts as 100."""
    written = {"load.trimaran.io/5m": "cpu=40,memory=50"}
    assert annotations.largest_change({"load.trimaran.io/5m": "cpu=55,memory=50"}, written) == 15
    assert annotations.largest_change({"load.trimaran.io/15m": "cpu=55"}, written) == 100
    assert annotations.largest_change({"load.trimaran.io/5m": None}, written) == 100
    assert annotations.largest_change({"load.trimaran.io/5m": f"cpu=40,memory=50,{AT}"}, written) == 0


# -- patches ------------------------------------------------------------------------------------------------------


def test_a_patch_keeps_foreign_taints() -> None:
    """A patch only adds or removes our taint, with its time, and has the version; it is empty for an unchanged node."""
    node = {"metadata": {"name": "a", "resourceVersion": "7", "annotations": {"x": "y"}}, "spec": {"taints": [FOREIGN]}}
    state = NodeState.from_k8s(node)
    patch = state.patch({"trimaran.io/hot": True}, annotations={}, now=1_600_000_000)
    ours = {
        "key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule", "timeAdded": "2020-09-13T12:26:40Z",
    }  # fmt: skip
    assert patch == {"spec": {"taints": [FOREIGN, ours]}, "metadata": {"resourceVersion": "7"}}
    assert state.patch({"trimaran.io/hot": False}, annotations={}) == {}
    tainted = NodeState.from_k8s({**node, "spec": {"taints": [ours, FOREIGN]}})
    assert tainted.patch({"trimaran.io/hot": True}, annotations={}) == {}
    assert tainted.patch({"trimaran.io/hot": False}, annotations={})["spec"] == {"taints": [FOREIGN]}
    assert NodeState.from_k8s({"metadata": {"name": "a"}}) == NodeState()


# -- the writer ---------------------------------------------------------------------------------------------------


class FixedMetrics:
    """Metrics source with loads set by a test, the same for every window; None is an outage."""

    def __init__(self, loads: Mapping[str, float] | None = None) -> None:
        self.loads, self.now = loads, float(NOW)
        self._cached: tuple[object, WatcherMetrics] | None = None

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        if self.loads is None:
            raise NoMetrics("the watcher has nothing fresh")
        if self._cached is None or self._cached[0] is not self.loads:
            self._cached = self.loads, metrics(self.loads, self.now)
        return self._cached[1]


class Bench:
    """Writer over an in-memory API, driven by hand."""

    def __init__(
        self, names: tuple[str, ...] = NAMES, plan: WritePlan | None = None, api: NodesApi | None = None
    ) -> None:
        self.api = api or NodesApi(*names)
        self.nodes = NodeStateCache()
        self.nodes.replace(self.api.nodes.values())
        self.watcher = FixedMetrics()
        self.term: int | None = 1
        self.writer = NodeWriter(
            self.api, self.nodes, self.watcher, plan or WritePlan(rule=RULE), lambda: self.term,
            clock=lambda: self.watcher.now, monotonic=lambda: self.watcher.now,
        )  # fmt: skip

    def run_cycle(self, loads: Mapping[str, float] | None, seconds: float = 30.0) -> None:
        self.watcher.loads = loads
        self.watcher.now += seconds
        self.writer.run_cycle()

    def hot(self) -> set[str]:
        states = {name: NodeState.from_k8s(node) for name, node in self.api.nodes.items()}
        return {name for name, state in states.items() if state.is_tainted("trimaran.io/hot")}


def test_hot_nodes_are_tainted_until_they_cool() -> None:
    """The taint follows the load, and an unchanged node is not written."""
    bench = Bench()
    bench.run_cycle({"a": 90.0, "b": 10.0})
    assert bench.hot() == {"a"}
    bench.run_cycle({"a": 75.0, "b": 10.0}, 400)
    assert len(bench.api.writes) == 1
    bench.run_cycle({"a": 60.0, "b": 10.0})
    assert bench.hot() == set()
    assert bench.writer.counts.taints == len(bench.api.writes) == 2


def test_node_names_have_no_case() -> None:
    """A node has the load, taint and annotation of the host name that the source reports in another case."""
    bench = Bench(plan=WritePlan(rule=RULE, windows=("15m",)))
    bench.run_cycle({"A": 90.0, "b": 10.0})
    assert bench.hot() == {"a"}
    assert "load.trimaran.io/15m" in bench.api.nodes["a"]["metadata"]["annotations"]


def test_taints_end_in_an_outage() -> None:
    """Without metrics, or with old metrics, no node becomes hot, and taints end after the minimum time."""
    bench = Bench()
    bench.run_cycle({"a": 90.0})
    bench.run_cycle(None, 200)
    assert bench.hot() == {"a"}
    bench.run_cycle(None, 200)
    assert bench.hot() == set()
    bench.watcher._cached = (bench.watcher.loads, metrics({"b": 99.0}, NOW - 1000))
    bench.run_cycle(bench.watcher.loads)
    assert bench.hot() == set()


def test_metrics_of_other_nodes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A watcher for another cluster leaves one line; names in another case are those of the cluster's nodes."""
    bench = Bench(("a", "b"))
    for loads in ({"other": 95.0}, {"others": 95.0}):
        bench.run_cycle(loads)
    assert [record.__dict__["error"] for record in caplog.records] == [
        f"the watcher measures none of the 2 nodes of the cluster, such as a, but 1 others, such as {name}; "
        "is it for another cluster?"
        for name in ("other", "others")
    ]
    for seconds in (30, 300):
        bench.run_cycle({"A": 95.0, "b": 10.0}, seconds)
    assert bench.hot() == {"a"}


def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Cycles without metrics are logged at the first one and after a minute, and once when there are metrics again."""
    caplog.set_level("INFO")
    bench = Bench()
    for seconds in (30, 10, 10, 10, 30):
        bench.run_cycle(None, seconds)
    bench.run_cycle({"a": 10.0})
    bench.run_cycle({"a": 10.0})
    failing, working = "no metrics to write on nodes", "metrics to write on nodes again"
    assert [record.message for record in caplog.records] == [failing, failing, working]


def test_a_replica_counts_its_nodes_and_the_time_of_its_metrics() -> None:
    """The counters have the number of nodes, and the time of the metrics also while they are too old to mark by."""
    bench = Bench()
    bench.run_cycle({"a": 10.0})
    assert (bench.writer.counts.known, bench.writer.counts.metrics_at) == (len(NAMES), bench.watcher.now)
    bench.watcher._cached = (bench.watcher.loads, metrics({"b": 99.0}, NOW - 1000))
    bench.run_cycle(bench.watcher.loads)
    assert bench.writer.counts.metrics_at == NOW - 1000


def test_a_suspect_node_has_no_load() -> None:
    """A node that the watcher marks as suspect is treated as not measured."""
    snapshot = metrics({"a": 90.0, "b": 90.0})
    data = {**snapshot.data, "a": NodeMetrics(snapshot.data["a"].metrics, {}, {"suspect": "frozen"})}
    assert node_loads(WatcherMetrics(snapshot.timestamp, snapshot.window, "Fake", data)) == {"b": 90.0}


@pytest.mark.parametrize("hotter", ["CPU", "Memory"])
def test_the_load_is_the_higher_of_cpu_and_memory(hotter: str) -> None:
    """A node is as hot as the resource of which it uses more."""
    snapshot = metrics({"a": 40.0})
    series = [
        replace(each, value=90.0) if (each.type, each.operator) == (hotter, "AVG") else each
        for each in snapshot.data["a"].metrics
    ]
    data = {"a": NodeMetrics(tuple(series), {}, {})}
    assert node_loads(WatcherMetrics(snapshot.timestamp, snapshot.window, "Fake", data)) == {"a": 90.0}


def test_a_new_writer_continues_with_existing_taints() -> None:
    """A new writer keeps the taints of nodes that are still hot, and removes the others."""
    first = Bench()
    first.run_cycle({"a": 90.0, "b": 90.0})
    second = Bench(api=first.api)
    second.run_cycle({"a": 75.0, "b": 60.0})
    assert second.hot() == {"a"}


def test_a_conflicting_change_is_not_overwritten() -> None:
    """A taint set by another client causes a conflict, and the next patch keeps it."""
    bench = Bench()
    bench.api.taint("a", FOREIGN)
    bench.run_cycle({"a": 90.0})
    assert bench.writer.counts.conflicts == 1
    assert bench.api.nodes["a"]["spec"]["taints"] == [FOREIGN]
    bench.nodes.put(bench.api.nodes["a"])
    bench.run_cycle({"a": 90.0})
    assert bench.api.nodes["a"]["spec"]["taints"][0] == FOREIGN
    assert bench.hot() == {"a"}


def test_a_late_event_does_not_undo_the_answer_to_a_patch() -> None:
    """Events from before a patch arrive after its answer: the node is not patched again, and there is no conflict."""
    bench = Bench()
    before = copy.deepcopy(bench.api.nodes)
    bench.run_cycle(dict.fromkeys(NAMES, 0.0) | {NAMES[0]: 99.0})
    assert bench.hot() == {NAMES[0]}
    for node in before.values():
        bench.nodes.put(node)
    sent = bench.writer.counts.taints
    bench.run_cycle(dict.fromkeys(NAMES, 0.0) | {NAMES[0]: 99.0})
    assert (bench.writer.counts.taints, bench.writer.counts.conflicts) == (sent, 0)
    again = copy.deepcopy(before[NAMES[0]])
    again["metadata"] |= {"uid": "another", "resourceVersion": "1"}
    bench.nodes.put(again)  # the node was deleted and created again
    assert bench.nodes.all()[NAMES[0]].uid == "another"


def test_without_the_lease_nothing_is_written() -> None:
    """Nothing is written before the Lease is held, or after it is lost."""
    bench = Bench()
    bench.term = None
    bench.run_cycle({"a": 90.0})
    assert bench.api.writes == []
    bench.term = 1
    bench.run_cycle({"a": 90.0})
    assert len(bench.api.writes) == 1


@pytest.mark.parametrize("term", [None, 2])
def test_a_cycle_ends_with_its_term(term: int | None) -> None:
    """If the Lease is lost within a cycle, the cycle writes no more, even if the Lease is held again by then."""
    bench = Bench(plan=WritePlan(rule=HotNodeRule(max_hot_fraction=1)))
    send = bench.api.send

    def suspend(*arguments: Any) -> Any:
        bench.term = term
        return send(*arguments)

    bench.api.send = suspend  # type: ignore[method-assign]
    bench.run_cycle(dict.fromkeys(NAMES, 90.0))
    assert len(bench.api.writes) == 1
    assert bench.writer.counts.deferred == len(NAMES) - 1
    bench.term = 3
    bench.run_cycle(dict.fromkeys(NAMES, 10.0))  # the age of the taint is unknown, as another replica may have set it
    assert bench.hot() == set()


def test_a_change_of_another_replica_is_not_overwritten() -> None:
    """An annotation by a writer that was suspended is refused if another replica has written the node meanwhile."""
    first = Bench(plan=WritePlan(taints=False, windows=("15m",)))
    Bench(plan=WritePlan(taints=False, windows=("15m",)), api=first.api).run_cycle({"a": 90.0})
    first.run_cycle({"a": 10.0})
    assert first.api.nodes["a"]["metadata"]["annotations"] == {
        "load.trimaran.io/15m": "cpu=90,memory=90,at=2027-01-15T08:00:30Z"
    }
    assert first.writer.counts.conflicts == 1


# -- nodes whose writes fail --------------------------------------------------------------------------------------


class Refusals:
    """Wrapper of a bench's API that refuses or distorts the patches of some nodes."""

    def __init__(self, bench: Bench, names: Collection[str], response: Any) -> None:
        self.tries: Counter[str] = Counter()
        send = bench.api.send

        def refuse(method: str, path: str, *rest: Any) -> Any:
            name = path.rpartition("/")[2]
            self.tries[name] += 1
            if name not in self.names:
                return send(method, path, *rest)
            if isinstance(response, Exception):
                raise response
            return response(name) if callable(response) else response

        self.names = set(names)
        bench.api.send = refuse  # type: ignore[method-assign]


def test_nodes_that_refuse_writes_take_a_tenth_of_the_budget() -> None:
    """Beyond the first write of each, and once all are accepted, as after an outage, the tenth does not limit them."""
    bad = [f"a-{number}" for number in range(22)]
    plan = WritePlan(rule=HotNodeRule(max_hot_fraction=1), windows=("15m",), writes_per_minute=22)
    bench = Bench((*bad, "b"), plan)
    refusals = Refusals(bench, bad, http_error(422))
    loads = dict.fromkeys([*bad, "b"], 90.0)
    bench.run_cycle(dict(loads), 60)
    bench.run_cycle(dict(loads), 60)
    first = sum(refusals.tries[name] for name in bad)
    assert first <= len(bad) + 2
    for _ in range(20):
        bench.run_cycle(dict(loads), 60)
    assert sum(refusals.tries[name] for name in bad) - first <= 20 * 2.2 + 1
    refusals.names.clear()
    for _ in range(6):
        bench.run_cycle(dict(loads), 60)
    assert bench.hot() == {*bad, "b"}


@pytest.mark.parametrize(
    "response",
    [http_error(422), http_error(500), http_error(409), requests.ConnectionError("no route"), [], "text", None,
     {"kind": "Status", "metadata": {}}, {"kind": "Status"}, {"metadata": []},
     lambda name: {"metadata": {"name": name}}, lambda name: {"metadata": {"name": name, "resourceVersion": ""}},
     lambda name: {"metadata": {"name": name, "resourceVersion": None}}],
    ids=lambda response: "function" if callable(response) else str(response),
)  # fmt: skip
def test_refused_nodes_leave_the_budget_to_the_others(response: Any) -> None:
    """All good nodes are written although the writes of 22 nodes, the budget of a minute, fail whatever happens."""
    bad, good = [f"a-{number}" for number in range(22)], [f"b-{number}" for number in range(45)]
    plan = WritePlan(rule=HotNodeRule(max_hot_fraction=1), windows=("15m",), writes_per_minute=22)
    bench = Bench((*bad, *good), plan)
    refusals = Refusals(bench, bad, response)
    for _ in range(4):
        bench.run_cycle(dict.fromkeys([*bad, *good], 90.0), 60)
    assert bench.hot() == set(good)
    assert bench.writer.counts.failing == len(bad)
    for _ in range(60):
        bench.run_cycle(dict.fromkeys([*bad, *good], 90.0), 60)
    assert max(refusals.tries[name] for name in bad) <= 64 * 60 / 300 + 8
    refusals.names.clear()
    for _ in range(6):
        bench.run_cycle(dict.fromkeys([*bad, *good], 90.0), 60)
    assert bench.hot() == {*bad, *good}
    assert bench.writer.counts.failing == 0


def test_nodes_that_cannot_be_tainted_do_not_use_up_the_hot_fraction() -> None:
    """While the hottest nodes refuse the taint, the next hottest get it."""
    bench = Bench()
    Refusals(bench, ("a", "b"), http_error(422))
    loads = {"a": 99.0, "b": 98.0, "c": 90.0, "d": 89.0}
    for _ in range(6):
        bench.run_cycle(loads)
    assert bench.hot() == {"c", "d"}


def test_slow_writes_end_a_cycle() -> None:
    """Writes that time out end the cycle after a minute, so that the thread makes progress."""
    bench = Bench(tuple(f"node-{number}" for number in range(100)), WritePlan(rule=HotNodeRule(max_hot_fraction=1)))
    writes = []

    def hang(*arguments: Any) -> None:
        writes.append(arguments)
        bench.watcher.now += 10
        raise requests.Timeout("no answer")

    bench.api.send = hang  # type: ignore[assignment]
    bench.run_cycle(dict.fromkeys(bench.nodes.all(), 90.0))
    assert len(writes) == 6


def test_deleted_nodes_are_no_longer_failing() -> None:
    """A failing node that is deleted is forgotten."""
    bench = Bench()
    Refusals(bench, ("a",), http_error(422))
    bench.run_cycle({"a": 90.0})
    assert bench.writer.counts.failing == 1
    bench.nodes.drop(bench.api.nodes["a"])
    bench.run_cycle({"b": 10.0})
    assert bench.writer.counts.failing == 0


def test_writes_stay_within_the_budget_and_taints_come_first() -> None:
    """Writes over budget are deferred to later cycles, and hot nodes are written before annotations."""
    names = tuple(f"node-{number}" for number in range(100))
    plan = WritePlan(rule=HotNodeRule(max_hot_fraction=0.1), windows=("5m",), writes_per_minute=20)
    bench = Bench(names, plan)
    loads = {name: 90.0 if number >= 95 else 30.0 for number, name in enumerate(names)}
    bench.run_cycle(loads, 0)
    assert bench.hot() == set(names[95:])
    assert len(bench.api.writes) == 20
    assert bench.writer.counts.deferred == 80
    for _ in range(8):
        bench.run_cycle(dict(loads))
    assert len(bench.api.writes) == 100
    assert bench.writer.counts.deferred == 0
    assert bench.api.nodes["node-0"]["metadata"]["annotations"] == {"load.trimaran.io/5m": f"cpu=30,memory=30,{AT}"}


# -- annotations end with their window ----------------------------------------------------------------------------


def annotated(bench: Bench, name: str = "a") -> dict[str, str]:
    return dict(bench.api.nodes[name]["metadata"].get("annotations") or {})


def test_annotations_go_with_their_window() -> None:
    """The annotation of a window that is no longer configured is removed, also without any metrics."""
    first = Bench(plan=WritePlan(rule=RULE, windows=("15m", "5m")))
    first.run_cycle({"a": 40.0})
    assert annotated(first).keys() == {"load.trimaran.io/15m", "load.trimaran.io/5m"}
    second = Bench(plan=WritePlan(rule=RULE, windows=("5m",)), api=first.api)
    second.run_cycle({"a": 40.0})
    assert annotated(second).keys() == {"load.trimaran.io/5m"}
    without = Bench(plan=WritePlan(rule=RULE), api=first.api)
    without.run_cycle(None)
    assert annotated(without) == {}


def test_annotations_go_in_an_outage() -> None:
    """Annotations of a steady load stay for the maximum age after the last metrics, then all are removed."""
    bench = Bench(plan=WritePlan(windows=("15m",), refresh_seconds=600, max_age_seconds=300))
    for _ in range(15):
        bench.watcher._cached = None
        bench.run_cycle({"a": 40.0, "b": 40.0})
    assert len(bench.api.writes) == 2
    bench.run_cycle(None, 290)
    assert len(bench.api.writes) == 2
    bench.run_cycle(None, 20)
    assert (annotated(bench), annotated(bench, "b")) == ({}, {})


def test_a_node_without_measurements_loses_its_annotation() -> None:
    """A node that the watcher lacks, or serves by earlier values, loses its annotation at the maximum age."""
    bench = Bench(plan=WritePlan(windows=("15m",), max_age_seconds=300))
    bench.run_cycle({"a": 40.0, "b": 40.0, "c": 40.0})
    for seconds, expected in ((200, {"a", "b", "c"}), (200, {"c"})):
        bench.watcher.now += seconds
        fresh = metrics({"b": 40.0, "c": 40.0}, bench.watcher.now)
        old = NodeMetrics(fresh.data["b"].metrics, {}, {"grade": "last_good"})
        snapshot = WatcherMetrics(fresh.timestamp, fresh.window, "Fake", {**fresh.data, "b": old})
        bench.watcher._cached = bench.watcher.loads, snapshot
        bench.writer.run_cycle()
        assert {name for name in NAMES if annotated(bench, name)} == expected


def test_old_times_are_renewed_first() -> None:
    """With little budget the times of all nodes are renewed in turn, not those of the first names again and again."""
    names = tuple(f"node-{number}" for number in range(8))
    bench = Bench(names, WritePlan(windows=("15m",), writes_per_minute=2, refresh_seconds=60))
    for _ in range(12):
        bench.watcher._cached = None
        bench.run_cycle(dict.fromkeys(names, 40.0), 60)
    times = [annotations.oldest_time(annotated(bench, name)) for name in names]
    assert bench.watcher.now - min(times) <= 3 * 60


def test_a_writer_without_taints_removes_them() -> None:
    """If only annotations are configured, the taints of earlier settings go."""
    first = Bench()
    first.run_cycle({"a": 90.0})
    second = Bench(plan=WritePlan(taints=False, windows=("15m",)), api=first.api)
    second.run_cycle({"a": 90.0})
    assert second.hot() == set()
    assert second.api.events[-1]["message"] == "Taint trimaran.io/hot removed: nodes.taints is off"


def test_a_whole_number_goes_with_the_annotation_of_its_window() -> None:
    """The number is the higher load per mille, in the same write; it goes with its setting, window or measurement."""
    plan = WritePlan(taints=False, windows=("15m",), whole_number=True, max_age_seconds=300)
    bench = Bench(plan=plan)
    bench.run_cycle({"a": 42.0})
    assert annotated(bench)["load.trimaran.io/15m-permille"] == "400"
    bench.run_cycle({"a": 42.0})
    assert len(bench.api.writes) == 1
    bench.run_cycle({"a": 56.4})
    assert annotated(bench)["load.trimaran.io/15m-permille"] == "550"
    without = Bench(plan=replace(plan, whole_number=False), api=bench.api)
    without.run_cycle({"a": 56.4})
    assert annotated(without).keys() == {"load.trimaran.io/15m"}
    again = Bench(plan=plan, api=bench.api)
    again.run_cycle({"a": 56.4})
    assert annotated(again)["load.trimaran.io/15m-permille"] == "550"
    again.run_cycle(None, 400)
    assert annotated(again) == {}


def test_hot_nodes_have_two_taints_and_warm_nodes_one() -> None:
    """Both levels have limits of their own; a writer without the level of warm nodes removes its taint."""
    plan = WritePlan(rule=RULE, warm_rule=RULE.warm(60))
    bench = Bench(plan=plan)

    def levels(bench: Bench) -> dict[str, list[str]]:
        return {
            name: [taint["key"].partition("/")[2] for taint in node["spec"].get("taints") or ()]
            for name, node in bench.api.nodes.items()
        }

    bench.run_cycle({"a": 90.0, "b": 65.0, "c": 50.0})
    assert levels(bench) == {"a": ["hot", "warm"], "b": ["warm"], "c": [], "d": []}
    assert [each["reason"] for each in bench.api.events] == ["NodeHot", "NodeWarm", "NodeWarm"]
    assert len(bench.api.writes) == 2  # both taints of a node in one
    bench.run_cycle({"a": 65.0, "b": 51.0, "c": 50.0}, 400)
    assert levels(bench) == {"a": ["warm"], "b": ["warm"], "c": [], "d": []}
    bench.run_cycle({"a": 65.0, "b": 49.0, "c": 50.0}, 400)
    assert levels(bench) == {"a": ["warm"], "b": [], "c": [], "d": []}
    assert bench.api.events[-1]["reason"] == "NodeNotWarm"
    assert "load 49 %, below nodes.warm_percent less its gap (50 %)" in bench.api.events[-1]["message"]
    without = Bench(plan=WritePlan(rule=RULE), api=bench.api)
    without.run_cycle({"a": 65.0})
    assert levels(without) == {"a": [], "b": [], "c": [], "d": []}


# -- Events -------------------------------------------------------------------------------------------------------


def test_each_taint_leaves_an_event_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A taint that is set or removed is reported with load, limit, and since when; annotations are not."""
    caplog.set_level("INFO")
    bench = Bench(plan=WritePlan(rule=RULE, windows=("15m",), writes_per_minute=1))
    bench.api.nodes["a"]["metadata"]["uid"] = "uid-a"
    bench.nodes.put(bench.api.nodes["a"])
    bench.run_cycle({"b": 85.0, "a": 90.0})
    bench.run_cycle({"b": 85.0, "a": 90.0}, 60)
    bench.run_cycle({"b": 60.4, "a": 90.0}, 400)
    events = [(each["involvedObject"]["name"], each["reason"], each["message"]) for each in bench.api.events]
    taint = "Taint trimaran.io/hot"
    limit = "at or above nodes.hot_percent (80 %)"
    assert events == [
        ("a", "NodeHot", f"{taint} set: load 90 %, {limit} since 2027-01-15T08:00:30Z"),
        ("b", "NodeHot", f"{taint} set: load 85 %, {limit} since 2027-01-15T08:00:30Z"),
        (
            "b", "NodeNotHot",
            f"{taint} removed: load 60 %, below nodes.cool_percent (70 %); hot since 2027-01-15T08:01:30Z",
        ),
    ]  # fmt: skip
    assert bench.api.events[0]["involvedObject"]["uid"] == "uid-a"
    lines = [record for record in caplog.records if record.message in {"node tainted", "taint removed"}]
    fields = [(each.node, each.load_percent, each.threshold_percent, each.since) for each in lines]  # type: ignore[attr-defined]
    assert fields[0] == ("a", 90.0, 80, "2027-01-15T08:00:30Z")
    assert fields[2] == ("b", 60.4, 70, "2027-01-15T08:01:30Z")


def test_an_unmeasured_node_loses_its_taint_with_that_reason() -> None:
    """The Event of a taint that ends in an outage says so, and does not invent a time that is unknown."""
    first = Bench()
    first.run_cycle({"a": 90.0})
    second = Bench(api=first.api)
    second.run_cycle(None)
    reason = "Taint trimaran.io/hot removed: no load is measured; hot since before this replica wrote"
    assert second.api.events[-1]["message"] == reason


@pytest.mark.parametrize(("error", "tries"), [(http_error(403), 1), (http_error(500), 2)])
def test_refused_events_cost_no_taint(error: requests.HTTPError, tries: int, caplog: pytest.LogCaptureFixture) -> None:
    """Taints are set although Events are refused; after a 403 the log names the rule, and no more are tried."""
    bench = Bench()
    send, events = bench.api.send, []

    def refuse(method: str, path: str, *rest: Any) -> Any:
        if path.endswith("/events"):
            events.append(path)
            raise error
        return send(method, path, *rest)

    bench.api.send = refuse  # type: ignore[method-assign]
    bench.run_cycle({"a": 90.0, "b": 90.0})
    assert bench.hot() == {"a", "b"}
    assert len(events) == tries
    rule = 'a Role in the namespace default bound to this user needs the rule {apiGroups: [""], resources: ["events"]'
    assert (rule in str([vars(record) for record in caplog.records])) == (tries == 1)


@pytest.mark.slow
def test_5000_nodes_stay_within_the_budget_and_do_not_flap() -> None:
    """While all nodes' loads change, no minute exceeds the budget, and each taint lasts its minimum time."""
    count, minutes = 5000, 60
    rng = np.random.default_rng(8)
    names = tuple(f"node-{number}" for number in range(count))
    plan = WritePlan(rule=HotNodeRule(max_hot_fraction=0.1), windows=("15m",), writes_per_minute=120)
    bench = Bench(names, plan)
    level, noise = rng.uniform(5, 95, count), np.zeros(count)
    tainted_at: dict[str, float] = {}
    times: Counter[str] = Counter()
    lasted: list[float] = []
    before: set[str] = set()
    writes_before = 0
    for minute in range(minutes):
        noise = 0.9 * noise + rng.normal(0, 3, count)
        loads = np.clip(level + 15 * np.sin(2 * np.pi * minute / minutes + level) + noise, 0, 100)
        bench.run_cycle(dict(zip(names, loads.tolist(), strict=True)), 60)
        assert len(bench.api.writes) - writes_before <= 120
        writes_before = len(bench.api.writes)
        hot = bench.hot()
        assert len(hot) <= count * 0.1
        for name in hot - before:
            tainted_at[name] = bench.watcher.now
            times[name] += 1
        lasted += [bench.watcher.now - tainted_at[name] for name in before - hot]
        before = hot
    assert len(bench.api.writes) <= 120 * minutes
    assert len(lasted) > 100
    assert min(lasted) >= 300
    assert max(times.values()) <= 4


# -- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "nothing to write"),
        (("--taints", "--watcher", "http://127.0.0.1:9"), "cluster.kube_config"),
        (("--windows", "soon"), "nodes.windows"),
        (("--taints", "--set", "nodes.warm_percent=-2"), "nodes.warm_percent"),
        (("--taints", "--set", "nodes.lease_name=../x"), "nodes.lease_name"),
        (("--taints", "--set", "nodes.warm_percent=80"), "warm_percent 80 must be below hot_percent 80"),
        (("--taints", "--set", "nodes.taint_key=trimaran.io/warm"), "taint_key must not be trimaran.io/warm"),
    ],
)
def test_unusable_settings_are_reported(arguments: tuple[str, ...], why: str) -> None:
    """An unusable setting ends the command with status 2 and an error that names it."""
    done = CliRunner().invoke(main, ["nodes", *arguments])
    assert done.exit_code == 2
    assert why in done.output
