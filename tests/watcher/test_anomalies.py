"""What fetches show against the ones before, and what is done about it: small clusters, one fetch a minute."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality.anomalies import AnomalyDetector
from watcher.settings import QualitySettings

START = 1_700_000_000
NODES = 6


class Cluster:
    """Six nodes with noise around levels of 20 to 45 percent, and what is made of them."""

    def __init__(self, **settings: Any) -> None:
        self.detector = AnomalyDetector(QualitySettings(**settings), ["15m", "5m"], 60)
        self.rng = np.random.default_rng(501)
        self.now = START
        self.last: dict[str, WatcherMetrics] = {}
        self.findings: list[Finding] = []

    def nodes(self, tags: Mapping[str, str] | None = None) -> dict[str, NodeMetrics]:
        """Return the next values of all nodes."""
        data = {}
        for number in range(NODES):
            metrics = []
            for resource in ("CPU", "Memory"):
                average, deviation = 20 + 5 * number + self.rng.normal(0, 0.5), 2 + self.rng.normal(0, 0.1)
                for operator, value in (("AVG", average), ("STD", deviation)):
                    metrics.append(Metric(f"{resource.lower()}:percent", resource, operator, "5m", value))
            data[f"n{number}"] = NodeMetrics(tuple(metrics), tags or {})
        return data

    def judge(self, data: Mapping[str, NodeMetrics] | None = None, newest: Mapping[str, float] | None = None) -> None:
        """Fetch once, a minute later, with the same values in both windows."""
        self.now += 60
        data = self.nodes() if data is None else data
        snapshots = {
            name: WatcherMetrics(self.now, Window(name, self.now - seconds, self.now), "Test", data)
            for name, seconds in (("15m", 900), ("5m", 300))
        }
        self.last, self.findings = self.detector.judge(self.now, snapshots, newest or {})

    def run(self, fetches: int = 20) -> None:
        """Fetch what is well."""
        for _ in range(fetches):
            self.judge()
            assert self.findings == []

    def seen(self) -> list[tuple[str, str, str, str]]:
        """Return kind, node, metric and action of each finding."""
        return [(each.kind, each.node, each.metric, each.action) for each in self.findings]

    def metadata(self, node: str, window: str = "15m") -> Mapping[str, str | float]:
        """Return the metadata that a node is published with."""
        return self.last[window].data[node].metadata


def scaled(node: NodeMetrics, factor: float, name: str = "cpu:percent") -> NodeMetrics:
    """Return the node with all values of a metric multiplied."""
    return NodeMetrics(
        tuple(
            Metric(each.name, each.type, each.operator, each.rollup, each.value * (factor if each.name == name else 1))
            for each in node.metrics
        )
    )


def test_what_is_well_passes_untouched() -> None:
    """Live nodes have no findings, and their snapshots are the same objects."""
    cluster = Cluster()
    cluster.run(80)
    data = cluster.nodes()
    cluster.judge(data)
    assert all(metrics.data is data for metrics in cluster.last.values())


def test_a_node_that_is_gone_is_missing_for_an_hour() -> None:
    """It is reported since its last fetch until it is forgotten."""
    cluster = Cluster()
    cluster.run()
    last = cluster.now
    for _ in range(60):
        data = cluster.nodes()
        del data["n2"]
        cluster.judge(data)
        assert cluster.seen() == [("missing", "n2", "", "reported")]
        assert cluster.findings[0].since == last
    data = cluster.nodes()
    del data["n2"]
    cluster.judge(data)
    assert cluster.findings == []


@pytest.mark.parametrize(("kept", "type_"), [("memory:percent", "CPU"), ("cpu:percent", "Memory")])
def test_a_required_metric_that_is_gone_is_missing(kept: str, type_: str) -> None:
    """A node without CPU or Memory, which it had before, is reported by resource; under another name it is there."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    whole = data["n1"].metrics
    data["n1"] = NodeMetrics(tuple(each for each in whole if each.name == kept))
    cluster.judge(data)
    assert cluster.seen() == [("missing", "n1", type_, "reported")]
    renamed = (Metric("other", each.type, each.operator, "5m", each.value) for each in whole if each.name != kept)
    data["n1"] = NodeMetrics((*data["n1"].metrics, *renamed))
    cluster.judge(data)
    assert cluster.findings == []


def test_what_was_dropped_for_a_reason_is_not_missing() -> None:
    """A node that already has a finding in the window has lost its metric to it."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    del data["n1"]
    metrics = WatcherMetrics(cluster.now + 60, Window("5m", 0, 300), "Test", data)
    known = [Finding(Kind.NOT_FINITE, "AVG is nan", "5m", "n1", "cpu:percent", "dropped")]
    _, findings = cluster.detector.judge(cluster.now + 60, {"5m": metrics}, {}, known)
    assert findings == []


def test_frozen_cpu_is_reported_and_then_marked() -> None:
    """After 20 minutes it is reported since it stands, after three times as long the node's metadata says so."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    still = [each for each in data["n3"].metrics if each.type == "CPU"]
    begin = cluster.now + 60
    for minute in range(65):
        data = cluster.nodes()
        alive = [each for each in data["n3"].metrics if each.type != "CPU"]
        data["n3"] = NodeMetrics((*still, *alive))
        cluster.judge(data)
        action = "marked" if minute >= 60 else "reported"
        assert cluster.seen() == ([("frozen", "n3", "cpu:percent", action)] if minute >= 20 else [])
        assert all(each.since == begin for each in cluster.findings)
        for window in ("15m", "5m"):
            assert cluster.metadata("n3", window) == ({"suspect": "frozen"} if minute >= 60 else {})
            assert cluster.metadata("n2", window) == {}


def test_a_source_that_repeats_itself_is_one_finding() -> None:
    """When all nodes freeze at once there is one finding, not one for each of them; all of them are marked."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    for _ in range(61):
        cluster.judge(data)
    assert cluster.seen() == [("frozen", "", "cpu:percent", "marked")]
    assert cluster.findings[0].message.startswith("6 of 6 nodes, for one: ")
    assert {cluster.metadata(node)["suspect"] for node in data} == {"frozen"}


def test_a_spike_is_reported() -> None:
    """An average that no window can have got to is reported and left alone, unless the setting says otherwise."""
    for settings, action, left in (({}, "reported", 4), ({"spike_action": "drop"}, "dropped", 2)):
        cluster = Cluster(**settings)
        cluster.run()
        data = cluster.nodes()
        data["n0"] = scaled(data["n0"], 4.5)
        cluster.judge(data)
        assert cluster.seen() == [("spike", "n0", "cpu:percent", action)]
        assert [len(metrics.data["n0"].metrics) for metrics in cluster.last.values()] == [left, left]
        cluster.judge()
        assert cluster.findings == []


def test_one_node_in_ratios_is_reported() -> None:
    """A node whose CPU falls to a hundredth of what it was is reported while the past remembers."""
    cluster = Cluster()
    cluster.run()
    for _ in range(30):
        data = cluster.nodes()
        data["n4"] = scaled(data["n4"], 0.01)
        cluster.judge(data)
        assert cluster.seen() == [("wrong_scale", "n4", "cpu:percent", "reported")]


@pytest.mark.parametrize("fetches", [0, 20])
def test_a_whole_fetch_in_ratios_is_marked(fetches: int) -> None:
    """Memory in ratios is found at once; what all nodes fell to is found at once too, and all are marked."""
    cluster = Cluster()
    cluster.run(fetches)
    cluster.judge({name: scaled(node, 0.01, "memory:percent") for name, node in cluster.nodes().items()})
    assert cluster.seen() == [("wrong_scale", "", "memory:percent", "marked")]
    assert all(cluster.metadata(f"n{number}") == {"suspect": "wrong_scale"} for number in range(NODES))


@pytest.mark.parametrize("rises", [False, True])
def test_an_idle_cluster_that_rises_now_and_then_has_no_ratios(rises: bool) -> None:
    """CPU that is below 1 percent of all nodes for hours is a ratio, but where a node was above it within a day."""
    cluster = Cluster()
    seen = []
    for fetch in range(100):
        data = {name: scaled(node, 0.01 + 0.002 * int(name[1])) for name, node in cluster.nodes().items()}
        data["n5"] = scaled(data["n5"], 5 if rises and fetch in (3, 4) else 1)
        cluster.judge(data)
        seen += [each for each in cluster.seen() if each[0] == "wrong_scale"]
    assert bool(seen) != rises


def test_dropping_all_leaves_no_window() -> None:
    """What is wrong about all nodes may be dropped by setting; a window that nothing is left of is left out."""
    cluster = Cluster(wrong_scale_action="drop")
    ratios = {name: scaled(node, 0.01, "memory:percent") for name, node in cluster.nodes().items()}
    cluster.judge(ratios)
    assert {each.type for each in cluster.last["15m"].data["n0"].metrics} == {"CPU"}
    cluster.judge(
        {
            name: NodeMetrics(tuple(each for each in node.metrics if each.type == "Memory"))
            for name, node in ratios.items()
        }
    )
    assert cluster.last == {}


def test_old_samples_are_stale_and_new_ones_that_come_late_are_a_clock() -> None:
    """Beyond the limit a newest sample that stays is stale since then, and one that moves is of a clock behind."""
    cluster = Cluster()
    stopped = cluster.now
    for minute in range(1, 10):
        cluster.judge(newest={"n0": stopped, "n1": cluster.now - 540, "n2": cluster.now, "n3": cluster.now + 60 + 61})
        old = [("stale", "n0", "", "marked")] if minute > 5 else []
        behind = ("clock_skew", "n1", "", "reported") if minute > 1 else ("stale", "n1", "", "marked")
        assert cluster.seen() == [*old, behind, ("clock_skew", "n3", "", "reported")]
    assert cluster.findings[0].since == stopped
    assert cluster.metadata("n0") == {"suspect": "stale"}
    assert cluster.metadata("n1") == {}


def test_thin_windows_are_reported() -> None:
    """A node with less than half of a window's samples is reported for each window; the limit is a setting."""
    for settings, count in (({}, 2), ({"min_coverage": 0.4}, 0)):
        cluster = Cluster(**settings)
        data = cluster.nodes()
        data["n0"] = NodeMetrics(data["n0"].metrics, {}, {"coverage": 0.45})
        data["n1"] = NodeMetrics(data["n1"].metrics, {}, {"coverage": 0.5})
        cluster.judge(data)
        assert cluster.seen() == [("low_coverage", "n0", "", "reported")] * count


def test_averages_over_more_than_a_window_are_told_by_tags() -> None:
    """Deviations within 5 minutes of averages over 10 say little, those within 15 do not; an odd tag is no reason."""
    cluster = Cluster()
    cluster.judge(cluster.nodes({"smoothing": "10m"}))
    assert [(each.kind, each.window, each.node) for each in cluster.findings] == [("double_smoothing", "5m", "")]
    cluster.judge(cluster.nodes({"smoothing": "5m", "step": "no duration"}))
    assert cluster.findings == []


@pytest.mark.parametrize("told", [False, True])
def test_averages_over_more_than_a_window_show(told: bool) -> None:
    """Where nothing says so, deviations much smaller than the differences of windows do, for CPU as a whole."""
    cluster = Cluster()
    levels = np.cumsum(cluster.rng.normal(0, 0.4, (NODES, 60)), axis=1)
    for fetch in range(40):
        data = cluster.nodes({"smoothing": "5m"} if told else {})
        for number, (name, node) in enumerate(data.items()):
            moved = (
                Metric(
                    each.name,
                    each.type,
                    each.operator,
                    "5m",
                    40 + levels[number, fetch] if each.operator == "AVG" else 0.1,
                )
                for each in node.metrics
                if each.type == "CPU"
            )
            data[name] = NodeMetrics((*moved, *(each for each in node.metrics if each.type != "CPU")), node.tags)
        cluster.judge(data)
    assert cluster.seen() == ([] if told else [("double_smoothing", "", "cpu:percent", "reported")])


def test_another_source_begins_a_new_past() -> None:
    """When a fallback answers, its values are not held against those of the other."""
    cluster = Cluster()
    cluster.run()
    data = {name: scaled(node, 0.01) for name, node in cluster.nodes().items()}
    del data["n0"]
    now = cluster.now + 60
    metrics = WatcherMetrics(now, Window("5m", now - 300, now), "Other", data)
    assert cluster.detector.judge(now, {"5m": metrics}, {})[1] == []


def test_without_the_shortest_window_the_last_judgement_holds() -> None:
    """What was marked stays marked in the windows that did come, and is not found anew."""
    cluster = Cluster()
    data = {name: scaled(node, 0.01, "memory:percent") for name, node in cluster.nodes().items()}
    cluster.judge(data)
    now = cluster.now + 60
    metrics = WatcherMetrics(now, Window("15m", now - 900, now), "Test", data)
    judged, findings = cluster.detector.judge(now, {"15m": metrics}, {})
    assert findings == []
    assert judged["15m"].data["n0"].metadata == {"suspect": "wrong_scale"}


def test_what_is_remembered_counts() -> None:
    """After a restart, snapshots that were kept are the past that the next fetch is held against."""
    cluster = Cluster()
    for _ in range(20):
        cluster.now += 60
        window = Window("5m", cluster.now - 300, cluster.now)
        cluster.detector.remember(WatcherMetrics(cluster.now, window, "Test", cluster.nodes()))
    data = cluster.nodes()
    data["n0"] = scaled(data["n0"], 4.5)
    cluster.judge(data)
    assert cluster.seen() == [("spike", "n0", "cpu:percent", "reported")]


def zeroed(node: NodeMetrics) -> NodeMetrics:
    """Return the node with CPU at exactly 0."""
    return scaled(node, 0.0)


def test_cpu_that_is_exactly_0_is_a_flatline() -> None:
    """CPU at 0 while memory lives is told with the first fetch, since then, and marked; so is a node's in its rest."""
    cluster = Cluster()
    cluster.run(70)
    begin = cluster.now + 60
    for _ in range(30):
        data = cluster.nodes()
        data["n2"] = zeroed(data["n2"])
        cluster.judge(data)
        assert ("flatline", "n2", "cpu:percent", "marked") in cluster.seen()
    assert next(each.since for each in cluster.findings if each.kind is Kind.FLATLINE) == begin
    assert "flatline" in str(cluster.metadata("n2")["suspect"])
    cluster.judge()
    assert not [each for each in cluster.findings if each.kind is Kind.FLATLINE]


def test_a_node_that_rests_at_0_is_no_flatline() -> None:
    """A node that was at exactly 0 when it was seen first may be so again."""
    cluster = Cluster()
    for fetch in range(100):
        data = cluster.nodes()
        if fetch < 10 or fetch > 80:
            data["n2"] = zeroed(data["n2"])
        cluster.judge(data)
        assert not [each for each in cluster.findings if each.kind is Kind.FLATLINE]


def test_an_idle_node_that_comes_to_0_is_no_flatline() -> None:
    """What is used to less than 2 percent may be at exactly 0 in a sample, and misleads nobody."""
    cluster = Cluster()
    for fetch in range(100):
        data = cluster.nodes()
        data["n2"] = zeroed(data["n2"]) if fetch > 80 else scaled(data["n2"], 0.03)
        cluster.judge(data)
        assert not [each for each in cluster.findings if each.kind is Kind.FLATLINE]


def test_two_nodes_with_the_same_values_are_duplicates() -> None:
    """A node that reports another's values is told with it after a few fetches, and both are marked."""
    cluster = Cluster()
    cluster.run(20)
    told = None
    for fetch in range(20):
        data = cluster.nodes()
        moved = scaled(data["n1"], 1 + 0.3 * cluster.rng.uniform(-1, 1))
        data["n1"] = data["n4"] = moved
        cluster.judge(data)
        twins = [each for each in cluster.seen() if each[0] == "duplicate_node"]
        if twins:
            told = fetch if told is None else told
            assert [(each[1], each[3]) for each in twins] == [("n1", "marked"), ("n4", "marked")]
    assert told is not None
    assert 5 <= told <= 12


def test_a_node_that_used_to_rest_may_rest_beside_a_deviation_that_is_always_0() -> None:
    """Of windows with one sample every deviation is 0: how long the average used to rest is what counts."""
    cluster = Cluster()
    told = []
    for fetch in range(150):
        data = cluster.nodes()
        level = 1.25 if 30 <= fetch < 60 or fetch >= 90 else 1.25 + 0.001 * (fetch + 1)
        metrics = (Metric("cpu:percent", "CPU", "AVG", "5m", level), Metric("cpu:percent", "CPU", "STD", "5m", 0.0))
        data["n2"] = NodeMetrics((*metrics, *data["n2"].metrics[2:]))
        cluster.judge(data)
        told += [fetch for each in cluster.findings if each.kind is Kind.FROZEN]
    assert min(told) > 45, "it had never rested before"
    assert [fetch for fetch in told if 60 <= fetch < 145] == []


def test_a_frozen_node_shows_although_providers_take_turns() -> None:
    """Two sources that answer for 15 fetches each have a past of their own each, so a still value stays still."""
    cluster = Cluster()
    still = cluster.nodes()["n3"]
    seen: set[str] = set()
    for fetch in range(150):
        cluster.now += 60
        data = cluster.nodes()
        data["n3"] = still
        source = "Test" if fetch // 15 % 2 else "Other"
        window = Window("5m", cluster.now - 300, cluster.now)
        _, found = cluster.detector.judge(cluster.now, {"5m": WatcherMetrics(cluster.now, window, source, data)}, {})
        seen |= {each.node for each in found if each.kind is Kind.FROZEN}
    assert seen == {"n3"}


def slow_source(step: int, interval: int, windows: tuple[str, ...], hours: int = 6) -> list[list[Finding]]:
    """Judge six nodes whose samples are so many seconds apart and differ by tens of percents, as loads do."""
    rng = np.random.default_rng(7)
    detector = AnomalyDetector(QualitySettings(), windows, interval)
    levels = rng.uniform(20, 80, (NODES, hours * 3600 // step + 4))
    found = []
    for fetch in range(hours * 3600 // interval):
        now = START + fetch * interval
        snapshots = {}
        for window in windows:
            seconds = int(window[:-1]) * 60
            last, count = fetch * interval // step + 3, max(1, seconds // step)
            samples = levels[:, max(0, last - count + 1) : last + 1]
            data = {
                f"n{node}": NodeMetrics(
                    (
                        Metric("cpu", "CPU", "AVG", window, float(samples[node].mean())),
                        Metric("cpu", "CPU", "STD", window, float(samples[node].std())),
                    )
                )
                for node in range(NODES)
            }
            snapshots[window] = WatcherMetrics(now, Window(window, now - seconds, now), "Test", data)
        found.append(detector.judge(now, snapshots, {})[1])
    return found


def test_samples_every_5_minutes_fetched_every_minute_are_no_spikes() -> None:
    """A window of one sample jumps as the load does, and its deviation of 0 is no sign of smoothing."""
    kinds = {finding.kind for found in slow_source(300, 60, ("15m", "10m", "5m")) for finding in found}
    assert kinds.isdisjoint({Kind.SPIKE, Kind.DOUBLE_SMOOTHING, Kind.WRONG_SCALE, Kind.FROZEN})


def test_fetches_every_5_minutes_are_held_against_a_window_that_overlaps() -> None:
    """Where the shortest window is no longer than an interval, the past of a longer one is kept."""
    assert AnomalyDetector(QualitySettings(), ["15m", "10m", "5m"], 300).window == "15m"
    assert AnomalyDetector(QualitySettings(), ["15m", "10m", "5m"], 60).window == "5m"
    assert AnomalyDetector(QualitySettings(), ["5m"], 300).window == "5m"


def test_all_nodes_in_another_unit_are_told_by_the_ramp_of_the_window() -> None:
    """When the whole source becomes a fortieth, windows pass through what lies between, and it is told all the same."""
    cluster = Cluster()
    cluster.run(30)
    told = []
    for fetch in range(12):
        factor = 1 - min(fetch + 1, 5) / 5 * (1 - 1 / 40)
        cluster.judge({name: scaled(node, factor) for name, node in cluster.nodes().items()})
        told += [(fetch, *each) for each in cluster.seen() if each[0] == "wrong_scale"]
    assert told
    assert told[-1] == (11, "wrong_scale", "", "cpu:percent", "marked")
    assert told[0][0] <= 5


def test_what_a_second_source_says_of_most_nodes_is_reported_once() -> None:
    """Where it contradicts most nodes, either may be wrong: one finding, and nothing is marked."""
    cluster = Cluster()
    for _ in range(15):
        cluster.now += 60
        data = cluster.nodes()
        window = Window("5m", cluster.now - 300, cluster.now)
        metrics = WatcherMetrics(cluster.now, window, "Test", data)
        beside = {name: scaled(node, 3) for name, node in data.items()}
        judged, found = cluster.detector.judge(cluster.now, {"5m": metrics}, {}, (), beside)
    assert [(each.kind, each.node, each.metric, each.action) for each in found] == [
        ("disagreement", "", "cpu:percent", "reported")
    ]
    assert judged["5m"].data is data
