"""The Prometheus view of served metrics: a scrape, and instant queries."""

import pytest
from prometheus_api_client import PrometheusConnect
from prometheus_client.parser import text_string_to_metric_families
from support.bench import Api
from support.servers import Service, wait_until

from watcher.api.prometheus_api import LOAD, METRIC, RESOURCE_LOAD, BadQuery, exposition, parse, samples
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window


def snapshot(**loads: tuple[float, float]) -> WatcherMetrics:
    nodes = {
        name: NodeMetrics(tuple(
            Metric(kind, kind, operator, "5m", value)
            for kind, average in (("CPU", cpu), ("Memory", memory))
            for operator, value in (("AVG", average), ("STD", 1.5))
        ))
        for name, (cpu, memory) in loads.items()
    }  # fmt: skip
    return WatcherMetrics(1000, Window("5m", 700, 1000), "Test", nodes)


def test_scrape_is_parsed_by_prometheus() -> None:
    """Prometheus' own parser reads each node's load, and each value by type and operator."""
    families = list(text_string_to_metric_families(exposition(snapshot(a=(20.5, 80.25), b=(1.0, 0.5))).decode()))
    assert [family.name for family in families] == [LOAD, RESOURCE_LOAD, METRIC]
    by_resource = {(each.labels["instance"], each.labels["resource"]): each.value for each in families[1].samples}
    assert by_resource == {("a", "cpu"): 0.205, ("a", "memory"): 0.8025, ("b", "cpu"): 0.01, ("b", "memory"): 0.005}
    assert {sample.labels["instance"]: sample.value for sample in families[0].samples} == {"a": 0.8025, "b": 0.01}
    values = {
        (sample.labels["instance"], sample.labels["type"], sample.labels["operator"]): sample.value
        for sample in families[2].samples
    }
    assert values["a", "CPU", "AVG"] == 20.5
    assert values["b", "Memory", "STD"] == 1.5
    assert len(values) == 8


def test_node_names_are_escaped() -> None:
    """Quotes, backslashes and newlines in a node's name are escaped in its label."""
    name = 'x"} 1\nevil{a="\\'
    family, *_ = text_string_to_metric_families(exposition(snapshot(**{name: (10.0, 20.0)})).decode())
    assert [sample.labels["instance"] for sample in family.samples] == [name]


def test_loads_are_clamped_and_suspect_nodes_left_out() -> None:
    """Loads are clamped to 0 to 1, since the descheduler refuses others; suspect nodes have no load."""
    metrics = snapshot(a=(104.0, 1.0), b=(1.0, 2.0))
    suspect = NodeMetrics(metrics.data["b"].metrics, {}, {"suspect": "frozen"})
    data = {**metrics.data, "b": suspect, "c": NodeMetrics(())}
    known = WatcherMetrics(0, metrics.window, "", data)
    assert list(samples(known, LOAD)) == [({"instance": "a"}, 1.0)]
    ratios = [value for _, value in samples(known, RESOURCE_LOAD)]
    assert ratios == [1.0, 0.01]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (LOAD, (LOAD, {})),
        (f" {METRIC} {{}} ", (METRIC, {})),
        (f'{METRIC}{{type="CPU", operator="AVG",}}', (METRIC, {"type": "CPU", "operator": "AVG"})),
        (f'{LOAD}{{instance="a\\"b"}}', (LOAD, {"instance": 'a"b'})),
    ],
)
def test_selectors_are_read(query: str, expected: tuple[str, dict[str, str]]) -> None:
    """A metric name with equality matchers is parsed as PromQL defines it."""
    assert parse(query) == expected


@pytest.mark.parametrize(
    "query",
    ["", "up",
     f"avg({LOAD})", f"{LOAD}[5m]", f'{LOAD}{{type=~"C.*"}}', f'{LOAD}{{type="CPU"', f'{LOAD}{{type="CPU" x="y"}}',
     f"{LOAD}{{type=CPU}}", f"{LOAD} > 0.5", f"{LOAD}{{,}}", "\x00"],
)  # fmt: skip
def test_other_queries_are_refused(query: str) -> None:
    """Any other PromQL expression raises BadQuery."""
    with pytest.raises(BadQuery):
        parse(query)


def test_query_answers_have_prometheus_format(ready_api: Api) -> None:
    """A query returns a vector with the node's name as label instance, and errors have Prometheus' format."""
    answer = ready_api.get(f"/api/v1/query?query={LOAD}&time=1.5").json
    served = ready_api.watcher.published(None).metrics.data
    assert answer["status"] == "success"
    assert answer["data"]["resultType"] == "vector"
    assert {sample["metric"]["instance"] for sample in answer["data"]["result"]} == set(served)
    assert all(0 <= float(sample["value"][1]) <= 1 for sample in answer["data"]["result"])
    refused = ready_api.get("/api/v1/query?query=up")
    assert (refused.status_code, refused.json["errorType"]) == (400, "bad_data")
    assert ready_api.get("/api/v1/query?quer=up").status_code == 400
    assert (
        ready_api.client.post("/api/v1/query", data={"query": LOAD}).status_code == 405
    )  # clients then retry with GET
    assert LOAD in ready_api.get("/metrics/nodes").text


def test_expired_metrics_are_not_returned(api: Api) -> None:
    """Without fresh metrics a query is a 503 and a scrape is empty, so that the series end."""
    for _ in range(2):
        answer = api.get(f"/api/v1/query?query={LOAD}")
        assert (answer.status_code, answer.json["status"], answer.json["errorType"]) == (503, "error", "unavailable")
        assert api.get("/metrics/nodes").data == b""
        api.watcher.fetch_once()
        api.now += 1000


def test_a_prometheus_client_reads_the_loads(watch) -> None:
    """A plain Prometheus client gets each node's load."""
    service: Service = watch("--provider", "Fake")
    wait_until(lambda: service.get("/readyz").ok, "the watcher is ready")
    loads = PrometheusConnect(url=service.url).custom_query(LOAD)
    names = {sample["metric"]["instance"] for sample in loads}
    assert names == set(service.get("/watcher").json()["data"])
