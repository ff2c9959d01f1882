"""What is served, as Prometheus has it: a scrape, and the queries that are answered."""

import pytest
from prometheus_api_client import PrometheusConnect
from prometheus_client.parser import text_string_to_metric_families
from support.bench import Api
from support.servers import Service, wait_until

from watcher.api.prometheus_api import LOAD, METRIC, BadQuery, exposition, parse, samples
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


def test_a_scrape_is_what_prometheus_reads() -> None:
    """Read by Prometheus' own parser: the load of each node, and each value by its type and operator."""
    found = list(text_string_to_metric_families(exposition(snapshot(a=(20.5, 80.25), b=(1.0, 0.5))).decode()))
    assert [family.name for family in found] == [LOAD, METRIC]
    assert {sample.labels["instance"]: sample.value for sample in found[0].samples} == {"a": 0.8025, "b": 0.01}
    values = {
        (sample.labels["instance"], sample.labels["type"], sample.labels["operator"]): sample.value
        for sample in found[1].samples
    }
    assert values["a", "CPU", "AVG"] == 20.5
    assert values["b", "Memory", "STD"] == 1.5
    assert len(values) == 8


def test_names_cannot_break_out_of_their_labels() -> None:
    """Quotes, backslashes and line ends in a node's name stay in it."""
    name = 'x"} 1\nevil{a="\\'
    (family, _) = text_string_to_metric_families(exposition(snapshot(**{name: (10.0, 20.0)})).decode())
    assert [sample.labels["instance"] for sample in family.samples] == [name]


def test_a_load_is_within_0_and_1_and_never_of_what_is_suspect() -> None:
    """The descheduler refuses a whole answer for one value outside; a doubtful node has none."""
    found = snapshot(a=(104.0, 1.0), b=(1.0, 2.0))
    doubted = NodeMetrics(found.data["b"].metrics, {}, {"suspect": "frozen"})
    data = {**found.data, "b": doubted, "c": NodeMetrics(())}
    assert list(samples(WatcherMetrics(0, found.window, "", data), LOAD)) == [({"instance": "a"}, 1.0)]


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
    """A name, and equality of labels, as PromQL writes them."""
    assert parse(query) == expected


@pytest.mark.parametrize(
    "query",
    ["", "up",
     f"avg({LOAD})", f"{LOAD}[5m]", f'{LOAD}{{type=~"C.*"}}', f'{LOAD}{{type="CPU"', f'{LOAD}{{type="CPU" x="y"}}',
     f"{LOAD}{{type=CPU}}", f"{LOAD} > 0.5", f"{LOAD}{{,}}", "\x00"],
)  # fmt: skip
def test_other_queries_are_refused(query: str) -> None:
    """What is not answered here is never answered by something else."""
    with pytest.raises(BadQuery):
        parse(query)


def test_a_query_is_answered_as_prometheus_does(full: Api) -> None:
    """A vector, in which a node's name is the label instance; a refusal in Prometheus' shape."""
    answer = full.get(f"/api/v1/query?query={LOAD}&time=1.5").json
    served = full.watcher.published(None).metrics.data
    assert answer["status"] == "success"
    assert answer["data"]["resultType"] == "vector"
    assert {each["metric"]["instance"] for each in answer["data"]["result"]} == set(served)
    assert all(0 <= float(each["value"][1]) <= 1 for each in answer["data"]["result"])
    refused = full.get("/api/v1/query?query=up")
    assert (refused.status_code, refused.json["errorType"]) == (400, "bad_data")
    assert full.get("/api/v1/query?quer=up").status_code == 400
    assert full.client.post("/api/v1/query", data={"query": LOAD}).status_code == 405  # clients then ask by GET
    assert LOAD in full.get("/metrics/nodes").text


def test_nothing_old_is_answered(api: Api) -> None:
    """Without fresh metrics a query fails and a scrape is empty, so that series end."""
    for _ in range(2):
        answer = api.get(f"/api/v1/query?query={LOAD}")
        assert (answer.status_code, answer.json["status"], answer.json["errorType"]) == (503, "error", "unavailable")
        assert api.get("/metrics/nodes").data == b""
        api.watcher.fetch_once()
        api.now += 1000


def test_prometheus_clients_read_it(watch) -> None:
    """A client that knows nothing but Prometheus gets each node's load."""
    service: Service = watch("--provider", "Fake")
    wait_until(lambda: service.get("/readyz").ok, "the watcher is ready")
    found = PrometheusConnect(url=service.url).custom_query(LOAD)
    names = {each["metric"]["instance"] for each in found}
    assert names == set(service.get("/watcher").json()["data"])
