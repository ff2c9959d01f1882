"""What is written on nodes: which are hot, what annotations say, how much is written, and by whom."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.documented import check_each_setting_is_documented
from support.extending import metrics
from support.nodes_api import NodesApi

from client import NoMetrics
from runtime.kubernetes.leader_election import Lease
from runtime.settings.loading import load_as
from trimaran.cli.main import main
from trimaran.soft_taints import annotations
from trimaran.soft_taints.hysteresis import HeatRule, loads_of
from trimaran.soft_taints.node_state import MarkMirror, Marks
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import Plan, Writer
from watcher.model import NodeMetrics, WatcherMetrics

NOW = 1_800_000_000
RULE = HeatRule(hot_percent=80, cool_percent=70, hold_seconds=300, most_share=0.5)
NAMES = ("a", "b", "c", "d")
FOREIGN = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


# -- which nodes are hot ------------------------------------------------------------------------------------------


def test_a_node_becomes_hot_and_cools_by_two_limits() -> None:
    """Hot from 80 on, no longer below 70, and in between what it was."""
    hot = RULE.hot(NAMES, {"a": 80.0, "b": 79.9}, {}, 0)
    assert hot == {"a": 0}
    assert RULE.hot(NAMES, {"a": 70.0, "b": 79.9}, hot, 1000) == {"a": 0}
    assert RULE.hot(NAMES, {"a": 69.9, "b": 79.9}, hot, 1000) == {}


def test_a_node_is_hot_for_a_while_at_least() -> None:
    """However quickly it cools, the taint does not flap."""
    hot = RULE.hot(NAMES, {"a": 90.0}, {}, 0)
    assert RULE.hot(NAMES, {"a": 1.0}, hot, 299) == hot
    assert RULE.hot(NAMES, {"a": 1.0}, hot, 300) == {}


def test_no_more_than_the_most_share_is_hot() -> None:
    """The most loaded ones are called so first; who is hot already stays, also when others are hotter."""
    loads = {"a": 85.0, "b": 99.0, "c": 90.0, "d": 88.0}
    assert RULE.hot(NAMES, loads, {}, 0).keys() == {"b", "c"}
    assert RULE.hot(NAMES, loads, {"a": -1000.0}, 0).keys() == {"a", "b"}
    assert HeatRule(most_share=0).hot(NAMES, loads, {}, 0) == {}


def test_nodes_that_are_not_measured_do_not_become_hot_and_do_not_stay_so_for_ever() -> None:
    """Without a measurement a hot node stays hot for as long as it has to; one that is gone is forgotten at once."""
    assert RULE.hot(NAMES, {}, {"a": 0.0, "gone": 0.0}, 299) == {"a": 0.0}
    assert RULE.hot(NAMES, {}, {"a": 0.0}, 300) == {}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 100)), st.floats(0, 1), st.floats(0, 1e6))
def test_the_share_holds_for_all_loads(loads: Mapping[str, float], share: float, now: float) -> None:
    """Whatever the loads: no more than the share, all of them at the limit or above, the hottest first."""
    hot = HeatRule(most_share=share).hot("abcdefgh", loads, {}, now)
    assert len(hot) <= share * 8
    assert all(loads[name] >= 80 for name in hot)
    assert all(loads[name] <= min(loads[each] for each in hot) for name in loads if hot and name not in hot)


def test_limits_in_the_wrong_order_are_refused() -> None:
    """As settings too, by name."""
    with pytest.raises(ValueError, match="cool_percent 90 is above hot_percent 80"):
        HeatRule(cool_percent=90)
    done = CliRunner().invoke(main, ["nodes", "--taints", "--set", "nodes.cool_percent=90"])
    assert done.exit_code == 2
    assert "cool_percent" in done.output


# -- annotations --------------------------------------------------------------------------------------------------


def test_an_annotation_stays_until_it_is_a_step_off() -> None:
    """Values are multiples of the step; what is written holds while it is no more than a step from the truth."""
    key = "load.trimaran.io/15m"
    first = annotations.wanted("15m", {"CPU": 41.0, "Memory": 55.1}, {}, 5)
    assert first == {key: "cpu=40,memory=55"}
    assert annotations.wanted("15m", {"CPU": 45.0, "Memory": 50.0}, first, 5) == first
    assert annotations.wanted("15m", {"CPU": 45.1, "Memory": 50.0}, first, 5) == {key: "cpu=45,memory=55"}
    assert annotations.wanted("15m", {"CPU": 41.0}, first, 5) == {key: "cpu=40"}
    assert annotations.wanted("15m", {}, first, 5) == {}
    assert annotations.wanted("15m", {"CPU": 200.0}, {key: "somebody's words"}, 5) == {key: "cpu=100"}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0.5, 20))
def test_what_is_written_is_never_more_than_a_step_off(loads: list[float], step: float) -> None:
    """Through any series of loads."""
    written: Mapping[str, str] = {}
    for load in loads:
        written = annotations.wanted("5m", {"CPU": load}, written, step)
        (text,) = written.values()
        assert abs(float(text.removeprefix("cpu=")) - load) <= step * 1.001 + 1e-4


def test_distance_tells_what_is_furthest_off() -> None:
    """By it the budget is spent: what is new comes first."""
    written = {"load.trimaran.io/5m": "cpu=40,memory=50"}
    assert annotations.distance({"load.trimaran.io/5m": "cpu=55,memory=50"}, written) == 15
    assert annotations.distance({"load.trimaran.io/15m": "cpu=55"}, written) == 100


# -- patches ------------------------------------------------------------------------------------------------------


def test_a_patch_keeps_other_peoples_taints() -> None:
    """Only ours come and go, and with the version that was read; an unchanged node needs no patch."""
    node = {"metadata": {"name": "a", "resourceVersion": "7", "annotations": {"x": "y"}}, "spec": {"taints": [FOREIGN]}}
    marks = Marks.of(node)
    patch = marks.patch("trimaran.io/hot", hot=True, annotations={})
    ours = {"key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule"}
    assert patch == {"spec": {"taints": [FOREIGN, ours]}, "metadata": {"resourceVersion": "7"}}
    assert marks.patch("trimaran.io/hot", hot=False, annotations={}) == {}
    tainted = Marks.of({**node, "spec": {"taints": [ours, FOREIGN]}})
    assert tainted.patch("trimaran.io/hot", hot=True, annotations={}) == {}
    assert tainted.patch("trimaran.io/hot", hot=False, annotations={})["spec"] == {"taints": [FOREIGN]}
    assert tainted.patch("trimaran.io/hot", hot=None, annotations={}) == {}
    assert Marks.of({"metadata": {"name": "a"}}) == Marks()


# -- the writer ---------------------------------------------------------------------------------------------------


class Held:
    """A watcher whose metrics a test sets, the same for every window; None is an outage."""

    def __init__(self, loads: Mapping[str, float] | None = None) -> None:
        self.loads, self.now = loads, float(NOW)
        self._kept: tuple[object, WatcherMetrics] | None = None

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        if self.loads is None:
            raise NoMetrics("the watcher has nothing fresh")
        if self._kept is None or self._kept[0] is not self.loads:
            self._kept = self.loads, metrics(self.loads, self.now)
        return self._kept[1]


class Bench:
    """A writer over an API in memory, driven by hand."""

    def __init__(self, names: tuple[str, ...] = NAMES, plan: Plan | None = None, api: NodesApi | None = None) -> None:
        self.api = api or NodesApi(*names)
        self.mirror = MarkMirror()
        self.mirror.replace(self.api.nodes.values())
        self.watcher = Held()
        self.held = True
        self.writer = Writer(
            self.api, self.mirror, self.watcher, plan or Plan(rule=RULE), lambda: self.held,
            clock=lambda: self.watcher.now, monotonic=lambda: self.watcher.now,
        )  # fmt: skip

    def turn(self, loads: Mapping[str, float] | None, seconds: float = 30.0) -> None:
        self.watcher.loads = loads
        self.watcher.now += seconds
        self.writer.turn()

    def hot(self) -> set[str]:
        found = {name: Marks.of(node) for name, node in self.api.nodes.items()}
        return {name for name, marks in found.items() if marks.is_tainted("trimaran.io/hot")}


def test_hot_nodes_are_tainted_until_they_cool() -> None:
    """The taint comes and goes with the load, and nothing is written while nothing changes."""
    bench = Bench()
    bench.turn({"a": 90.0, "b": 10.0})
    assert bench.hot() == {"a"}
    bench.turn({"a": 75.0, "b": 10.0}, 400)
    assert len(bench.api.writes) == 1
    bench.turn({"a": 60.0, "b": 10.0})
    assert bench.hot() == set()
    assert bench.writer.counts.taints == len(bench.api.writes) == 2


def test_in_an_outage_nothing_becomes_hot_and_taints_end() -> None:
    """Without metrics, or with old ones, taints stay for the time that they have to, and no longer."""
    bench = Bench()
    bench.turn({"a": 90.0})
    bench.turn(None, 200)
    assert bench.hot() == {"a"}
    bench.turn(None, 200)
    assert bench.hot() == set()
    bench.watcher._kept = (bench.watcher.loads, metrics({"b": 99.0}, NOW - 1000))
    bench.turn(bench.watcher.loads)
    assert bench.hot() == set()


def test_a_suspect_node_is_not_measured() -> None:
    """What the watcher doubts taints nobody."""
    found = metrics({"a": 90.0, "b": 90.0})
    doubted = {**found.data, "a": NodeMetrics(found.data["a"].metrics, {}, {"suspect": "frozen"})}
    assert loads_of(WatcherMetrics(found.timestamp, found.window, "Fake", doubted)) == {"b": 90.0}


def test_taints_of_the_last_run_are_taken_over() -> None:
    """A new writer knows who is tainted, keeps who is still hot, and takes the others' taints away."""
    first = Bench()
    first.turn({"a": 90.0, "b": 90.0})
    second = Bench(api=first.api)
    second.turn({"a": 75.0, "b": 60.0})
    assert second.hot() == {"a"}


def test_somebody_who_was_faster_is_not_overwritten() -> None:
    """A taint that another one set meanwhile costs the write, and is kept by the next one."""
    bench = Bench()
    bench.api.taint("a", FOREIGN)
    bench.turn({"a": 90.0})
    assert bench.writer.counts.conflicts == 1
    assert bench.api.nodes["a"]["spec"]["taints"] == [FOREIGN]
    bench.mirror.put(bench.api.nodes["a"])
    bench.turn({"a": 90.0})
    assert bench.api.nodes["a"]["spec"]["taints"][0] == FOREIGN
    assert bench.hot() == {"a"}


def test_without_the_lease_nothing_is_written() -> None:
    """Neither before it is held nor after it was lost."""
    bench = Bench()
    bench.held = False
    bench.turn({"a": 90.0})
    assert bench.api.writes == []
    bench.held = True
    bench.turn({"a": 90.0})
    assert len(bench.api.writes) == 1


def test_the_budget_holds_and_taints_come_first() -> None:
    """More than the budget waits, and is written when there is room; hot nodes go before annotations."""
    names = tuple(f"node-{number}" for number in range(100))
    plan = Plan(rule=HeatRule(most_share=0.1), windows=("5m",), writes_per_minute=20)
    bench = Bench(names, plan)
    bench.writer._plan = Plan(rule=HeatRule(most_share=0.1), windows=("5m",), writes_per_minute=20)
    loads = {name: 90.0 if number >= 95 else 30.0 for number, name in enumerate(names)}
    bench.turn(loads, 0)
    assert bench.hot() == set(names[95:])
    assert len(bench.api.writes) == 20
    assert bench.writer.counts.waiting == 80
    for _ in range(8):
        bench.turn(dict(loads))
    assert len(bench.api.writes) == 100
    assert bench.writer.counts.waiting == 0
    assert bench.api.nodes["node-0"]["metadata"]["annotations"] == {"load.trimaran.io/5m": "cpu=30,memory=30"}


def test_everything_is_taken_off_again() -> None:
    """``--clear`` leaves nothing of ours, and everything of others."""
    bench = Bench(plan=Plan(rule=RULE, windows=("5m",)))
    bench.api.taint("a", FOREIGN)
    bench.mirror.put(bench.api.nodes["a"])
    bench.turn({"a": 90.0, "b": 30.0})
    bench.writer.clear()
    assert {
        name: node["spec"].get("taints") for name, node in bench.api.nodes.items() if node["spec"].get("taints")
    } == {"a": [FOREIGN]}
    assert not any(node["metadata"].get("annotations") for node in bench.api.nodes.values())


@pytest.mark.slow
def test_an_hour_of_5000_nodes_keeps_the_budget_and_does_not_flap() -> None:
    """Slow and quick moves of all nodes at once: no minute has more writes than stated, each taint lasts."""
    count, turns = 5000, 60
    dice = np.random.default_rng(8)
    names = tuple(f"node-{number}" for number in range(count))
    plan = Plan(rule=HeatRule(most_share=0.1), windows=("15m",), writes_per_minute=120)
    bench = Bench(names, plan)
    level, noise = dice.uniform(5, 95, count), np.zeros(count)
    tainted_at: dict[str, float] = {}
    times: Counter[str] = Counter()
    lasted: list[float] = []
    before: set[str] = set()
    writes_before = 0
    for turn in range(turns):
        noise = 0.9 * noise + dice.normal(0, 3, count)
        loads = np.clip(level + 15 * np.sin(2 * np.pi * turn / turns + level) + noise, 0, 100)
        bench.turn(dict(zip(names, loads.tolist(), strict=True)), 60)
        assert len(bench.api.writes) - writes_before <= 120
        writes_before = len(bench.api.writes)
        hot = bench.hot()
        assert len(hot) <= count * 0.1
        for name in hot - before:
            tainted_at[name] = bench.watcher.now
            times[name] += 1
        lasted += [bench.watcher.now - tainted_at[name] for name in before - hot]
        before = hot
    assert len(bench.api.writes) <= 120 * turns
    assert len(lasted) > 100
    assert min(lasted) >= 300
    assert max(times.values()) <= 4


# -- the lease ----------------------------------------------------------------------------------------------------


class Contenders:
    """Two who want one Lease, with one clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.api = NodesApi()
        self.one, self.other = (self._made(name) for name in ("one", "other"))

    def _made(self, identity: str) -> Lease:
        return Lease(self.api, "trimaran", "trimaran-nodes", identity, 15, monotonic=lambda: self.now)

    def renew(self) -> tuple[bool, bool]:
        return self.one.renew(), self.other.renew()


def test_one_of_two_holds_the_lease() -> None:
    """Whoever was first keeps it for as long as it renews it."""
    both = Contenders()
    for _ in range(20):
        assert both.renew() == (True, False)
        assert (both.one.is_held, both.other.is_held) == (True, False)
        both.now += 5


def test_the_other_takes_over_when_the_holder_is_gone() -> None:
    """Not before the Lease was left alone for all its time; by then the holder has given up by itself."""
    both = Contenders()
    both.renew()
    for _ in range(2):
        both.now += 5
        assert not both.other.renew()
    assert not both.one.is_held
    both.now += 5
    assert both.other.renew()
    assert both.one.renew() is False
    (lease,) = both.api.leases.values()
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("other", 1)


def test_a_holder_that_ends_gives_it_up() -> None:
    """The other one need not wait."""
    both = Contenders()
    both.renew()
    both.one.release()
    assert both.other.renew()
    both.one.release()
    assert both.other.renew()


def test_an_api_that_is_down_ends_what_is_held() -> None:
    """Nobody writes on the belief of before: two thirds of the time after the last renewal it is over."""
    both = Contenders()
    both.renew()
    both.api.down = True
    both.now = 9.9
    assert both.one.renew()
    both.now = 10.0
    assert not both.one.renew()
    both.api.down = False
    assert both.one.renew()


def test_of_two_at_once_one_wins() -> None:
    """Both read a free Lease: the version, or its being there, tells the second that it was late."""
    both = Contenders()
    first, again = both.api.send, []

    def late(method: str, path: str, *rest: Any) -> Any:
        if method != "GET" and not again:
            again.append(method)
            assert both.other.renew()
        return first(method, path, *rest)

    both.api.send = late  # type: ignore[method-assign]
    assert not both.one.renew()
    assert again == ["POST"]


# -- the command --------------------------------------------------------------------------------------------------


def test_each_setting_is_documented() -> None:
    """Every setting of the section has its row, with its variable and its default, and no row is left over."""
    check_each_setting_is_documented("nodes.md", "nodes", load_as(NodesSettings).settings.nodes)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "nothing is to be written"),
        (("--taints", "--watcher", "http://127.0.0.1:9"), "nodes.kube_config"),
        (("--windows", "soon"), "nodes.windows"),
        (("--taints", "--set", "nodes.most_share=2"), "nodes.most_share"),
        (("--taints", "--set", "nodes.lease_name=../x"), "nodes.lease_name"),
    ],
)
def test_what_cannot_be_used_is_told(arguments: tuple[str, ...], why: str) -> None:
    """Status 2 and a line that names the setting."""
    done = CliRunner().invoke(main, ["nodes", *arguments])
    assert done.exit_code == 2
    assert why in done.output


def test_loads_are_the_higher_of_cpu_and_memory() -> None:
    """As a node is hot by either."""
    assert loads_of(metrics({"a": 12.0})) == {"a": 12.0}
    assert Counter(loads_of(metrics({})).values()) == Counter()
