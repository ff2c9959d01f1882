"""Overview page and the page of a node, without a browser: what is hot, since when, what runs there, and what acts."""

import json
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dash")

from client.errors import NoMetrics, WatcherUnavailable
from runtime.http.json_service import ServiceUnavailable
from runtime.kubernetes.workloads import Workload
from trimaran.dashboard import node_details, nodes, overview
from trimaran.dashboard.actors import actor_tiles
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.hot_nodes import hot_since, ranked_nodes
from trimaran.dashboard.labels import NodeLabels
from trimaran.dashboard.node_pods import workloads_by_node
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.scheduler_state import SchedulerStatus
from watcher.history import History, HistorySeries, Steps
from watcher.pod_use_table import HOURS, PERIODS, STEPS, PodUseTable
from watcher.wire import decode
from watcher.workload_table import ClusterTotals

NOW = int(time.time())
START = NOW // 300 * 300 - 300 * 9
#: CPU average and deviation, memory average.
LOADS = {
    "cool": (20, 1, 30),
    "hot-cpu": (95, 2, 40),
    "hot-memory": (30, 1, 85),
    "warm": (70, 6, 40),
    "wild": (50, 9, 9),
}
WEB, LOG = Workload("shop", "Deployment", "web"), Workload("ops", "DaemonSet", "log")


def metric(type_: str, operator: str, value: float) -> dict[str, Any]:
    """Return a metric as the watcher sends it."""
    return {"name": f"{type_}-{operator}", "type": type_, "operator": operator, "rollup": "15m", "value": value}


def snapshot() -> Any:
    """Return a snapshot of nodes with these loads."""
    data = {
        name: {
            "metrics": [metric("CPU", "AVG", cpu), metric("CPU", "STD", deviation), metric("Memory", "AVG", memory)],
            "tags": {},
            "metadata": {},
        }
        for name, (cpu, deviation, memory) in LOADS.items()
    }
    window = {"duration": "15m", "start": NOW - 960, "end": NOW - 60}
    return decode(json.dumps({"timestamp": NOW - 60, "window": window, "source": "Prometheus", "data": data}))


class Watcher:
    """Reader of a watcher with five nodes, a history of ten steps, and three pods on one node."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()
        self.open: list[dict[str, Any]] = []

    def metrics(self, window: str | None = None) -> Any:
        del window
        return snapshot()

    def windows(self) -> tuple[str, ...]:
        return ("15m",)

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        rows = {
            "CPU": [[20] * 10, [50, 90, 60, 81, 90, np.nan, 95, 95, 95, 95], [30] * 10],
            "Memory": [[30] * 10, [40] * 10, [85] * 10],
        }[type]
        series = (HistorySeries(type, type, operator, np.array(rows, np.float32)),)
        return History(("cool", "hot-cpu", "hot-memory"), Steps(START, 300, 10), series)

    def findings(self) -> list[dict[str, Any]]:
        return self.open

    def health(self) -> tuple[str, ...]:
        return self.reasons

    def workload_totals(self) -> ClusterTotals:
        raise NoMetrics("no provider measures pods")

    def pod_history(self, names: Any) -> PodUseTable:
        del names
        cores = np.full((3, STEPS), np.nan, np.float16)
        cores[:, -2:] = [[0.5, 1.5], [2.0, 2.0], [np.nan, np.nan]]
        return PodUseTable(
            NOW, list("abc"), ["shop/web-1", "ops/log-1", "shop/web-2"], ["hot-cpu"] * 3, [WEB, LOG, WEB], [""] * 3,
            np.zeros(3), np.zeros(3), cores, np.ones((3, PERIODS), np.float16), np.zeros((2, 3, HOURS), np.float16),
        )  # fmt: skip


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def data(watcher: Watcher) -> DashboardData:
    return DashboardData(watcher)  # type: ignore[arg-type]


def fake(**methods: Any) -> Any:
    """Return an object with these methods, in place of a reader of another service."""
    return SimpleNamespace(**methods)


def texts(content: Any) -> str:
    """Return a part of the page as JSON text."""
    return json.dumps(content, default=lambda part: part.to_plotly_json(), ensure_ascii=False)


def test_nodes_are_ranked_by_heat(data: DashboardData) -> None:
    """Hot nodes come first by their higher load, then those that two deviations make hot; the others by that value."""
    ranked = ranked_nodes(data)
    assert (ranked.hot, ranked.warm) == (2, 1)
    assert ranked.names == ["hot-cpu", "hot-memory", "warm", "wild", "cool"]
    assert ranked.loads[0].tolist() == [95, 30, 70, 50, 20]
    assert ranked.high[2:].tolist() == [82, 68, 30]


def test_a_node_is_hot_since_its_last_cool_step(data: DashboardData) -> None:
    """A step without a value does not end a hot time; a node that is cool or has no history is left out."""
    since = hot_since(data, ["cool", "hot-cpu", "hot-memory", "warm"])
    assert since == {"hot-cpu": START + 3 * 300, "hot-memory": START}


def test_pods_of_a_node_are_summed_by_workload(watcher: Watcher) -> None:
    """The workload with the largest CPU use comes first; a pod of unknown use counts, with no use."""
    (first, second) = workloads_by_node(watcher.pod_history([]))["hot-cpu"]
    assert (first.workload, first.pods, first.cores, first.gib) == (LOG, 1, 2.0, 1.0)
    assert (second.workload, second.pods, second.cores, second.gib) == (WEB, 2, 1.0, 2.0)


def test_the_hottest_nodes_have_time_taint_and_workloads(data: DashboardData) -> None:
    """Each row leads to the node's page, and has since when it is hot, its soft taints, and what runs there."""
    taints = [{"key": "trimaran.io/hot", "effect": "PreferNoSchedule", "timeAdded": "2020-01-01T00:00:00Z"},
              {"key": "other", "effect": "NoSchedule"}]  # fmt: skip
    manifest = {"metadata": {"name": "hot-cpu"}, "spec": {"taints": taints}}
    context = PageContext(labels=NodeLabels(lambda: [manifest, {"metadata": {"name": "cool"}}]))
    runs = workloads_by_node(data.pods_on(["hot-cpu"]))
    rows = overview.hot_node_rows(data, context, ranked_nodes(data), runs, float(NOW))
    assert rows[0][0].href == "nodes?node=hot-cpu"
    first = texts(rows[0])
    assert f"hot for {(NOW - START - 900) / 60:.0f} min" in first
    assert "trimaran.io/hot" in first
    assert "d ago" in first
    assert "other" not in first
    assert first.index("DaemonSet/log") < first.index("Deployment/web")
    assert rows[2][3] == "may become hot: up to 82 %"
    assert [row[3] for row in rows[3:]] == ["normal", "normal"]


def test_the_first_tiles_say_whether_the_data_is_good_and_what_is_hottest(
    data: DashboardData, watcher: Watcher
) -> None:
    """Age, number of nodes and source; the hottest node, its load and since when; an unhealthy watcher is named so."""
    good = texts(overview.data_tile(data, NOW))
    for text in ("good, 1 min old", "5 nodes, 15m window of Prometheus", "tile good"):
        assert text in good
    worst = texts(overview.worst_tile(data, NOW))
    for text in ("hot-cpu", "CPU 95 %", "hot for ", "hot nodes in all: 2; 1 more may become hot"):
        assert text in worst
    watcher.reasons = ("no fetch succeeded",)
    unhealthy = texts(overview.data_tile(DashboardData(watcher), NOW))  # type: ignore[arg-type]
    assert "not good" in unhealthy
    assert "no fetch succeeded" in unhealthy


def test_a_history_that_cannot_be_read_is_shown(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout is named on each page that needs the past, and tried again soon; an older watcher has no history."""
    now, answers = [0.0], [WatcherUnavailable("no answer within 10 s"), NoMetrics("404")]
    read = watcher.history

    def history(**query: str) -> History:
        if answers:
            raise answers[0]
        return read(**query)

    monkeypatch.setattr(watcher, "history", history)
    data = DashboardData(watcher, lambda: now[0])  # type: ignore[arg-type]

    def pages() -> list[str]:
        parts = overview._hot_nodes(data, PageContext()), nodes._table(data, ["cool"]), node_details._day(data, "cool")
        return [texts(part) for part in parts]

    assert ["no answer within 10 s" in page for page in pages()] == [True] * 3
    assert "since when is unknown" in texts(overview.worst_tile(data, NOW))
    answers.pop(0)
    now[0] = 21.0
    assert ["cannot be read" in page for page in pages()] == [False] * 3
    answers.pop(0)
    now[0] = 300.0
    assert "hot for " in texts(overview.worst_tile(data, NOW))


def test_findings_are_grouped_with_what_mends_them() -> None:
    """One row for each kind, the oldest first, with the number of nodes and the settings."""
    found = [
        {"kind": "bad_value", "node": "a", "since": NOW - 60, "message": "first"},
        {"kind": "bad_value", "node": "b", "since": NOW - 7200, "message": "second"},
        {"kind": "fetch_failed", "node": "", "since": NOW - 200, "message": "refused"},
    ]
    rows = overview.finding_rows(found, float(NOW))
    assert [(row[0], row[1], row[2].children, row[3]) for row in rows] == [
        ("bad_value", "2", "2 h ago", "second"), ("fetch_failed", "all", "3 min ago", "refused"),
    ]  # fmt: skip
    assert rows[0][4] == "prometheus.queries"


def test_actors_have_mode_and_percent() -> None:
    """Each part has one tile: not configured, not answering, or its mode with percent and what it did."""
    assert ["not configured" in texts(tile) for tile in actor_tiles(PageContext())] == [True] * 3
    state = {"ready": True, "reason": "", "outage": "", "mode": "active", "percent": 25.0, "cluster": {"nodes": 9}}
    moving = {
        "mode": "act", "acts": True, "caps": {"hour": [3, 12]}, "brake": None, "nothing": "", "planned": [],
        "moves": [{"state": "landed"}, {"state": "held"}],
    }  # fmt: skip
    recent = [{"at": time.time() - age} for age in (60, 120, 9000)]
    context = PageContext(
        decisions=fake(status=lambda: state, recent=lambda: recent),
        rebalancer=fake(read=lambda: moving),
        scheduler=fake(read=lambda: SchedulerStatus(True, True, {"scheduled": 3, "error": 1}, {"active": 2}, None)),
    )
    extender, rebalancer, scheduler = map(texts, actor_tiles(context))
    for tile, parts in (
        (
            extender,
            ("acts on 25 % of pods", "mode active, scores 9 nodes", "2 pods scored in the last hour, the last "),
        ),
        (rebalancer, ("moves pods", "3 of 12 moves of this hour used (25 %)", "1 moves in the last day, 0 planned")),
        (scheduler, ("placed 3 pods", "mode bind", "75 % of its attempts", "2 pods wait")),
    ):
        assert [part for part in parts if part not in tile] == []
    state["ready"], state["reason"] = False, "no nodes"
    moving["brake"] = {"reason": "loop", "text": "a pod came back", "at": 1.0}
    extender, rebalancer, _ = map(texts, actor_tiles(context))
    assert ("cannot score pods" in extender, "no nodes" in extender) == (True, True)
    assert ("stopped by its brake" in rebalancer, "trimaran rebalance resume" in rebalancer) == (True, True)

    def fail() -> Any:
        raise ServiceUnavailable("refused")

    down = PageContext(decisions=fake(status=fail), rebalancer=fake(read=fail), scheduler=fake(read=fail))
    assert ["refused" in texts(tile) and "does not answer" in texts(tile) for tile in actor_tiles(down)] == [True] * 3


def test_a_node_has_a_page(data: DashboardData, watcher: Watcher) -> None:
    """Windows, course, pods and findings are the node's own; an unknown name is an alert with the way back."""
    watcher.open = [{"kind": "bad_value", "node": "hot-cpu", "since": NOW - 60, "message": "mine"},
                    {"kind": "bad_value", "node": "cool", "since": NOW - 60, "message": "not mine"}]  # fmt: skip
    content = texts(nodes.layout(data, {"node": "hot-cpu"}, PageContext()))
    for text in ("95.0 % ±2.0", "CPU: 50 to 95 %", "DaemonSet/log", "hot (80 % or more) for", "<td>mine</td>"):
        assert text in content
    assert "not mine" not in content
    unknown = nodes.layout(data, {"node": "none"}, PageContext())
    assert unknown[0].role == "alert"
    assert "none" in texts(unknown[0])


def test_a_nodes_page_has_its_decisions_and_moves(data: DashboardData) -> None:
    """Only pods that were placed on the node, and moves from or to it, are shown."""
    decisions = [
        {"pod": f"shop/{name}", "at": NOW - 60, "mode": "active", "chosen": chosen}
        for name, chosen in (
            ("here", {"node": "warm"}),
            ("there", {"node": "cool"}),
            ("none", None),
        )
    ]
    moved = {"workload": "Deployment/web", "state": "landed", "planned_at": NOW - 60, "gain": 0.1, "measured": None}
    moves = [
        {**moved, "name": "shop/to", "source": "cool", "target": "warm", "landed_on": ""},
        {**moved, "name": "shop/elsewhere", "source": "warm", "target": "warm", "landed_on": "cool"},
        {**moved, "name": "shop/other", "source": "cool", "target": "wild", "landed_on": "wild"},
    ]
    context = PageContext(decisions=fake(recent=lambda: decisions), rebalancer=fake(read=lambda: {"moves": moves}))
    content = texts([*node_details._decisions("warm", context), *node_details._moves(data, "warm", context)])
    assert [name in content for name in ("shop/here", "shop/there", "shop/to", "shop/elsewhere", "shop/other")] == [
        True, False, True, True, False,
    ]  # fmt: skip
