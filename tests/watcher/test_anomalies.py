"""Tests of the comparison with earlier fetches, on small clusters with one fetch a minute."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality.anomalies import AnomalyDetector
from watcher.quality.reactions import merge_common
from watcher.settings import QualitySettings

START = 1_700_000_000
NODES = 6


class Cluster:
    """Six nodes with noise around loads of 20 to 45 percent, and the detector's results."""

    def __init__(self, source: str = "Test", *, interval: int = 60, **settings: Any) -> None:
        self.source, self.interval = source, interval
        self.detector = AnomalyDetector(QualitySettings().model_copy(update=settings), ["15m", "5m"], interval)
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
        """Fetch once, an interval later, with the same values in both windows."""
        self.now += self.interval
        data = self.nodes() if data is None else data
        snapshots = {
            name: WatcherMetrics(self.now, Window(name, self.now - seconds, self.now), self.source, data)
            for name, seconds in (("15m", 900), ("5m", 300))
        }
        self.last, self.findings = self.detector.judge(self.now, snapshots, newest or {})
        of_windows = [each for each in self.findings if each.kind not in {Kind.STALE, Kind.CLOCK_SKEW}]
        assert {each.window for each in of_windows} <= {"15m", "5m"}

    def run(self, fetches: int = 20) -> None:
        """Fetch normal values."""
        for _ in range(fetches):
            self.judge()
            assert self.findings == []

    def seen(self) -> list[tuple[str, str, str, str]]:
        """Return kind, node, metric and action of each finding."""
        return [(each.kind, each.node, each.metric, each.action) for each in self.findings]

    def nodes_with(self, kind: Kind) -> list[str]:
        """Return the nodes of the findings of a kind."""
        return [each.node for each in self.findings if each.kind is kind]

    def metadata(self, node: str, window: str = "15m") -> Mapping[str, str | float]:
        """Return the metadata of a published node."""
        return self.last[window].data[node].metadata


def scaled(node: NodeMetrics, factor: float, name: str = "cpu:percent") -> NodeMetrics:
    """Return the node with all values of a metric multiplied by a factor."""
    return NodeMetrics(
        tuple(
            Metric(each.name, each.type, each.operator, each.rollup, each.value * (factor if each.name == name else 1))
            for each in node.metrics
        )
    )


def with_cpu(node: NodeMetrics, average: float, deviation: float) -> NodeMetrics:
    """Return the node with other values of CPU."""
    first, second, *others = node.metrics
    return replace(node, metrics=(replace(first, value=average), replace(second, value=deviation), *others))


@pytest.mark.parametrize("interval", [60, 900])
def test_normal_nodes_have_no_findings(interval: int) -> None:
    """Normal nodes have no findings, and their snapshots are the same objects."""
    cluster = Cluster(interval=interval)
    cluster.run(80)
    data = cluster.nodes()
    cluster.judge(data)
    assert all(metrics.data is data for metrics in cluster.last.values())


def test_absent_node_is_missing_for_an_hour() -> None:
    """An absent node is reported since its last fetch, until it is forgotten."""
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
def test_absent_metric_is_missing(kept: str, type_: str) -> None:
    """A node that lost CPU or Memory is reported by resource; the same resource under another name counts."""
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


def test_dropped_metric_is_not_missing() -> None:
    """A node whose metric was dropped with a finding is not reported as missing."""
    cluster = Cluster()
    cluster.run(2)
    data = cluster.nodes()
    del data["n1"]
    metrics = WatcherMetrics(cluster.now + 60, Window("5m", 0, 300), "Test", data)
    known = [Finding(Kind.NOT_FINITE, "AVG is nan", "5m", "n1", "cpu:percent", "dropped")]
    _, findings = cluster.detector.judge(cluster.now + 60, {"5m": metrics}, {}, known)
    assert findings == []


def test_frozen_cpu_is_reported_and_then_marked() -> None:
    """Constant CPU is reported after 20 minutes, and the node is marked after three times as long."""
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


@pytest.mark.parametrize(("interval", "every", "fetches"), [(60, 1, 20), (60, 2, 40), (60, 20, 100), (120, 1, 20)])
def test_rest_depends_on_the_pace_of_the_source(interval: int, every: int, fetches: int) -> None:
    """Constant CPU is frozen after 20 samples, or 20 times the window if samples are further apart than that."""
    cluster = Cluster(interval=interval)
    still = cluster.nodes()["n3"].metrics[:2]
    for fetch in range(fetches + 2):
        if fetch % every == 0:
            data = cluster.nodes()
        cluster.judge(data | {"n3": NodeMetrics((*still, *data["n3"].metrics[2:]))})
        assert ("n3" in cluster.nodes_with(Kind.FROZEN)) == (fetch >= fetches)


def test_rest_of_coarse_values_may_be_long() -> None:
    """CPU that changed in every fourth fetch only is not frozen after half an hour."""
    cluster = Cluster()
    for fetch in range(90):
        data = cluster.nodes()
        if fetch % 4 == 0 and fetch < 60:
            still = data["n3"].metrics[:2]
        cluster.judge(data | {"n3": NodeMetrics((*still, *data["n3"].metrics[2:]))})
        assert cluster.findings == []


@pytest.mark.parametrize(("value", "frozen"), [(0.0, ["n0"]), (100.0, [])])
def test_rest_at_the_bounds(value: float, frozen: list[str]) -> None:
    """CPU that rests at 100 percent is no fault; at 0 it is one, as memory shows that the node runs."""
    cluster = Cluster(interval=600)
    for _ in range(38):
        data = cluster.nodes()
        cluster.judge(data | {"n0": with_cpu(data["n0"], value, 0.0)})
    assert cluster.nodes_with(Kind.FROZEN) == frozen


@pytest.mark.parametrize("seconds", [7200, 86400, 365 * 86400])
def test_a_gap_is_no_rest(seconds: int) -> None:
    """A jump of the clock, or a long outage, between two fetches with equal values does not make them frozen."""
    cluster = Cluster()
    cluster.run(30)
    data = cluster.nodes()
    cluster.judge(data)
    cluster.now += seconds
    for _ in range(20):
        cluster.judge(data)
        assert "frozen" not in {finding.kind for finding in cluster.findings}
    cluster.judge(data)
    assert "frozen" in {finding.kind for finding in cluster.findings}


def test_frozen_source_is_one_finding() -> None:
    """If all nodes freeze at the same time there is one finding, and all nodes are marked."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    for _ in range(61):
        cluster.judge(data)
    assert cluster.seen() == [("frozen", "", "cpu:percent", "marked")]
    assert cluster.findings[0].message.startswith("6 of 6 nodes")
    assert {cluster.metadata(node)["suspect"] for node in data} == {"frozen"}


@pytest.mark.parametrize(("found", "nodes", "is_merged"), [(5, 9, True), (5, 10, False), (4, 4, False)])
def test_findings_about_most_nodes_are_merged(found: int, nodes: int, is_merged: bool) -> None:
    """Equal findings about at least five nodes and more than half of all become one, since the start of the first."""
    findings = [Finding(Kind.FROZEN, "still", "5m", f"n{node}", since=10 + abs(node - 2)) for node in range(found)]
    merged = Finding(Kind.FROZEN, f"{found} of {nodes} nodes, for example: still", "5m", since=10)
    other = Finding(Kind.FROZEN, "still", "15m", "n1")
    assert merge_common([*findings, other], nodes) == [*([merged] if is_merged else findings), other]


def test_spike_is_reported() -> None:
    """An impossible jump of an average is reported, also while another node is missing."""
    cluster = Cluster()
    cluster.run()
    data = cluster.nodes()
    data["n0"] = scaled(data["n0"], 4.5)
    cluster.judge(data)
    assert cluster.seen() == [("spike", "n0", "cpu:percent", "reported")]
    assert [len(metrics.data["n0"].metrics) for metrics in cluster.last.values()] == [4, 4]
    cluster.judge()
    assert cluster.findings == []
    del data["n2"]
    cluster.judge(data)
    assert cluster.seen() == [("missing", "n2", "", "reported"), ("spike", "n0", "cpu:percent", "reported")]


def test_one_node_in_ratios_is_reported() -> None:
    """A node whose CPU fell to a hundredth is reported while the history has the old values."""
    cluster = Cluster()
    cluster.run()
    for _ in range(30):
        data = cluster.nodes()
        data["n4"] = scaled(data["n4"], 0.01)
        cluster.judge(data)
        assert cluster.seen() == [("wrong_scale", "n4", "cpu:percent", "reported")]


@pytest.mark.parametrize("source", ["Kubelet", "KubernetesMetricsServer", "Host"])
def test_the_end_of_a_whole_load_is_no_scale_without_a_query(source: str) -> None:
    """A fall of one node or of all to a hundredth is no wrong scale where no query computes the values."""
    cluster = Cluster(source)
    cluster.run()
    for number in range(30):
        data = cluster.nodes()
        ended = data if number > 10 else ["n4"]
        cluster.judge(data | {name: scaled(scaled(data[name], 0.01), 0.01, "memory:percent") for name in ended})
        assert "wrong_scale" not in [kind for kind, *_ in cluster.seen()]


@pytest.mark.parametrize("fetches", [0, 20])
def test_all_nodes_in_ratios_are_marked(fetches: int) -> None:
    """Memory in ratios, and a fall of all nodes to a hundredth, are found at once; all nodes are marked."""
    cluster = Cluster()
    cluster.run(fetches)
    cluster.judge({name: scaled(node, 0.01, "memory:percent") for name, node in cluster.nodes().items()})
    assert cluster.seen() == [("wrong_scale", "", "memory:percent", "marked")]
    assert all(cluster.metadata(f"n{number}") == {"suspect": "wrong_scale"} for number in range(NODES))


@pytest.mark.parametrize("rises", [False, True])
def test_idle_cluster_is_not_in_ratios(rises: bool) -> None:
    """CPU below 1 percent at all nodes counts as a ratio only if no node was above 1 percent within a day."""
    cluster = Cluster()
    seen = []
    for fetch in range(100):
        data = {name: scaled(node, 0.01 + 0.002 * int(name[1])) for name, node in cluster.nodes().items()}
        data["n5"] = scaled(data["n5"], 5 if rises and fetch in (3, 4) else 1)
        cluster.judge(data)
        seen += [each for each in cluster.seen() if each[0] == "wrong_scale"]
    assert bool(seen) != rises


def test_old_samples_are_stale_or_clock_skew() -> None:
    """Old samples that do not move are stale; old samples that keep coming are clock skew."""
    cluster = Cluster()
    stopped = cluster.now
    for minute in range(1, 10):
        now = cluster.now + 60
        normal = {"n2": now - 60, "n4": now + 60, "n5": now - 300}  # at the limits
        cluster.judge(newest={"n0": stopped, "n1": now - 600, "n3": now + 61, **normal})
        old = [("stale", "n0", "", "marked")] if minute > 5 else []
        behind = ("clock_skew", "n1", "", "reported") if minute > 1 else ("stale", "n1", "", "marked")
        assert cluster.seen() == [*old, behind, ("clock_skew", "n3", "", "reported")]
    assert cluster.findings[0].since == stopped
    assert cluster.metadata("n0") == {"suspect": "stale"}
    assert cluster.metadata("n1") == {}


def test_times_that_are_no_times_are_ignored() -> None:
    """Times of samples that are not finite, or of nodes without metrics, are ignored."""
    cluster = Cluster()
    cluster.judge(newest={"gone": START - 1e6, "n0": math.nan, "n1": -math.inf, "n2": math.inf})
    assert cluster.findings == []


def test_low_coverage_is_reported() -> None:
    """Coverage below half is reported for each window."""
    cluster = Cluster()
    data = cluster.nodes()
    data["n0"] = NodeMetrics(data["n0"].metrics, {}, {"coverage": 0.45})
    data["n1"] = NodeMetrics(data["n1"].metrics, {}, {"coverage": 0.5})
    cluster.judge(data)
    message = "only 45% of the window has samples"
    assert cluster.findings == [Finding(Kind.LOW_COVERAGE, message, window, "n0") for window in ("15m", "5m")]


def test_double_smoothing_by_tags() -> None:
    """A tag with a longer span than the window causes a finding for this window; an unreadable tag does not."""
    cluster = Cluster()
    cluster.judge(cluster.nodes({"smoothing": "10m"}))
    assert [(each.kind, each.window, each.node) for each in cluster.findings] == [("double_smoothing", "5m", "")]
    cluster.judge(cluster.nodes({"smoothing": "5m", "step": "no duration"}))
    assert cluster.findings == []


@pytest.mark.parametrize("told", [False, True])
def test_double_smoothing_without_tags(told: bool) -> None:
    """Without tags, deviations much smaller than the differences of windows cause one finding for CPU."""
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


def test_sources_have_separate_histories() -> None:
    """The values of a fallback are not compared with those of the other provider."""
    cluster = Cluster()
    cluster.run()
    data = {name: scaled(node, 0.01) for name, node in cluster.nodes().items()}
    del data["n0"]
    now = cluster.now + 60
    metrics = WatcherMetrics(now, Window("5m", now - 300, now), "Other", data)
    assert cluster.detector.judge(now, {"5m": metrics}, {})[1] == []


def test_marks_stay_without_the_judged_window() -> None:
    """If the judged window was not fetched, marks stay in the other windows without new findings."""
    cluster = Cluster()
    data = {name: scaled(node, 0.01, "memory:percent") for name, node in cluster.nodes().items()}
    cluster.judge(data)
    now = cluster.now + 60
    metrics = WatcherMetrics(now, Window("15m", now - 900, now), "Test", data)
    judged, findings = cluster.detector.judge(now, {"15m": metrics}, {})
    assert findings == []
    assert judged["15m"].data["n0"].metadata == {"suspect": "wrong_scale"}


def test_remembered_snapshots_are_history() -> None:
    """Snapshots remembered after a restart are the history of the next fetch."""
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


def test_cpu_at_0_is_a_flatline() -> None:
    """CPU at 0 on a node with memory use is found in the first fetch, and the node is marked."""
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


def test_fall_against_the_other_nodes_is_a_changepoint() -> None:
    """After eight hours, a node that falls by 30 points has a finding that names the expected load."""
    cluster = Cluster(interval=300)
    cluster.run(110)
    message = (
        "the value is 14.9, 0.33 times the 45 that its past and the other nodes suggest: did the load end, or is the "
        "source wrong?"
    )
    fall = Finding(Kind.CHANGEPOINT, message, "15m", "n5", "cpu:percent", Action.REPORTED, cluster.now + 600)
    for fetch in range(6):
        data = cluster.nodes()
        cluster.judge(data | {"n5": with_cpu(data["n5"], 14.9, 2 + 0.1 * fetch)})
        assert cluster.findings == ([fall] if fetch else [])


def test_slow_fall_against_the_other_nodes_is_drift() -> None:
    """A node that falls by 4 points an hour has a finding of drift, without one of a sudden change before it."""
    cluster = Cluster(interval=300)
    cluster.run(150)
    for fetch in range(96):
        data = cluster.nodes()
        cluster.judge(data | {"n5": with_cpu(data["n5"], data["n5"].metrics[0].value - fetch / 3, 2 + 0.001 * fetch)})
        if cluster.findings:
            break
    assert cluster.seen() == [("drift", "n5", "cpu:percent", "reported")]


@pytest.mark.parametrize("starts", [True, False])
def test_a_node_that_started_at_0_or_was_idle_is_not_a_flatline(starts: bool) -> None:
    """A node that was at exactly 0 in its first fetches, or with less than 2 percent of use, may be at 0."""
    cluster = Cluster()
    for fetch in range(100):
        data = cluster.nodes()
        if fetch > 80 or (starts and fetch < 10):
            data["n2"] = zeroed(data["n2"])
        elif not starts:
            data["n2"] = scaled(data["n2"], 0.03)
        cluster.judge(data)
        assert not [each for each in cluster.findings if each.kind is Kind.FLATLINE]


def test_nodes_with_equal_values_are_duplicates() -> None:
    """Two nodes with the same values are found after some fetches, and both are marked."""
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


def test_deviation_of_0_does_not_shorten_the_rest() -> None:
    """A deviation that is always 0, as with one sample per window, does not limit how long an average may rest."""
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


def test_frozen_node_is_found_with_alternating_providers() -> None:
    """A constant value is found although four providers take turns of 15 fetches; of a fifth, one is forgotten."""
    cluster = Cluster()
    still = cluster.nodes()["n3"]
    seen: set[str] = set()
    for fetch in range(150):
        cluster.now += 60
        data = cluster.nodes()
        data["n3"] = still
        source = f"Source {fetch // 15 % 4}"
        window = Window("5m", cluster.now - 300, cluster.now)
        _, found = cluster.detector.judge(cluster.now, {"5m": WatcherMetrics(cluster.now, window, source, data)}, {})
        seen |= {each.node for each in found if each.kind is Kind.FROZEN}
    assert seen == {"n3"}
    size = cluster.detector.size_bytes()
    cluster.judge()
    assert cluster.detector.size_bytes() == size


def slow_source(step: int, interval: int, windows: tuple[str, ...], hours: int = 6) -> list[list[Finding]]:
    """Judge six nodes with samples at the given distance that differ by tens of percents."""
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


def test_slow_source_has_no_spikes() -> None:
    """Windows with one sample jump like the load, and their deviation of 0 is not a sign of smoothing."""
    kinds = {finding.kind for found in slow_source(300, 60, ("15m", "10m", "5m")) for finding in found}
    assert kinds.isdisjoint({Kind.SPIKE, Kind.DOUBLE_SMOOTHING, Kind.WRONG_SCALE, Kind.FROZEN})


def test_overlapping_window_is_judged() -> None:
    """If the shortest window is not longer than the interval, a longer window is judged."""
    assert AnomalyDetector(QualitySettings(), ["15m", "10m", "5m"], 300).window == "15m"
    assert AnomalyDetector(QualitySettings(), ["15m", "10m", "5m"], 60).window == "5m"
    assert AnomalyDetector(QualitySettings(), ["5m"], 300).window == "5m"


def test_common_factor_is_found_despite_overlapping_windows() -> None:
    """A common factor of a fortieth is found, although overlapping windows pass through values in between."""
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


@pytest.mark.parametrize(("fetches", "found"), [(15, []), (16, [""])])
def test_common_factor_needs_ten_earlier_windows(fetches: int, found: list[str]) -> None:
    """A common factor of a quarter is found once ten earlier windows do not overlap with the present one."""
    cluster = Cluster()
    cluster.run(fetches)
    cluster.judge({name: scaled(node, 0.25) for name, node in cluster.nodes().items()})
    assert cluster.nodes_with(Kind.WRONG_SCALE) == found


@pytest.mark.parametrize(
    ("wrong", "named", "action"),
    [(3, ["n0", "n1", "n2"], "marked"), (4, ["n0", "n1", "n2", "n3"], "reported"), (99, [""], "reported")],
)
def test_disagreement_about_most_nodes_is_not_marked(wrong: int, named: list[str], action: str) -> None:
    """If the second source disagrees about more than half of the nodes, none is marked; about all it is one finding."""
    cluster = Cluster()
    for _ in range(15):
        cluster.now += 60
        data = cluster.nodes()
        window = Window("5m", cluster.now - 300, cluster.now)
        metrics = WatcherMetrics(cluster.now, window, "Test", data)
        beside = {name: scaled(node, 3 if int(name[1:]) < wrong else 1) for name, node in data.items()}
        judged, found = cluster.detector.judge(cluster.now, {"5m": metrics}, {}, (), beside)
    assert [(each.kind, each.node, each.metric, each.action, each.since) for each in found] == [
        ("disagreement", name, "cpu:percent", action, START + 60) for name in named
    ]
    assert [name for name, node in judged["5m"].data.items() if node.metadata] == (named if action == "marked" else [])
    assert (judged["5m"].data is data) == (action == "reported")
