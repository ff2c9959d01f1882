"""Tests of the provider Datadog, with a fake of its timeseries endpoint."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_datadog import FakeDatadog, Series, running

from runtime import duration
from runtime.http.gather import Deadline
from runtime.settings.loading import load
from watcher.errors import ProviderAnswerError, ProviderRefused, ProviderUnavailable, SettingsError
from watcher.findings import Kind
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.datadog.provider import DatadogProvider, api_address
from watcher.settings import DatadogSettings, ProviderSettings, Settings, WatcherSettings

CPU, MEMORY = "max:cpu.utilization", "max:memory.utilization"
AGENT = {"cpu_query": "100 - avg:system.cpu.idle", "memory_query": "100 - 100 * avg:system.mem.pct_usable"}
NOW = int(time.time())
TIMES = NOW - 60 * np.arange(20, dtype=float)[::-1]
WAVE = 40 + 10 * np.sin(np.arange(20))


@pytest.fixture(autouse=True)
def clock_of_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the provider's clock when the series were made: in a long run of tests they would be too old to be found."""
    monkeypatch.setattr("watcher.providers.datadog.provider.time", SimpleNamespace(time=lambda: NOW))


def host(name: str, values: np.ndarray = WAVE, **tags: str) -> list[Series]:
    """Return load-watcher's two series for a host, one point a minute."""
    labels = {"host": name, "cluster_name": "c1", **tags}
    return [Series(f"{part}.utilization", labels, TIMES[-len(values) :], values) for part in ("cpu", "memory")]


def agent(name: str, **tags: str) -> list[Series]:
    """Return the Agent's own series: idle CPU in percent, usable memory as a fraction."""
    labels = {"host": name, **tags}
    return [
        Series("system.cpu.idle", labels, TIMES, 100 - WAVE),
        Series("system.mem.pct_usable", labels, TIMES, 1 - WAVE / 100),
    ]


@contextmanager
def provider_over(fake: FakeDatadog, app_key: str = "right-app-key", **own: Any) -> Iterator[DatadogProvider]:
    """Run the fake, and a provider with options of the section datadog."""
    with running(fake) as url:
        access = ProviderSettings(name="Datadog", address=url, token="right-token", app_key=app_key)
        provider = DatadogProvider(Settings(provider=access, datadog=DatadogSettings(**own)))
        with contextlib.closing(provider):
            yield provider


def fetch(provider: DatadogProvider, name: str = "15m") -> Fetched:
    return provider.fetch(Window(name, NOW - duration.seconds(name), NOW), Deadline.after(20))


def values(fetched: Fetched, node: str = "node-1") -> dict[tuple[str, str], float]:
    """Return a node's values by type and operator."""
    return {(each.type, each.operator): each.value for each in fetched.nodes[node].metrics}


def kinds(fetched: Fetched) -> list[str]:
    return [finding.kind for finding in fetched.findings]


def answer(series: Any, points: Any, times: Any = None) -> dict[str, Any]:
    """Return a response of the endpoint."""
    times = (TIMES[-3:] * 1000).tolist() if times is None else times
    return {"data": {"type": "timeseries_response", "attributes": {"series": series, "values": points, "times": times}}}


def test_both_keys_are_required() -> None:
    """Without keys the provider is not built, and the error names both with their variables."""
    with pytest.raises(SettingsError) as caught:
        DatadogProvider(Settings(provider=ProviderSettings(name="Datadog")))
    assert len(caught.value.problems) == 2
    for word in ("provider.token", "METRICS_PROVIDER_TOKEN", "provider.app_key", "METRICS_PROVIDER_APP_KEY"):
        assert word in str(caught.value)


def test_address_without_a_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """load-watcher's form of the address, a bare site, is refused with an example."""
    monkeypatch.setenv("METRICS_PROVIDER_ADDRESS", "datadoghq.eu")
    with pytest.raises(SettingsError, match=r"METRICS_PROVIDER_ADDRESS.*https://api\.datadoghq\.eu"):
        load(WatcherSettings)


@pytest.mark.parametrize(
    ("address", "api"),
    [
        ("https://datadoghq.eu", "https://api.datadoghq.eu"),
        ("https://app.datadoghq.com", "https://api.datadoghq.com"),
        ("https://us3.datadoghq.com", "https://api.us3.datadoghq.com"),
        ("https://us2.ddog-gov.com", "https://api.us2.ddog-gov.com"),
        ("https://api.us5.datadoghq.com", "https://api.us5.datadoghq.com"),
        ("https://proxy.example.com/datadoghq.eu", "https://proxy.example.com/datadoghq.eu"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_address_of_a_site_becomes_its_api(address: str, api: str) -> None:
    """The address of a site, or of its web pages, is replaced by its API; a proxy's address is kept."""
    assert api_address(address) == api


def test_request() -> None:
    """The request has upstream's metrics by host, averaged over minutes, for exactly the window."""
    fake = FakeDatadog(host("node-1"))
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert {query for query, _ in fake.queries} == {
        f"{name}{{*}} by {{host,cluster_name}}.rollup({method}, 60)"
        for name in (CPU, MEMORY)
        for method in ("avg", "min", "max")
    }
    for _, attributes in fake.queries:
        assert (attributes["from"], attributes["to"]) == ((NOW - 899) * 1000, (NOW + 1) * 1000)
        assert attributes["interval"] == 60_000
    node = fetched.nodes["node-1"]
    assert {(each.name, each.type) for each in node.metrics} == {(CPU, "CPU"), (MEMORY, "Memory")}
    assert node.tags == {"step": "1m", "smoothing": "1m"}
    assert (node.metadata, fetched.findings) == ({}, ())


@pytest.mark.parametrize(("name", "step"), [("1m", 20), ("4m", 20), ("5m", 60), ("6h", 300), ("2d", 3600)])
def test_step_depends_on_the_window(name: str, step: int) -> None:
    """Short windows have more than a few points, and long windows do not have thousands."""
    fake = FakeDatadog(host("node-1"))
    with provider_over(fake) as provider:
        fetch(provider, name)
    assert {attributes["interval"] for _, attributes in fake.queries} == {step * 1000}
    assert all(f", {step})" in query for query, _ in fake.queries)


def test_long_windows_have_longer_steps() -> None:
    """AVG and STD of six hours are numpy's over the averages of five minutes."""
    times = NOW - 60 * np.arange(400, dtype=float)[::-1]
    load = np.random.default_rng(6).uniform(0, 100, 400)
    fake = FakeDatadog([Series("cpu.utilization", {"host": "node-1"}, times, load)])
    with provider_over(fake) as provider:
        found = values(fetch(provider, "6h"))
    inside = times > NOW - 6 * 3600
    steps = times[inside] // 300
    means = np.array([load[inside][steps == step].mean() for step in np.unique(steps)])
    assert found == pytest.approx({("CPU", "AVG"): means.mean(), ("CPU", "STD"): means.std()}, rel=1e-9)


def test_arithmetic_with_the_agents_metrics() -> None:
    """100 - idle and 100 - 100 * usable are percents of use, published under the text of the query."""
    with provider_over(FakeDatadog(agent("node-1")), **AGENT) as provider:
        fetched = fetch(provider)
    expected = {"AVG": WAVE[-15:].mean(), "STD": WAVE[-15:].std()}
    assert values(fetched) == pytest.approx(
        {(type_, operator): value for type_ in ("CPU", "Memory") for operator, value in expected.items()}
    )
    assert {each.name for each in fetched.nodes["node-1"].metrics} == set(AGENT.values())


def test_arithmetic_between_metrics() -> None:
    """Each metric of a query becomes a query of the request, and the arithmetic becomes its formula."""
    tags = {"host": "node-1", "env": "prod"}
    held = [Series("system.cpu.user", tags, TIMES, WAVE), Series("system.cpu.system", tags, TIMES, WAVE / 4)]
    fake = FakeDatadog(held + host("node-1"))
    query = "(avg:system.cpu.user{env:prod} + max:system.cpu.system) * 1"
    with provider_over(fake, cpu_query=query, cluster_name="") as provider:
        found = values(fetch(provider))
    assert found["CPU", "AVG"] == pytest.approx(WAVE[-15:].mean() * 1.25)
    asked = next(attributes for text, attributes in fake.queries if "system.cpu.user" in text)
    names = [("query", "query"), ("low", "low"), ("low", "high"), ("high", "low"), ("high", "high")]
    assert asked["formulas"] == [{"formula": f"({first}1 + {second}2) * 1"} for first, second in names]
    assert [each["query"].partition(" by")[0] for each in asked["queries"]] == 3 * [
        "avg:system.cpu.user{env:prod}", "max:system.cpu.system{*}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", ["cpu.utilization", "max:cpu.utilization{*} by {host}", "avg:a.b.rollup(max, 60)", "100", "avg:a.b; drop"]
)
def test_invalid_query_is_a_settings_error(query: str) -> None:
    """A query without an aggregated metric, or with a grouping, is refused with setting and variable."""
    access = ProviderSettings(name="Datadog", token="right-token", app_key="right-app-key")
    with pytest.raises(SettingsError, match=r"datadog\.memory_query \(TRIMARAN_DATADOG__MEMORY_QUERY\)"):
        DatadogProvider(Settings(provider=access, datadog=DatadogSettings(memory_query=query)))


def test_other_resources_with_a_query() -> None:
    """Storage, Bandwidth of a known link speed, and GPU are only requested and published if they have a query."""
    tags = {"host": "node-1"}
    held = [
        Series("system.io.util", {**tags, "device": "sda"}, TIMES, WAVE),
        Series("system.io.util", {**tags, "device": "sdb"}, TIMES, WAVE / 2),
        Series("system.net.bytes_rcvd", tags, TIMES, np.full(20, 125_000_000.0)),
        Series("dcgm.gpu_utilization", tags, TIMES, np.full(20, 70.0)),
    ]
    own = {
        "storage_query": "max:system.io.util",
        "bandwidth_query": "100 * 8 * sum:system.net.bytes_rcvd / 10000000000",
        "gpu_query": "avg:dcgm.gpu_utilization",
    }
    with provider_over(FakeDatadog(held + host("node-1")), **own) as provider:
        found = values(fetch(provider))
    averages = {type_: value for (type_, operator), value in found.items() if operator == "AVG"}
    wave = WAVE[-15:].mean()
    expected = {"CPU": wave, "Memory": wave, "Storage": wave, "Bandwidth": 10, "GPU": 70}
    assert averages == pytest.approx(expected)


def test_filter_by_cluster_and_suffix() -> None:
    """The host suffix and the cluster are filters; the suffix is removed from the node's name."""
    held = [*host("node-1-c1"), *host("node-2-c2", cluster_name="c2"), *host("other")]
    fake = FakeDatadog(held)
    with provider_over(fake, cluster_name="c1", host_name_suffix="-c1") as provider:
        assert set(fetch(provider).nodes) == {"node-1"}
    assert all("{host:*-c1,cluster_name:c1} by {host}" in query for query, _ in fake.queries)


def test_other_tags_for_node_and_cluster() -> None:
    """With instance ids as hosts, another tag names the node."""
    held = [*host("i-1", kube_node="a.x", kube_cluster_name="p"), *host("i-2", kube_node="a.y", kube_cluster_name="p")]
    own = {"node_tag": "kube_node", "cluster_tag": "kube_cluster_name", "cluster_name": "p"}
    with provider_over(FakeDatadog(held + host("i-3")), **own) as provider:
        assert set(fetch(provider).nodes) == {"a.x", "a.y"}


SAMPLED = NOW - 15 * np.arange(480, dtype=float)[::-1]
FORMS = {
    "max:cpu.utilization": ("cpu.utilization", 1.0, 0.0),
    "100 - avg:system.cpu.idle": ("system.cpu.idle", -1.0, 100.0),
    "avg:own.user + avg:own.system - avg:own.steal": ("own.user", 1.0, 0.0),
}


@pytest.mark.parametrize("bad", [-30.0, 190.0, 1e9])
@pytest.mark.parametrize("query", FORMS)
@pytest.mark.parametrize(("name", "step"), [("4m", 1), ("15m", 1), ("1h", 10)])
def test_samples_that_cannot_be_right_are_left_out(query: str, bad: float, name: str, step: int) -> None:
    """Samples that the averages of steps hide are left out and counted; only their hosts are asked again."""
    metric, sign, offset = FORMS[query]
    truth = 30 + 5 * np.sin(SAMPLED / 200)
    wrong = np.arange(len(SAMPLED)) % 3 == 1
    held = [series for each in ("good", "bad") for series in host(each)[1:]]
    for each, levels in (("good", truth), ("bad", np.where(wrong, bad, truth))):
        tags = {"host": each, "cluster_name": "c1"}
        held.append(Series(metric, tags, SAMPLED, (levels - offset) / sign))
        held += [Series(f"own.{mode}", tags, SAMPLED, 0 * SAMPLED) for mode in ("system", "steal")]
    fake = FakeDatadog(held)
    with provider_over(fake, cpu_query=query, cluster_name="c1") as provider:
        fetched = fetch(provider, name)
        usual = [text for text, _ in fake.queries if " IN " not in text]
        again = [text for text, _ in fake.queries if " IN " in text]
    inside = NOW - duration.seconds(name) < SAMPLED
    assert values(fetched, "bad")["CPU", "AVG"] == pytest.approx(truth[inside & ~wrong].mean(), abs=1.5)
    assert values(fetched, "good")["CPU", "AVG"] == pytest.approx(truth[inside].mean(), abs=1.5)
    (finding,) = fetched.findings
    assert (finding.kind, finding.node, finding.action) == (Kind.OUT_OF_RANGE, "bad", "dropped")
    assert finding.message.startswith(f"{(inside & wrong).sum()} of {inside.sum()} samples are below 0 or above 150")
    assert all(f"{{cluster_name:c1,host IN (bad)}} by {{host}}.rollup(avg, {step})" in text for text in again)
    terms = query.count(":")
    assert (len(usual), len(again)) == (3 * (terms + 1), terms)


def test_samples_hidden_in_the_finest_averages_are_a_finding() -> None:
    """A finding says that Datadog averages the samples of a long window even in its finest steps."""
    times = NOW - 15 * np.arange(5760, dtype=float)[::-1]
    levels = np.where(np.arange(len(times)) % 4 == 1, -10.0, 30.0)
    fake = FakeDatadog([*host("good"), Series("cpu.utilization", {"host": "bad"}, times, levels)])
    with provider_over(fake) as provider:
        fetched = fetch(provider, "24h")
    (finding,) = fetched.findings
    assert (finding.kind, finding.node, finding.action) == (Kind.OUT_OF_RANGE, "bad", "reported")
    assert "60 s" in finding.message


def test_samples_that_cannot_be_read_again_are_a_finding() -> None:
    """If the request for samples fails, the averages are served, with a finding that says why."""
    levels = np.where(np.arange(len(SAMPLED)) % 3 == 1, -10.0, 30.0)
    fake = FakeDatadog([*host("node-1")[1:], Series("cpu.utilization", {"host": "node-1"}, SAMPLED, levels)])
    fake.fail[" IN "] = (500, {})
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert values(fetched)["CPU", "AVG"] == pytest.approx(levels[-60:].mean(), abs=2)
    assert kinds(fetched) == [Kind.QUERY_FAILED]


def test_hosts_of_two_clusters_are_no_node() -> None:
    """Machines of one name in two clusters are a suspect node, with the setting; an hour later it is not served."""
    fake = FakeDatadog([*host("node-1", WAVE), *host("node-1", WAVE / 10, cluster_name="c2"), *host("node-2")])
    fake.series += host("node-3")
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        names = provider._memory._names["15m"]
        provider._memory._names["15m"] = {node: replace(name, since=0) for node, name in names.items()}
        later = fetch(provider)
    (finding,) = fetched.findings
    assert (finding.kind, finding.node, finding.action) == (Kind.DUPLICATE, "node-1", "marked")
    assert "datadog.cluster_name" in finding.message
    assert fetched.nodes["node-1"].metadata == {"suspect": "duplicate"}
    assert set(later.nodes) == {"node-2", "node-3"}


def test_nulls_are_not_points() -> None:
    """Minutes without a value reduce the node's coverage; a series of nulls is not a node."""
    full = [[float(value) for value in WAVE[-15:]], [None] * 15]
    some = [value if index % 3 == 0 else None for index, value in enumerate(full[0])]
    fake = FakeDatadog()
    fake.body = answer(
        [{"group_tags": [f"host:{name}"], "query_index": 0, "unit": None} for name in ("full", "nulls", "some")],
        [*full, some],
        (TIMES[-15:] * 1000).tolist(),
    )
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"full", "some"}
    present = np.array([value for value in some if value is not None])
    assert values(fetched, "some")["CPU", "AVG"] == pytest.approx(present.mean())
    assert values(fetched, "some")["CPU", "STD"] == pytest.approx(present.std())
    assert fetched.nodes["some"].metadata == {"coverage": round(5 / 14, 4)}


@pytest.mark.parametrize(
    ("odd", "points", "kind"),
    [
        (None, [1, 2, 3], Kind.UNMATCHED_NODE),
        (7, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": None}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": 7}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": [None, 7, {}]}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": ["host:N/A"]}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": ["host:"]}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": ["ghost:x"]}, [1, 2, 3], Kind.UNMATCHED_NODE),
        ({"group_tags": ["host:x"]}, None, Kind.PARTIAL_ANSWER),
        ({"group_tags": ["host:x"]}, [1, 2], Kind.PARTIAL_ANSWER),
        ({"group_tags": ["host:x"]}, [[1], [2], [3], [4]], Kind.PARTIAL_ANSWER),
        ({"group_tags": ["host:x"]}, ["a", {}, []], None),
        ({"group_tags": ["host:x"]}, [10**400, "NaN", None], None),
    ],
)
def test_invalid_series_do_not_affect_other_nodes(odd: Any, points: Any, kind: Kind | None) -> None:
    """For an invalid series or invalid points, the other node is served and there is a finding."""
    fake = FakeDatadog()
    fake.body = answer([odd, {"group_tags": ["env:prod", "host:good", "pool:a"]}], [points, [10, 20, 30]])
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"good"}
    assert values(fetched, "good")["CPU", "AVG"] == pytest.approx(20)
    assert {each for each in kinds(fetched) if each != Kind.LOW_COVERAGE} == ({kind} if kind else set())


def test_fewer_values_than_series() -> None:
    """Series without values are left out with a finding; upstream discards the whole response."""
    fake = FakeDatadog()
    fake.body = answer([{"group_tags": ["host:good"]}, {"group_tags": ["host:bad"]}], [[10, 20, 30]])
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"good"}
    assert Kind.PARTIAL_ANSWER in kinds(fetched)


def test_errors_with_status_200() -> None:
    """Errors in addition to series are findings; errors without series fail the query."""
    fake = FakeDatadog(host("node-1"), errors="one shard timed out")
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        assert set(kinds(fetched)) == {Kind.PARTIAL_ANSWER}
        assert "one shard timed out" in fetched.findings[0].message
        fake.body = {"errors": "the query is too large"}
        with pytest.raises(ProviderAnswerError, match=r"datadog\.cpu_query"):
            fetch(provider)
        fake.body = {**answer([], []), "errors": ["first", "second"]}
        with pytest.raises(ProviderAnswerError, match="first, second"):
            fetch(provider)


def test_rate_limit() -> None:
    """Status 429 is reported with the limit's name, size and reset, and the settings; the other query is served."""
    limited = {"X-RateLimit-Limit": "100", "X-RateLimit-Period": "60", "X-RateLimit-Reset": "17"}
    fake = FakeDatadog(host("node-1"), fail={"cpu.utilization": (429, {**limited, "X-RateLimit-Name": "query"})})
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        assert {each.type for each in fetched.nodes["node-1"].metrics} == {"Memory"}
        (finding,) = fetched.findings
        fake.fail["memory.utilization"] = (429, {})
        with pytest.raises(ProviderUnavailable):
            fetch(provider)
    assert finding.kind is Kind.QUERY_FAILED
    for word in ("429", "query is 100 requests in 60 s", "in 17 s", "watch.interval_seconds"):
        assert word in finding.message


def test_refused_keys_are_not_shown() -> None:
    """Status 403 is reported with the service's message, without keys, and with all three possible reasons."""
    fake = FakeDatadog(host("node-1"), fail={"utilization": (403, {})})
    with provider_over(fake) as provider, pytest.raises(ProviderRefused) as caught:
        fetch(provider)
    text = str(caught.value)
    assert "told to fail ******** ********" in text
    for word in ("provider.token", "provider.app_key", "timeseries_query", "provider.address"):
        assert word in text


def test_response_without_series() -> None:
    """A response without series is an error that names the queries, the filters and the Agent's own metrics."""
    with provider_over(FakeDatadog(agent("node-1")), cluster_name="c1") as provider:
        with pytest.raises(ProviderAnswerError) as caught:
            fetch(provider)
    for word in ("cpu_query", "memory_query", "cluster_name", "node_tag"):
        assert f"datadog.{word}" in str(caught.value)
    assert all(query in str(caught.value) for query in AGENT.values())


def test_series_without_the_tag() -> None:
    """Series without the node tag are counted in the error."""
    with provider_over(FakeDatadog(host("node-1")), node_tag="kube_node") as provider:
        with pytest.raises(ProviderAnswerError, match=r"1 series .* kube_node: .*kube_node:N/A"):
            fetch(provider)


def test_check_succeeds() -> None:
    """The API key and each query are separate steps; a query's step names a host."""
    with provider_over(FakeDatadog(agent("node-1")), **AGENT) as provider:
        steps = list(provider.check())
    assert [(step.step, step.ok) for step in steps] == [("API key", True), ("query CPU", True), ("query Memory", True)]
    assert "node-1" in steps[1].message


@pytest.mark.parametrize(
    ("fake", "own", "setting", "word"),
    [
        (FakeDatadog(api_key="another"), {}, "provider.token", "403"),
        (FakeDatadog(host("a"), valid=False), {}, "provider.token", "API key"),
        (FakeDatadog(host("a"), app_key="another"), {}, "provider.app_key", "403"),
        (FakeDatadog(host("a")), {"cluster_name": "c9"}, "datadog.cluster_name", "without this filter: a"),
        (FakeDatadog(host("a")), {"host_name_suffix": "-c9"}, "datadog.host_name_suffix", "without this filter: a"),
        (FakeDatadog(agent("a")), {}, "datadog.cpu_query", "(100 - avg:system.cpu.idle) have 1"),
        (FakeDatadog(host("a"), fail={"utilization": (400, {})}), {}, "datadog.cpu_query", "told to fail"),
    ],
)
def test_check_names_the_setting(fake: FakeDatadog, own: dict[str, str], setting: str, word: str) -> None:
    """A refused API key and a refused application key differ; a query without results is repeated without filters."""
    with provider_over(fake, **own) as provider:
        failed = [step for step in provider.check() if not step.ok]
    assert failed[0].setting == setting
    assert word in failed[0].message
    assert "right-token" not in failed[0].message
