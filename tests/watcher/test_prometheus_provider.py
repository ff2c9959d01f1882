"""Tests of the provider Prometheus, with real servers, and with fakes for failures."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest
import requests
from conftest import AHEAD_SECONDS, NODES, History
from support.servers import reply, run_prometheus, serving, wait_until
from urllib3.connection import HTTPConnection

from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.findings import Kind
from watcher.model import Operator, Window
from watcher.pipeline.factory import open_watcher
from watcher.providers.prometheus.provider import PrometheusProvider
from watcher.quality import analyzer
from watcher.settings import PrometheusQuery, PrometheusSettings, ProviderSettings, Settings, WatchSettings

pytestmark = pytest.mark.usefixtures("closed_sessions")

CPU, MEMORY = "instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio"


def provider_at(address: str, *, pressure: bool = False, **options: Any) -> PrometheusProvider:
    """Return a provider for an address."""
    section = PrometheusSettings(pressure=pressure)
    provider = ProviderSettings(name="Prometheus", address=address, **options)
    return PrometheusProvider(Settings(provider=provider, prometheus=section))


def window(duration: str, seconds: int, end: int | None = None) -> Window:
    """Return a window that ends at a given time, now by default."""
    end = int(time.time()) if end is None else end
    return Window(duration, end - seconds, end)


def vector(*series: tuple[str, str]) -> dict[str, Any]:
    """Return an instant vector in Prometheus' format, from pairs of instance and value."""
    result = [{"metric": {"instance": name}, "value": [1, value]} for name, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def only_rules(answer: Callable[[BaseHTTPRequestHandler], None]) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a handler with series for the rules of CPU and memory only."""

    def handle(handler: BaseHTTPRequestHandler) -> None:
        known = any(quote(f"{name}{{}}", safe="") in handler.path for name in (CPU, MEMORY))
        answer(handler) if known else reply(handler, vector())

    return handle


@pytest.mark.server
@pytest.mark.parametrize(("duration", "seconds"), [("15m", 900), ("10m", 600), ("5m", 300), ("1m30s", 90)])
def test_average_and_deviation_match_numpy(prometheus_with_rules: History, duration: str, seconds: int) -> None:
    """AVG and STD of 100 nodes equal numpy's over the same samples within 1e-9, for both metrics and each window.

    The average of the rule of CPU, a rate over five minutes, is that of the rates which together span the window.
    """
    history = prometheus_with_rules
    asked = window(duration, seconds, end=int(history.times[-1]) - AHEAD_SECONDS + 7)
    fetched = provider_at(history.url).fetch(asked, Deadline.after(20))
    inside = (history.times >= asked.start) & (history.times <= asked.end)
    assert inside.sum() == seconds // 15
    assert set(fetched.nodes) == {f"node-{node}" for node in range(NODES)}
    assert fetched.findings == ()
    for number in range(NODES):
        got = {(metric.name, metric.operator): metric for metric in fetched.nodes[f"node-{number}"].metrics}
        assert len(got) == 4
        for name, values in history.rules.items():
            samples = values[number, inside] * 100
            averaged = samples[::-20] if name == CPU else samples
            assert math.isclose(got[name, "AVG"].value, np.mean(averaged), abs_tol=1e-9)
            assert math.isclose(got[name, "STD"].value, np.std(samples), abs_tol=1e-9)
            assert got[name, "AVG"].rollup == got[name, "STD"].rollup == duration


@pytest.mark.server
def test_raw_series_have_all_metrics(prometheus_with_raw_series: History) -> None:
    """Without recording rules, AVG and STD of CPU and memory come from node_exporter's series."""
    history = prometheus_with_raw_series
    fetched = provider_at(history.url).fetch(window("5m", 300), Deadline.after(20))
    assert fetched.findings == ()
    assert set(fetched.nodes) == {f"10.0.0.{node}" for node in range(5)}
    for node, ratio in enumerate(history.cpu_ratios):
        got = {(m.name, m.operator): m.value for m in fetched.nodes[f"10.0.0.{node}"].metrics}
        assert got == pytest.approx(
            {(CPU, "AVG"): ratio * 100, (CPU, "STD"): 0, (MEMORY, "AVG"): ratio * 100, (MEMORY, "STD"): 0}, abs=1e-4
        )


PRESSURES_OF_THE_KERNEL = {
    "CPUPressure": "cpu_waiting",
    "MemoryPressure": "memory_waiting",
    "MemoryFullPressure": "memory_stalled",
    "IOPressure": "io_waiting",
    "IOFullPressure": "io_stalled",
}


@pytest.mark.server
@pytest.mark.parametrize(("prefix", "labels"), [("node", ""), ("container", ',id="/"')])
def test_pressure_matches_numpy(tmp_path: Path, prefix: str, labels: str) -> None:
    """AVG and STD of every pressure equal numpy's over the same samples, from node_exporter and from cAdvisor.

    A node whose kubelet reports 0 for all pressure, as on a kernel that does not count it, has no pressure at all.
    """
    random = np.random.default_rng(39)
    asked = window("10m", 600, end=int(time.time()) // 30 * 30 + 7)
    times = np.arange(asked.end - 7 - 1500 + 4, asked.end, 15)
    samples = {
        (node, series): 1000 + np.cumsum(random.uniform(0, 15, len(times)))
        for node in ("a", "b")
        for series in PRESSURES_OF_THE_KERNEL.values()
    }
    uncounted = {("old", series): np.zeros(len(times)) for series in PRESSURES_OF_THE_KERNEL.values()}
    written = samples if prefix == "node" else samples | uncounted

    def lines() -> Iterator[str]:
        for rule in (CPU, MEMORY):
            yield f"# TYPE {rule} gauge\n"
            for node in ("a", "b", "old"):
                yield from (f'{rule}{{instance="{node}:9100"}} 0.5 {at}\n' for at in times.tolist())
        for series in PRESSURES_OF_THE_KERNEL.values():
            yield f"# TYPE {prefix}_pressure_{series}_seconds counter\n"
            for (node, own), values in written.items():
                name = f'{prefix}_pressure_{series}_seconds_total{{instance="{node}:9100"{labels}}}'
                if own == series:
                    yield from (
                        f"{name} {value!r} {at}\n" for at, value in zip(times.tolist(), values.tolist(), strict=True)
                    )

    with run_prometheus(tmp_path, lines()) as url:
        nodes = provider_at(url, pressure=True).fetch(asked, Deadline.after(20)).nodes
    # The average is that of two rates over five minutes, which span the window; the deviation is that of the rates at
    # every half minute of the window. With samples every 15 s that cover the range up to its ends, Prometheus' rate is
    # the slope from the first to the last of them.
    steps = np.array([asked.end, asked.end - 300, *range(asked.end - 7 - 570, asked.end, 30)])
    inside = (times >= steps[:, None] - 300) & (times <= steps[:, None])
    first, last = inside.argmax(axis=1), len(times) - 1 - inside[:, ::-1].argmax(axis=1)
    for type_, series in PRESSURES_OF_THE_KERNEL.items():
        for node in ("a", "b"):
            values = samples[node, series]
            rates = 100 * (values[last] - values[first]) / (times[last] - times[first])
            load = nodes[node].load(type_)
            assert load.avg == pytest.approx(rates[:2].mean(), rel=1e-9)
            assert load.std == pytest.approx(rates[2:].std(), rel=1e-7)
            (name,) = {metric.name for metric in nodes[node].metrics if metric.type == type_}
            assert name == f"{prefix}_pressure_{series}_seconds_total"
    assert {metric.type for metric in nodes["old"].metrics} == {"CPU", "Memory"}


def test_expressions_without_series_are_not_repeated() -> None:
    """The second fetch only has expressions with series, and no optional metrics."""

    def raw_only(handler: BaseHTTPRequestHandler) -> None:
        raw = "node_cpu_seconds_total" in handler.path or "node_memory_MemTotal_bytes" in handler.path
        reply(handler, vector(("a:9100", "0.5")) if raw else vector())

    with serving(raw_only) as fake:
        provider = provider_at(fake.url)
        first = provider.fetch(window("5m", 300), Deadline.after(20))
        before = len(fake.requests)
        second = provider.fetch(window("5m", 300), Deadline.after(20))
        assert (
            len(fake.requests) == before + 5
        )  # each operator of both metrics, and the gaps of those with a source series
    assert first.nodes == second.nodes


@pytest.mark.server
def test_missing_node_exporter(prometheus_with_rules: History) -> None:
    """A window without series is an error that names the missing series and node_exporter."""
    long_ago = window("5m", 300, end=1_000_000_000)
    with pytest.raises(ProviderAnswerError, match=r"instance:node_cpu:ratio"):
        provider_at(prometheus_with_rules.url).fetch(long_ago, Deadline.after(20))


@pytest.mark.server
def test_check_counts_series(prometheus_with_rules: History) -> None:
    """check() reports the number of series of each query of a real server."""
    steps = list(provider_at(prometheus_with_rules.url).check())
    assert all(step.ok for step in steps)
    by_step = {step.step: step.message for step in steps}
    assert by_step["query CPU"].startswith("100 series of instance:node_cpu:ratio")
    assert by_step["query Memory: node names"] == "all 100 are matched"


def test_two_series_of_one_node_are_averaged() -> None:
    """The mean of several series of one node is used, with a finding."""
    series = vector(("a:9100", "0.58"), ("a:9101", "0.62"), ("a:9102", "0.6"))
    with serving(only_rules(lambda handler: reply(handler, series))) as fake:
        fetched = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))
    assert [metric.value for metric in fetched.nodes["a"].metrics] == pytest.approx([60.0] * 4)
    assert {(f.kind, f.node, f.action) for f in fetched.findings} == {(Kind.DUPLICATE, "a", "merged")}


def _refuse_deviations(handler: BaseHTTPRequestHandler) -> None:
    if "stddev" in handler.path:
        reply(handler, {"status": "error", "error": "query timed out"}, 503)
    else:
        reply(handler, vector(("a:9100", "0.5")))


def test_failed_queries_do_not_affect_others() -> None:
    """If the STD queries fail, the AVGs are served, with a finding for each failure."""
    with serving(only_rules(_refuse_deviations)) as fake:
        fetched = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))
    assert [(m.name, m.operator) for m in fetched.nodes["a"].metrics] == [(CPU, "AVG"), (MEMORY, "AVG")]
    assert [f.kind for f in fetched.findings] == [Kind.QUERY_FAILED] * 2
    assert "query timed out" in fetched.findings[0].message


def test_failures_have_priority_over_missing_series() -> None:
    """If some queries fail and the others have no series, the error is that of the failure."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "avg_over_time" in handler.path:
            reply(handler, {"status": "error", "error": "no such store"}, 503)
        else:
            reply(handler, vector())

    with serving(answer) as fake, pytest.raises(ProviderUnavailable, match="no such store"):
        provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))


def test_address_with_a_path() -> None:
    """A path in the address precedes the API's path."""
    with serving(lambda handler: reply(handler, vector(("a", "0.5")))) as fake:
        provider_at(f"{fake.url}/prefix/").fetch(window("5m", 300), Deadline.after(5))
    assert {path.partition("?")[0] for path, _ in fake.requests} == {"/prefix/api/v1/query"}


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte from time to time, which no read timeout ends."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(1000):
        handler.wfile.write(b" ")
        time.sleep(0.05)


def test_close_ends_a_running_fetch() -> None:
    """close() ends slow queries, so the service can stop at once."""
    with serving(trickle) as fake:
        provider = provider_at(fake.url)
        failures: list[Exception] = []

        def fetch() -> None:
            try:
                provider.fetch(window("5m", 300), Deadline.after(60))
            except ProviderError as error:
                failures.append(error)

        fetching = threading.Thread(target=fetch, daemon=True)
        fetching.start()
        wait_until(lambda: len(fake.requests) >= 4, "the queries are under way")
        time.sleep(0.2)  # until each query has read the head
        provider.close()
        fetching.join(10)
        assert not fetching.is_alive()
    assert failures


def test_concurrent_queries_keep_their_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Concurrent queries of all windows and operators discard no connection, which urllib3 would log."""
    with serving(only_rules(lambda handler: reply(handler, vector(("a:9100", "0.5"))))) as fake:
        settings = Settings(
            provider=ProviderSettings(name="Prometheus", address=fake.url),
            watch=WatchSettings(operators=[each for each in Operator if each is not Operator.LATEST]),
        )
        provider = PrometheusProvider(settings)
        windows = [window("15m", 900), window("10m", 600), window("5m", 300)]
        gather({each: partial(provider.fetch, each, Deadline.after(20)) for each in windows}, Deadline.after(20))
        provider.close()
    assert not caplog.records


def test_abort_ends_a_connecting_call() -> None:
    """abort() also ends a call that has no connection yet."""
    with serving(trickle) as fake:
        session = provider_at(fake.url)._connection._session
        connect = HTTPConnection.connect

        def connect_late(connection: HTTPConnection) -> None:
            connect(connection)
            session.abort()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HTTPConnection, "connect", connect_late)
            with pytest.raises(requests.ConnectionError):
                session.get(fake.url, timeout=60)


def _cluster(handler: BaseHTTPRequestHandler) -> None:
    """Respond like a cluster scraped by address: kube-state-metrics has node-1 and node-2, the rules have both."""
    query = unquote(handler.path)
    if "kube_node_info" in query:
        info = [{"node": f"node-{number}", "internal_ip": f"10.0.0.{number}"} for number in (1, 2)]
        result = [{"metric": labels, "value": [1, "1"]} for labels in info]
        reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})
    elif "node_uname_info" in query:
        reply(handler, vector())
    else:
        only_rules(lambda each: reply(each, vector(("10.0.0.1:9100", "0.5"), ("10.0.0.2:9100", "0.7"))))(handler)


def test_addresses_become_node_names() -> None:
    """Series with instance ip:port are published under the node names in kube-state-metrics."""
    with serving(_cluster) as fake:
        fetched = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))
    assert set(fetched.nodes) == {"node-1", "node-2"}
    assert fetched.findings == ()


def test_names_are_read_again_for_a_new_series() -> None:
    """A node that is newer than the cached names is served under its name from the first fetch on."""
    ready = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        _cluster(handler) if ready.is_set() else reply(handler, vector())

    with serving(answer) as fake:
        provider = provider_at(fake.url)
        with pytest.raises(ProviderAnswerError):
            provider.fetch(window("5m", 300), Deadline.after(5))
        ready.set()
        assert set(provider.fetch(window("5m", 300), Deadline.after(5)).nodes) == {"node-1", "node-2"}


def test_late_names_are_used_in_the_next_fetch() -> None:
    """A new node whose load appears before its name does not keep its address until the cache expires."""
    late = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        knows_names = "kube_node_info" not in handler.path or late.is_set()
        _cluster(handler) if knows_names else reply(handler, vector())

    with serving(answer) as fake:
        provider = provider_at(fake.url)
        assert set(provider.fetch(window("5m", 300), Deadline.after(5)).nodes) == {"10.0.0.1", "10.0.0.2"}
        late.set()
        assert set(provider.fetch(window("5m", 300), Deadline.after(5)).nodes) == {"node-1", "node-2"}
        asked = sum("kube_node_info" in path for path, _ in fake.requests)
        provider.fetch(window("5m", 300), Deadline.after(5))
        assert sum("kube_node_info" in path for path, _ in fake.requests) == asked


def test_unknown_address_is_reported() -> None:
    """A series with an unknown address is no node where nodes are listed; the finding names address and setting."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "10.0.0" in handler.path or "kube_node_info" in handler.path:
            _cluster(handler)
        else:
            only_rules(lambda each: reply(each, vector(("10.0.0.1:9100", "0.5"), ("10.0.0.7:9100", "0.7"))))(handler)

    with serving(answer) as fake:
        fetched = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))
    assert set(fetched.nodes) == {"node-1"}
    (finding,) = fetched.findings
    assert (finding.kind, finding.node) == (Kind.UNMATCHED_NODE, "10.0.0.7")
    assert "prometheus.node_label" in finding.message


def _cloned_machines(times: range, *, listed: bool) -> Iterator[str]:
    """Write two machines with the host name vm and one other; kube-state-metrics may list two as nodes."""
    for name in ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio"):
        yield f"# TYPE {name} gauge\n"
        for number in (1, 2, 3):
            yield from (f'{name}{{instance="10.0.0.{number}:9100"}} 0.{number} {at}\n' for at in times)
    yield "# TYPE node_uname_info gauge\n"
    for number, host in ((1, "vm"), (2, "vm"), (3, "node-3")):
        labels = f'instance="10.0.0.{number}:9100",nodename="{host}"'
        yield from (f"node_uname_info{{{labels}}} 1 {at}\n" for at in times)
    if listed:
        yield "# TYPE kube_node_info gauge\n"
        for number, node in ((1, "vm"), (3, "node-3")):
            labels = f'node="{node}",internal_ip="10.0.0.{number}",instance="kube-state-metrics:8080"'
            yield from (f"kube_node_info{{{labels}}} 1 {at}\n" for at in times)


@pytest.mark.server
@pytest.mark.parametrize("listed", [False, True])
def test_machines_with_one_host_name(tmp_path: Path, listed: bool) -> None:
    """Of two machines with one host name, that with the node's address is the node; unlisted, both stay separate."""
    now = int(time.time())
    with run_prometheus(tmp_path, _cloned_machines(range(now - 360, now + 1, 15), listed=listed)) as url:
        provider = provider_at(url)
        fetched = provider.fetch(window("5m", 300, now), Deadline.after(10))
        checks = list(provider.check())
    cpu = {node: metrics.metrics[0].value for node, metrics in fetched.nodes.items()}
    others = {} if listed else {"10.0.0.2": 20}
    assert cpu == pytest.approx({"vm" if listed else "10.0.0.1": 10, "node-3": 30, **others})
    doubtful = {finding.node for finding in fetched.findings if finding.kind is Kind.UNMATCHED_NODE}
    assert doubtful == ({"10.0.0.2"} if listed else {"10.0.0.1", "10.0.0.2"})
    assert [check.setting for check in checks if not check.ok] == 2 * ["prometheus.node_label"]


def test_warnings_are_findings() -> None:
    """Warnings in a response, which the client library drops, are findings."""
    body = {**vector(("a:9100", "0.5")), "warnings": ["store x: connection refused"]}
    with serving(only_rules(lambda handler: reply(handler, body))) as fake:
        fetched = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5))
    partial = [finding for finding in fetched.findings if finding.kind is Kind.PARTIAL_ANSWER]
    assert {finding.message for finding in partial} == {"store x: connection refused"}


def test_custom_queries_and_matchers() -> None:
    """A custom query replaces the built-in ones of its type, with its scale; matchers are in every query."""
    own = PrometheusQuery(name="my:cpu", type="CPU", query="my_cpu_percent{$matchers}", scale=1)
    settings = PrometheusSettings(matchers='cluster="prod"', queries=[own])

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, vector(("a", "42")) if "my_cpu_percent" in handler.path else vector())

    with serving(answer) as fake:
        provider = PrometheusProvider(
            Settings(provider=ProviderSettings(name="Prometheus", address=fake.url), prometheus=settings)
        )
        fetched = provider.fetch(window("5m", 300), Deadline.after(5))
        queries = [unquote(path) for path, _ in fake.requests]
    assert {(m.name, m.type, m.value) for m in fetched.nodes["a"].metrics} == {("my:cpu", "CPU", 42.0)}
    assert not any("instance:node_cpu" in query for query in queries)
    assert all('cluster="prod"' in query for query in queries)


@pytest.mark.server
def test_percentiles_match_numpy(prometheus_with_rules: History) -> None:
    """P90, P95, P99 and MAX equal numpy's over the same samples."""
    history = prometheus_with_rules
    operators = ["AVG", "P90", "P95", "P99", "MAX"]
    settings = Settings(
        provider=ProviderSettings(name="Prometheus", address=history.url), watch=WatchSettings(operators=operators)
    )
    asked = window("10m", 600, end=int(history.times[-1]) - AHEAD_SECONDS + 7)
    nodes = PrometheusProvider(settings).fetch(asked, Deadline.after(20)).nodes
    samples = history.rules[CPU][3, (history.times >= asked.start) & (history.times <= asked.end)] * 100
    got = {m.operator: m.value for m in nodes["node-3"].metrics if m.type == "CPU"}
    assert got == pytest.approx(
        {
            "AVG": samples[::-20].mean(),
            **{f"P{level}": np.percentile(samples, level) for level in (90, 95, 99)},
            "MAX": samples.max(),
        }
    )


@pytest.mark.server
@pytest.mark.parametrize("raw", [False, True], ids=["rules", "raw"])
@pytest.mark.parametrize("alive", [CPU, None], ids=["memory stopped", "all stopped"])
def test_newest_samples_after_all_nodes_stopped(tmp_path: Path, alive: str | None, raw: bool) -> None:
    """The newest samples' times are read although no node is live, or a required metric is missing."""
    now = int(time.time()) // 15 * 15
    names = (CPU, "node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes") if raw else (CPU, MEMORY)

    def lines() -> Iterator[str]:
        for name in names:
            yield f"# TYPE {name} gauge\n"
            for node in "ab":
                for at in range(now - 1200, now + 1 - (0 if name == alive else 480), 15):
                    yield f'{name}{{instance="{node}:9100"}} 0.5 {at}\n'

    with run_prometheus(tmp_path, lines()) as url:
        fetched = provider_at(url).fetch(window("15m", 900, end=now), Deadline.after(20))
    assert set(fetched.nodes) == set(fetched.newest) == {"a", "b"}
    assert all(now - 480 - 150 <= at <= now - 480 for at in fetched.newest.values())


def test_unreadable_value_becomes_nan() -> None:
    """One unreadable value is passed on as NaN to the analyzer."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, vector(("a:9100", "abc"), ("b:9100", "0.5")))

    with serving(answer) as fake:
        nodes = provider_at(fake.url).fetch(window("5m", 300), Deadline.after(5)).nodes
    kept, findings = analyzer.clean(nodes, "5m")
    assert set(kept) == {"b"}
    assert {(each.node, each.kind) for each in findings} == {("a", "not_finite")}


@pytest.mark.server
def test_new_node_has_its_load_and_coverage(tmp_path: Path) -> None:
    """The rate of a node that has existed for one minute is not a fifth of its load; its coverage is set."""
    now = int(time.time()) // 30 * 30
    present = {"old": range(now - 1500, now + 1, 15), "new": range(now - 75, now + 1, 15)}
    present["back"] = sorted({*range(now - 1500, now - 700, 15), *range(now - 90, now + 1, 15)})

    def lines() -> Iterator[str]:
        yield "# TYPE node_cpu_seconds counter\n"
        for node, times in present.items():
            for cpu, busy in ((0, 0.9), (1, 0.5)):
                for mode, share in (("user", busy), ("idle", 0.96 - busy), ("iowait", 0.04)):
                    labels = f'instance="{node}:9100",cpu="{cpu}",mode="{mode}"'
                    yield from (
                        f"node_cpu_seconds_total{{{labels}}} {share * (at - now + 2000)} {at}\n" for at in times
                    )
        for name in ("node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes"):
            yield f"# TYPE {name} gauge\n"
            for node, times in present.items():
                yield from (f'{name}{{instance="{node}:9100"}} 1 {at}\n' for at in times)

    with run_prometheus(tmp_path, lines()) as url:
        fetched = provider_at(url).fetch(window("15m", 900, end=now), Deadline.after(20))
    for node in ("old", "new", "back"):
        cpu = {each.operator: each.value for each in fetched.nodes[node].metrics if each.type == "CPU"}
        assert cpu == pytest.approx({"AVG": 70, "STD": 0}, abs=1e-6), node
    coverage = {node: each.metadata.get("coverage", 1.0) for node, each in fetched.nodes.items()}
    assert coverage["old"] == 1
    assert coverage["new"] == pytest.approx(75 / 900, abs=0.05)
    assert (
        0.4 < coverage["back"] < 0.8
    )  # without a staleness marker, a series is visible for Prometheus' lookback delta of five minutes


@pytest.mark.server
@pytest.mark.parametrize("raw", [False, True], ids=["rules", "raw"])
def test_newest_samples_of_stopped_nodes(tmp_path: Path, raw: bool) -> None:
    """The newest sample of a stopped node has its own time, although the window still has its average."""
    now = int(time.time()) // 15 * 15
    names = ("node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes") if raw else (CPU, MEMORY)

    def lines() -> Iterator[str]:
        for name, value in zip(names, ("0.25", "1") if raw else ("0.5", "0.75"), strict=True):
            yield f"# TYPE {name} gauge\n"
            for node, stopped in (("alive", 0), ("stopped", 480)):
                for at in range(now - 1200, now + 1 - stopped, 15):
                    yield f'{name}{{instance="{node}:9100"}} {value} {at}\n'

    with run_prometheus(tmp_path, lines()) as url:
        fetched = provider_at(url).fetch(window("15m", 900, end=now), Deadline.after(20))
    assert {node: {m.value for m in fetched.nodes[node].metrics if m.operator == "AVG"} for node in fetched.nodes} == {
        node: {75.0} if raw else {50.0, 75.0} for node in ("alive", "stopped")
    }
    assert fetched.newest["alive"] == now
    assert now - 480 - 150 <= fetched.newest["stopped"] <= now - 480


@pytest.mark.server
def test_an_answer_without_cpu_says_why(tmp_path: Path) -> None:
    """Before Prometheus has two scrapes there is memory only: each node says that CPU is missing, and why."""
    now = int(time.time())
    lines = [
        f'# TYPE node_memory_{name}_bytes gauge\nnode_memory_{name}_bytes{{instance="a:9100"}} {value} {now - 60}\n'
        for name, value in (("MemAvailable", 25), ("MemTotal", 100))
    ]
    with run_prometheus(tmp_path, lines) as url:
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=url))
        watcher = open_watcher(settings, None)
        watcher.fetch_once()
        node = watcher.published().metrics.data["a"]
        watcher.stop()
    assert {metric.type for metric in node.metrics} == {"Memory"}
    assert node.metadata["missing"] == "CPU: there are no series of CPU"


def _node_exporter(times: range, cpu: Callable[[float], float], available: Callable[[float], float]) -> Iterator[str]:
    """Yield series of a node with two processors: seconds of CPU, and bytes of available memory, of 100."""
    yield "# TYPE node_cpu_seconds counter\n"
    for number in range(2):
        for mode in ("user", "idle"):
            name = f'node_cpu_seconds_total{{instance="a:9100",cpu="{number}",mode="{mode}"}}'
            yield from (
                f"{name} {cpu(at) if mode == 'user' else 1e6 + at - times[0] - cpu(at)!r} {at}\n" for at in times
            )
    for series, value in (("MemAvailable", available), ("MemTotal", lambda _: 100.0)):
        yield f"# TYPE node_memory_{series}_bytes gauge\n"
        for at in times:
            if not math.isnan(value(at)):
                yield f'node_memory_{series}_bytes{{instance="a:9100"}} {value(at)!r} {at}\n'


def _averages(url: str, end: int, **own: Any) -> dict[tuple[str, str], float]:
    """Return the averages of the node by type and window."""
    windows = (window("5m", 300, end), window("10m", 600, end), window("15m", 900, end), window("1h", 3600, end))
    provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url), **own))
    fetched = {each.duration: provider.fetch(each, Deadline.after(20)) for each in windows}
    return {
        (metric.type, duration): metric.value
        for duration, each in fetched.items()
        for metric in each.nodes["a"].metrics
        if metric.operator == "AVG"
    }


@pytest.mark.server
@pytest.mark.parametrize("form", ["rule", "raw", "custom"])
@pytest.mark.parametrize("seconds", [0, 7, 299])
def test_a_window_is_the_window(tmp_path: Path, form: str, seconds: int) -> None:
    """The average of CPU is that of the window, wherever the load changed, and not that of the minutes before it."""
    now = int(time.time()) // 300 * 300 - 300 + seconds
    times = range(now - 4500, now + 1, 15)

    def busy(at: float) -> float:
        return 0.1 * (at - times[0]) + 0.8 * max(0, at - (now - 300)) + 1000

    def lines() -> Iterator[str]:
        if form == "raw":
            yield from _node_exporter(times, busy, lambda _: 50.0)
            return
        yield "# TYPE instance:node_cpu:ratio gauge\n"
        for at in times[20:]:
            yield f'instance:node_cpu:ratio{{instance="a:9100"}} {(busy(at) - busy(at - 300)) / 300!r} {at}\n'

    query = PrometheusQuery(name="own", type="CPU", query="instance:node_cpu:ratio{$matchers}", smoothing="5m")
    own = {"prometheus": PrometheusSettings(queries=[query])} if form == "custom" else {}
    with run_prometheus(tmp_path, lines()) as url:
        found = _averages(url, now, **own)
        past = provider_at(url).past("15m", range(now - 420, now + 1, 420), Deadline.after(20))
    expected = {"5m": 90, "10m": 50, "15m": 10 + 80 / 3, "1h": 10 + 80 / 12}
    assert {name: found["CPU", name] for name in expected} == pytest.approx(expected, abs=0.3)
    (values,) = (each for (type_, operator, _), each in past.series.items() if (type_, operator) == ("CPU", "AVG"))
    assert values[0] == pytest.approx([10, 10 + 80 / 3], abs=0.3)


@pytest.mark.server
def test_memory_is_not_held_through_a_gap(tmp_path: Path) -> None:
    """The average of memory is that of its samples: the last one before a gap does not count for the whole gap."""
    now = int(time.time())
    times = range(now - 1200, now + 1, 15)

    def available(at: float) -> float:
        return 90.0 if at > now - 200 else 20.0 if at < now - 400 else math.nan

    with run_prometheus(tmp_path, _node_exporter(times, lambda at: 0.1 * (at - times[0]), available)) as url:
        found = _averages(url, now)
    samples = [100 - available(at) for at in times if at >= now - 600 and not math.isnan(available(at))]
    assert found["Memory", "10m"] == pytest.approx(np.mean(samples), abs=1e-6)


WRONG = [-0.3, -1e-4, 1.6, 1e6, math.inf, math.nan]


@pytest.mark.server
@pytest.mark.parametrize(
    ("bad", "form"),
    [(bad, form) for bad in WRONG for form in ("rule", "raw", "custom") if form != "raw" or not math.isnan(bad)],
)
def test_samples_that_cannot_be_right_are_left_out(tmp_path: Path, form: str, bad: float) -> None:
    """Every other sample of a node is negative or absurd: the others are its window, and the finding counts them."""
    now = int(time.time())
    times = range(now - 1800, now + 1, 15)
    name = MEMORY if form == "rule" else "own_memory_ratio"
    plain = PrometheusQuery(name="own", type="Memory", query="own_memory_ratio{$matchers}")

    def lines() -> Iterator[str]:
        if form == "raw":
            wrong = 100 * (1 - bad)
            yield from _node_exporter(
                times, lambda at: 0.1 * (at - times[0]), lambda at: wrong if at // 15 % 2 else 80.0
            )
            return
        yield f"# TYPE {name} gauge\n"
        for node in "ab":
            for at in times:
                value = bad if node == "a" and at // 15 % 2 else 0.2
                yield f'{name}{{instance="{node}:9100",replica="x"}} {value!r} {at}\n'

    with run_prometheus(tmp_path, lines()) as url:
        section = PrometheusSettings(queries=[plain] if form == "custom" else [])
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=url), prometheus=section)
        provider = PrometheusProvider(settings)
        for asked in (window("15m", 900, now), window("5m", 300, now)):
            fetched = provider.fetch(asked, Deadline.after(20))
            memory = {m.operator: m.value for m in fetched.nodes["a"].metrics if m.type == "Memory"}
            assert memory == pytest.approx({"AVG": 20.0, "STD": 0.0}, abs=1e-6)
            (finding,) = (each for each in fetched.findings if each.kind is Kind.OUT_OF_RANGE)
            assert (finding.node, finding.window) == ("a", asked.duration)
            assert re.match("[0-9]+ of [0-9]+ samples are below 0 or above 150 percent of capacity", finding.message)
        past = provider.past("5m", range(now - 60, now + 1, 60), Deadline.after(20))
    values = past.series["Memory", "AVG", "own" if form == "custom" else MEMORY]
    of_node = dict(zip(past.nodes, values, strict=True))
    assert np.isnan(of_node["a"]).all()  # the history has no value rather than the average of wrong samples
    if form != "raw":
        assert of_node["b"] == pytest.approx([20, 20])


@pytest.mark.server
def test_rates_that_cannot_be_right_are_left_out(tmp_path: Path) -> None:
    """A rule of CPU with negative samples has the average of the others, also where one of them ends the window."""
    now = int(time.time()) // 30 * 30
    times = range(now - 1800, now + 1, 30)

    def lines() -> Iterator[str]:
        yield f"# TYPE {CPU} gauge\n"
        for node in "ab":
            for at in times:
                value = -0.4 if node == "a" and at in {now, now - 330, now - 360} else 0.2
                yield f'{CPU}{{instance="{node}:9100"}} {value!r} {at}\n'

    with run_prometheus(tmp_path, lines()) as url:
        fetched = provider_at(url).fetch(window("15m", 900, now), Deadline.after(20))
    for node in "ab":
        found = {m.operator: m.value for m in fetched.nodes[node].metrics if m.type == "CPU"}
        assert found == pytest.approx({"AVG": 20.0, "STD": 0.0}, abs=1e-6)
    (finding,) = (each for each in fetched.findings if each.kind is Kind.OUT_OF_RANGE)
    assert finding.node == "a"
    assert finding.message.startswith("3 of 3")


def test_a_wrong_scale_is_still_named(tmp_path: Path) -> None:
    """If all samples of a node are out of range its scale is wrong: the analyzer says so, and nothing is served."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        at = int(time.time())
        matrix = {"metric": {"instance": "a:9100"}, "values": [[at - 30, "42"], [at, "43"]]}
        is_matrix = "_over_time" not in handler.path
        body = {"status": "success", "data": {"resultType": "matrix", "result": [matrix]}}
        reply(handler, body if is_matrix else vector(("a:9100", "43")))

    with serving(only_rules(answer)) as fake:
        nodes = provider_at(fake.url).fetch(window("15m", 900), Deadline.after(5)).nodes
    kept, findings = analyzer.clean(nodes, "15m")
    assert not kept
    assert all("is the query's scale right?" in each.message for each in findings if "AVG" in each.message)
    assert any("AVG is 4250 percent" in each.message for each in findings)


def test_shorter_windows_are_not_checked_for_what_the_longest_has_not() -> None:
    """A fetch without gaps and wrong samples has no more queries than metrics; its longest window is always checked."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, vector(("a:9100", "0.5")) if "count_over_time" not in handler.path else vector())

    with serving(only_rules(answer)) as fake:
        provider = provider_at(fake.url)
        provider.fetch(window("15m", 900), Deadline.after(5))
        for duration, seconds, checked in (("15m", 900, True), ("5m", 300, False), ("10m", 600, False)):
            fake.requests.clear()
            provider.fetch(window(duration, seconds), Deadline.after(5))
            queries = [unquote(path) for path, _ in fake.requests]
            assert any("count_over_time" in each for each in queries) == checked
            assert any("min_over_time" in each for each in queries) == checked
            assert len(queries) <= 6


def test_shorter_windows_are_checked_while_the_longest_is_unknown() -> None:
    """After a fetch in which the longest window's query failed, shorter windows are checked for wrong samples, too."""
    fails = False

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if fails and "min_over_time" in handler.path:
            reply(handler, {"status": "error"}, 500)
        else:
            reply(handler, vector(("a:9100", "0.5")) if "count_over_time" not in handler.path else vector())

    with serving(only_rules(answer)) as fake:
        provider = provider_at(fake.url)
        for has_failure, checked in ((False, False), (True, True), (False, False)):
            fails = has_failure
            provider.fetch(window("15m", 900), Deadline.after(5))
            fake.requests.clear()
            fails = False
            provider.fetch(window("5m", 300), Deadline.after(5))
            assert any("min_over_time" in path for path, _ in fake.requests) == checked


@pytest.mark.server
@pytest.mark.parametrize(
    "query", ["own_ratio{$matchers} * 1", "max by ($labels) (own_ratio)", "sum(own_ratio) by (instance)"]
)
def test_a_custom_query_has_coverage_and_newest_samples(tmp_path: Path, query: str) -> None:
    """A node that stopped has gaps and the time of its newest sample with any custom expression over its series."""
    now = int(time.time()) // 15 * 15

    def lines() -> Iterator[str]:
        yield "# TYPE own_ratio gauge\n"
        for node, stopped in (("alive", 0), ("stopped", 480)):
            yield from (
                f'own_ratio{{instance="{node}:9100"}} 0.5 {at}\n' for at in range(now - 1200, now + 1 - stopped, 15)
            )

    own = [PrometheusQuery(name=f"own:{type_}", type=type_, query=query) for type_ in ("CPU", "Memory")]
    with run_prometheus(tmp_path, lines()) as url:
        section = PrometheusSettings(queries=own)
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=url), prometheus=section)
        fetched = PrometheusProvider(settings).fetch(window("15m", 900, end=now), Deadline.after(20))
    assert set(fetched.nodes) == {"alive", "stopped"}
    assert "coverage" not in fetched.nodes["alive"].metadata
    assert 0.4 < fetched.nodes["stopped"].metadata["coverage"] < 0.9  # with the lookback delta of five minutes
    assert now - 480 - 150 <= fetched.newest["stopped"] <= now - 480
    assert fetched.newest["alive"] == now


@pytest.mark.server
@pytest.mark.parametrize(
    ("query", "is_checked"),
    [
        ("sum by (instance) (own_ratio)", True),  # fewer labels than the series, which have a node, too
        ("label_replace(own_ratio, 'node', '$1', 'host', '(.*)')", False),  # the series do not name the node
        ("sort(vector(0.5)) or label_replace(vector(0.5), 'node', 'alive', '', '')", False),
    ],
)
def test_a_query_whose_gaps_cannot_be_read_is_unchecked(tmp_path: Path, query: str, is_checked: bool) -> None:
    """A node without readable times of samples has the grade unchecked and no coverage; doctor says that of a query."""
    now = int(time.time()) // 15 * 15
    names = 'host="alive"' if "label_replace" in query else 'node="alive",instance="alive:9100"'

    def lines() -> Iterator[str]:
        for name in ("own_ratio", MEMORY):
            yield f"# TYPE {name} gauge\n"
            labels = names if name == "own_ratio" else 'node="alive"'
            yield from (f"{name}{{{labels}}} 0.5 {at}\n" for at in range(now - 1200, now + 1, 15))

    with run_prometheus(tmp_path, lines()) as url:
        section = PrometheusSettings(queries=[PrometheusQuery(name="own:cpu", type="CPU", query=query)])
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=url), prometheus=section)
        provider = PrometheusProvider(settings)
        metadata = provider.fetch(window("15m", 900, end=now), Deadline.after(20)).nodes["alive"].metadata
        steps = {check.step: check for check in provider.check()}
    assert metadata == ({} if is_checked else {"grade": "unchecked"})
    assert ("unchecked" in steps["query CPU"].message) == ("own_ratio" not in query)
    assert steps["query CPU"].ok
