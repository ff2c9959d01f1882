"""Workloads page without a browser: its rows are the watcher's, by HTTP or in the same process."""

import json
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.bench import Api
from support.threads import started
from support.workload_days import fill_workloads
from support.workload_rounds import START, measured

pytest.importorskip("dash")

from client.errors import AccessDenied, BadAnswer, ClientError, NoMetrics
from runtime.kubernetes.workloads import Workload
from trimaran.dashboard import workloads
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.embedded import _EmbeddedReader
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.totals import totals_text
from trimaran.dashboard.workload_list import WorkloadList
from watcher.store import Store
from watcher.usage.learn.learner_service import LearnerService
from watcher.workload_table import ClusterTotals

ALL = np.arange(40)


@pytest.fixture(scope="module")
def api() -> Api:
    """Return the API of a watcher that has learned from two rounds of pods of 40 workloads."""
    api = Api()
    for number in range(2):
        api.watcher.workloads.observe(*measured(number), (640.0, 2.0**41))
    return api


@pytest.fixture
def reader(api: Api) -> _EmbeddedReader:
    return _EmbeddedReader(api.watcher)


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    return api.get("/workloads").json


def texts(content: Any) -> str:
    """Return a part of the page as JSON text."""
    return json.dumps(content, default=lambda part: part.to_plotly_json(), ensure_ascii=False)


def test_the_embedded_reader_returns_what_the_routes_return(api: Api, reader: _EmbeddedReader, document: Any) -> None:
    """Measured workloads, one of them and totals are those of the API; an unknown workload is empty."""
    page = {key: value for key, value in document.items() if key != "total"}
    assert reader.workload_document() == page
    one = Workload(*(document["workloads"][3][key] for key in Workload._fields))
    assert reader.workload_detail(one) == api.get("/workloads/" + "/".join(one)).json
    assert reader.workload_detail(Workload("a", "b", "c")) == {}
    assert len(reader.workload_totals()) == len(api.get("/workloads/totals").json["times"])


def test_what_was_never_measured_has_a_table_with_its_reason(document: Any) -> None:
    """Containers without a measurement are shown with the reason, by the filters of the page."""
    lost = [
        {
            "namespace": name,
            "kind": "Job",
            "name": f"lost-{name}",
            "container": "main",
            "pods": 2,
            "reason": f"why {name}",
        }
        for name in ("a", "b")
    ]
    known = WorkloadList.read({**document, "not_measured": lost})
    shown = texts(workloads._unmeasured_table(known.matching_unmeasured("Job/lost", "b")))
    assert "Not measured" in shown
    assert [why in shown for why in ("why a", "why b")] == [False, True]
    many = texts(workloads._unmeasured_table(known.unmeasured * 30))
    assert "the first 50 of 60" in many
    older = WorkloadList.read({key: value for key, value in document.items() if key != "not_measured"})
    assert workloads._unmeasured_table(older.unmeasured) is None
    only = WorkloadList.read({**document, "workloads": [], "not_measured": lost})
    assert not only.matching("", "", "all").size
    assert not only.by_namespace(only.matching("", "", "all"), "pods")
    assert only.order(only.matching("", "", "all"), "waste CPU").tolist() == []


def test_rows_are_sums_over_the_running_pods(document: Any) -> None:
    """Requests, use and waste of a workload are those of its containers times their pods."""
    known = WorkloadList.read(document)
    (row,) = known.rows([5])
    item = next(each for each in document["workloads"] if (each["kind"], each["name"]) == row.workload[1:])
    for place, resource in enumerate(("cpu_cores", "memory_bytes")):
        for field, values in (("requests", row.requested), ("use", row.used), ("recommended", row.recommended)):
            assert values[place] == pytest.approx(
                sum(each[field][resource] * each["pods"] for each in item["containers"])
            )
        assert row.wasted[place] == pytest.approx(sum(each["wasted"][resource] for each in item["containers"]))
    assert row.reason.startswith("history of ")


@pytest.mark.parametrize("sort", ["waste CPU", "waste memory", "requested CPU", "requested memory", "used CPU", "pods"])
def test_the_largest_come_first(document: Any, sort: str) -> None:
    """Every column sorts in descending order; by name the workloads keep the watcher's order."""
    known = WorkloadList.read(document)
    values = known.column(sort)
    ordered = known.order(ALL, sort)
    assert sorted(ordered.tolist()) == ALL.tolist()
    assert (np.diff(values[ordered]) <= 0).all()
    assert known.order(ALL, "name").tolist() == ALL.tolist()
    assert list(known.workloads) == sorted(known.workloads)


def test_filters_combine(document: Any) -> None:
    """Search, namespace and change each keep the matching workloads only."""
    known = WorkloadList.read(document)
    assert known.matching("", "", "all").tolist() == ALL.tolist()
    assert [known.workloads[each].name for each in known.matching("Deployment/web-12", "shop", "all")] == ["web-12"]
    assert not known.matching("", "other", "all").size
    by_change = {change: set(known.matching("", "", change).tolist()) for change in ("lower", "raise", "keep")}
    assert by_change["keep"].isdisjoint(by_change["lower"] | by_change["raise"])
    assert set.union(*by_change.values()) == set(ALL.tolist())
    assert by_change["raise"]


def test_namespaces_have_the_sums_of_their_workloads(tmp_path: Any) -> None:
    """The rows of namespaces add up to those of all workloads, and are sorted by the same columns."""
    names = fill_workloads(tmp_path / "store.db", 60, START)
    with closing(Store(tmp_path / "store.db")) as store:
        watcher = SimpleNamespace(workloads=LearnerService(store, "Fake"))
        known = WorkloadList.read(_EmbeddedReader(watcher).workload_document())
    everything = np.arange(len(names))
    rows = known.by_namespace(everything, "waste memory")
    assert {row.name for row in rows} == {each.namespace for each in names}
    wasted = [row.wasted[1] for row in rows]
    assert wasted == sorted(wasted, reverse=True)
    assert np.sum([row.requested for row in rows], axis=0) == pytest.approx(known.requested.sum(axis=1))
    assert sum(int(row.change) for row in rows) == len(names)
    by_name = [row.name for row in known.by_namespace(everything, "name")]
    assert by_name == sorted(by_name)


def test_a_new_round_is_read_in_the_background(reader: _EmbeddedReader) -> None:
    """Between rounds the list is the same object; in a new one the old list is shown until the new one is read."""
    rounds, reads, may_read = [1000.0], [], threading.Event()
    may_read.set()

    class Watcher:
        def workload_totals(self) -> ClusterTotals:
            return ClusterTotals(np.array(rounds), *np.zeros((3, 2, len(rounds))))

        def workload_document(self) -> dict[str, Any]:
            assert may_read.wait(10)
            reads.append(threading.current_thread())
            return reader.workload_document()

    now = [0.0]
    data = DashboardData(Watcher(), lambda: now[0])
    first = data.workloads()
    now[0] = 100.0
    assert data.workloads() is first
    rounds.append(1300.0)
    may_read.clear()
    now[0] = 200.0
    assert data.workloads() is first
    assert data.workloads() is first
    may_read.set()
    for thread in started(""):
        if thread.daemon and "_refresh_workloads" in thread.name:
            thread.join(10)
    assert data.workloads() is not first
    assert len(reads) == 2


def test_reviewed_workloads_are_not_shown_to_everyone(api: Api) -> None:
    """A dashboard that does not know viewers whom the API server would review shows the cluster's totals only."""
    data = DashboardData(_EmbeddedReader(api.watcher, "shown by namespace (workloads.access)"))
    assert len(data.totals())
    with pytest.raises(AccessDenied, match=r"workloads\.access"):
        data.workloads()
    content = texts(workloads.layout(data, {}, PageContext()))
    assert "workloads.access" in content
    assert "of 640.0 cores" in content
    assert "web-" not in content


def test_a_watcher_without_pods_says_why() -> None:
    """Before the first round the page has the reason instead of an empty table; an older watcher is named as such."""
    data = DashboardData(_EmbeddedReader(Api().watcher))
    with pytest.raises(NoMetrics):
        data.totals()
    assert "no provider measures pods" in texts(workloads.layout(data, {}, PageContext()))
    with pytest.raises(BadAnswer, match="older version"):
        WorkloadList.read({"timestamp": 1, "workloads": [{"namespace": "a"}]})
    with pytest.raises(ClientError):
        data.workload(Workload("a", "b", "c"))


def test_a_workloads_page_has_its_containers(reader: _EmbeddedReader) -> None:
    """The page has each container's row and hours; a name that is malformed or unknown is reported."""
    data = DashboardData(reader)
    content = texts(workloads.layout(data, {"workload": "shop/Deployment/web-5"}, PageContext()))
    for text in (
        "Deployment/web-5 in shop",
        "main",
        "proxy",
        "CPU, p99",
        "Values by hour",
        "Values by day",
        "Revision since",
    ):
        assert text in content
    for name in ("nonsense", "shop/Deployment/none", "\0/\ud800/x"):
        refused = workloads.layout(data, {"workload": name}, PageContext())
        assert refused[0].role == "alert"


def test_the_lines_have_a_text() -> None:
    """The text has shares of the capacity; without a capacity it says why."""
    values = {"capacity": np.array([9.0, 10.0]), "requested": np.array([9.0, 8.0]), "used": np.array([1.0, 2.5])}
    assert totals_text("CPU", "cores", values) == (
        "CPU: of 10.0 cores that pods may request, 8.0 (80 %) requested, 2.5 (25 %) used"
    )
    assert "list nodes" in totals_text("CPU", "cores", {**values, "capacity": np.array([np.nan])})
