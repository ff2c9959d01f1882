"""Tests of the provider InfluxDB, with a real influxd 1.x, a fake of 2.x, and unusual responses."""

import base64
import hmac
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from support.fake_influxdb2 import FakeInfluxDb2, StoredSeries, run_influxdb2
from support.influxdb_server import SHARED_SECRET, InfluxDb, run_influxdb
from support.servers import reply, serving

from runtime.http.gather import Deadline
from runtime.settings.loading import display, load
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.model import NodeMetrics, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.influxdb.provider import InfluxDbProvider
from watcher.providers.influxdb.queries import Bounds, flux, queries
from watcher.providers.influxdb.queries import influxql as influxql_text
from watcher.providers.influxdb.results import read_flux, read_influxql
from watcher.settings import InfluxDbQuery, InfluxDbSettings, ProviderSettings, Settings, WatcherSettings, WatchSettings

PAGE = Path(__file__).parents[2] / "docs" / "providers" / "influxdb.md"
NOW = int(time.time())
TIMES = np.arange(NOW - 880, NOW, 20)
RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let samples end now, not at the import of this module."""
    module, at = sys.modules[__name__], int(time.time())
    monkeypatch.setattr(module, "NOW", at)
    monkeypatch.setattr(module, "TIMES", np.arange(at - 880, at, 20))


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxDb]:
    """One influxd; each test has a separate database."""
    with run_influxdb(tmp_path_factory.mktemp("influxdb"), max_rows=200) as server:
        yield server


@pytest.fixture
def database(influxdb: InfluxDb, request: pytest.FixtureRequest) -> str:
    """Create a database with the name of the test."""
    name = request.node.name
    influxdb.run(f'CREATE DATABASE "{name}"')
    return str(name)


@contextmanager
def provider(address: str, operators: list[str] | None = None, **own: object) -> Iterator[InfluxDbProvider]:
    """Open a provider with settings like a user's."""
    settings = Settings(
        provider=ProviderSettings(name="InfluxDB", address=address, token=own.pop("token", None)),
        watch=WatchSettings(operators=operators or ["AVG", "STD"]),
        influxdb=InfluxDbSettings.model_validate(own),
    )
    opened = InfluxDbProvider(settings)
    try:
        yield opened
    finally:
        opened.close()


def fetch(address: str, window: str = "15m", seconds: int = 900, **settings: object) -> Fetched:
    """Fetch once."""
    with provider(address, **settings) as opened:
        return opened.fetch(Window(window, NOW - seconds, NOW), Deadline.after(20))


def values(node: NodeMetrics) -> dict[tuple[str, str], float]:
    """Return values by type and operator."""
    return {(metric.type, metric.operator): metric.value for metric in node.metrics}


def points(series: str, field: str, times: np.ndarray, samples: np.ndarray) -> list[str]:
    """Return line protocol."""
    return [f"{series} {field}={value!r} {at}" for at, value in zip(times, samples.tolist(), strict=True)]


def query(**changes: object) -> dict[str, object]:
    """Return a custom query as in the settings."""
    return {"name": "own", "type": "CPU", "measurement": "load", "field": "busy", **changes}


# -- 1.x, for real ------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_idle_time_becomes_use(influxdb, database):
    """AVG, STD, P90 and MAX of CPU are those of 100 minus idle; percentiles are at most 1.5 ranks off."""
    idle = RANDOM.uniform(5, 95, len(TIMES))
    influxdb.write(points("cpu,cpu=cpu-total,host=a", "usage_idle", TIMES, idle), database)
    influxdb.write(points("mem,host=a", "available_percent", TIMES, np.full(len(TIMES), 25.0)), database)
    fetched = fetch(influxdb.url, database=database, operators=["AVG", "STD", "P90", "P95", "P99", "MAX"])
    found, used = values(fetched.nodes["a"]), np.sort(100 - idle)
    assert found["CPU", "AVG"] == pytest.approx(used.mean(), rel=1e-9)
    assert found["CPU", "STD"] == pytest.approx(used.std(), rel=1e-9)
    assert found["CPU", "MAX"] == pytest.approx(used[-1], rel=1e-12)
    for operator, quantile in (("P90", 0.9), ("P95", 0.95), ("P99", 0.99)):
        ranks = np.searchsorted(used, found["CPU", operator] - 1e-9)
        assert abs(ranks + 1 - quantile * len(used)) <= 1.5, operator
    assert found["Memory", "P99"] == 75
    assert not fetched.findings


@pytest.mark.server
def test_samples_that_cannot_be_right_are_left_out(influxdb, database):
    """Every other sample of a host is negative or absurd: the others are its window, and the finding counts them."""
    bad = {"a": -13.0, "b": -1e-3, "c": 151.0, "d": 4e6}
    for host in (*bad, "good"):
        use = np.where(np.arange(len(TIMES)) % 2, bad.get(host, 10.0), 10.0)
        influxdb.write(points(f"cpu,cpu=cpu-total,host={host}", "usage_idle", TIMES, 100 - use), database)
    fetched = fetch(influxdb.url, database=database)
    for host in (*bad, "good"):
        assert values(fetched.nodes[host]) == pytest.approx({("CPU", "AVG"): 10, ("CPU", "STD"): 0}, abs=1e-9)
    found = {each.node: each.message for each in fetched.findings if each.kind == "out_of_range"}
    assert found.keys() == bad.keys()
    expected = f"{len(TIMES) // 2} of {len(TIMES)} samples are below 0 or above 150 percent of capacity"
    assert all(message.startswith(expected) for message in found.values())


def test_only_refused_hosts_are_asked_again():
    """The second query, in InfluxQL and in Flux, has the samples that can be right, of the refused hosts only."""
    idle = queries(InfluxDbSettings())["telegraf:cpu:percent"][0]
    window, bounds = Window("5m", NOW - 300, NOW), Bounds.of(idle).only("host", ["b", 'a"', "b"])
    statement, script = influxql_text(idle, ["AVG"], window, "", bounds), flux(idle, ["AVG"], window, "x", bounds)
    assert '"usage_idle" >= -50.000000000 AND "usage_idle" <= 100.000001000' in statement
    assert """("host" = 'a"' OR "host" = 'b')""" in statement
    assert "|> filter(fn: (r) => r._value >= -50.000000000 and r._value <= 100.000001000)" in script
    assert '|> filter(fn: (r) => r["host"] == "a\\"" or r["host"] == "b")' in script
    assert not Bounds.of(idle).only("host", map(str, range(101))).hosts


@pytest.mark.server
def test_percentiles_of_few_samples(influxdb, database):
    """InfluxQL has no 1st percentile of 3 samples, so the 99th percentile of use is the highest sample."""
    influxdb.write(points("cpu,cpu=cpu-total,host=a", "usage_idle", TIMES[-3:], np.array([30.0, 10, 20])), database)
    found = values(fetch(influxdb.url, database=database, operators=["AVG", "P99"]).nodes["a"])
    assert found == {("CPU", "AVG"): 80, ("CPU", "P99"): 90}


@pytest.mark.server
def test_memory_from_either_field(influxdb, database):
    """used_percent is used while there is no available_percent."""
    influxdb.write(points("mem,host=a", "used_percent", TIMES, np.full(len(TIMES), 40.0)), database)
    with provider(influxdb.url, database=database) as opened:
        window = Window("15m", NOW - 900, NOW)
        assert values(opened.fetch(window, Deadline.after(20)).nodes["a"])["Memory", "AVG"] == 40
    influxdb.write(points("mem,host=a", "available_percent", TIMES, np.full(len(TIMES), 70.0)), database)
    assert values(fetch(influxdb.url, database=database).nodes["a"])["Memory", "AVG"] == 30


@pytest.mark.server
def test_single_sample_has_deviation_0(influxdb, database):
    """InfluxQL's STDDEV of one sample is null: it is published as 0, with a finding."""
    influxdb.write(points("mem,host=a", "used_percent", TIMES[-1:], np.array([40.0])), database)
    fetched = fetch(influxdb.url, database=database)
    assert values(fetched.nodes["a"]) == {("Memory", "AVG"): 40, ("Memory", "STD"): 0}
    assert [(each.node, each.metric) for each in fetched.findings if each.kind == "low_coverage"] == [
        ("a", "telegraf:memory:percent")
    ]


@pytest.mark.server
@pytest.mark.parametrize("seconds", [900, 600])
def test_series_that_follow_each_other_are_the_newest(influxdb, database, seconds):
    """Of two successive series of one host only the newest counts, also in a window that is not the longest."""
    used = RANDOM.uniform(5, 95, len(TIMES))
    influxdb.write(points("mem,host=a,pool=old", "used_percent", TIMES[:30], used[:30]), database)
    influxdb.write(points("mem,host=a,pool=new", "used_percent", TIMES[30:], used[30:]), database)
    fetched = fetch(influxdb.url, f"{seconds // 60}m", seconds, database=database, operators=["AVG", "STD", "MAX"])
    found = values(fetched.nodes["a"])
    assert found["Memory", "AVG"] == pytest.approx(used[30:].mean(), rel=1e-9)
    assert found["Memory", "STD"] == pytest.approx(used[30:].std(), rel=1e-9)
    assert found["Memory", "MAX"] == pytest.approx(used[30:].max(), rel=1e-12)
    assert not fetched.findings or {each.kind for each in fetched.findings} == {"query_failed"}


@pytest.mark.server
def test_hosts_of_two_clusters_are_no_node(influxdb, database):
    """Machines of one name are a suspect node, with tag and setting; doctor says so; an hour later it is not served."""
    for host, cluster, use in (("a", "c1", 90.0), ("a", "c2", 10.0), ("b", "c1", 20.0), ("c", "c1", 20.0)):
        samples = np.full(len(TIMES), use)
        influxdb.write(points(f"mem,host={host},cluster={cluster}", "used_percent", TIMES, samples), database)
    window = Window("15m", NOW - 900, NOW)
    with provider(influxdb.url, database=database) as opened:
        fetched = opened.fetch(window, Deadline.after(20))
        names = opened._memory._names["15m"]
        opened._memory._names["15m"] = {node: replace(name, since=0) for node, name in names.items()}
        later = opened.fetch(window, Deadline.after(20))
        failed = [step.message for step in opened.check() if not step.ok]
    (finding,) = (each for each in fetched.findings if each.kind == "duplicate")
    assert (finding.node, finding.action) == ("a", "marked")
    assert '"c1" and "c2" (influxdb.queries' in finding.message
    assert fetched.nodes["a"].metadata == {"suspect": "duplicate"}
    assert set(later.nodes) == {"b", "c"}
    assert any(message.startswith("a: several machines") for message in failed)


@pytest.mark.server
def test_storage_is_the_busiest_disks_rate(influxdb, database):
    """diskio.io_time in ms per second is a tenth of a percent; a reset of the counter does not count."""
    sda, sdb = np.cumsum(RANDOM.integers(0, 20_000, (2, len(TIMES))), axis=1)
    sdb = sdb // 4
    rates = np.diff(sda) / 20 * 0.1
    sda[20:] -= sda[20]  # a reboot
    for disk, counter in (("sda", sda), ("sdb", sdb)):
        lines = [f"diskio,host=a,name={disk} io_time={count}i {at}" for at, count in zip(TIMES, counter, strict=True)]
        influxdb.write(lines, database)
    disk = query(
        name="telegraf:disk_busy:percent", type="Storage", measurement="diskio", field="io_time",
        rate=True, scale=0.1, combine="busiest",
    )  # fmt: skip
    fetched = fetch(influxdb.url, database=database, queries=[disk])
    found, kept = values(fetched.nodes["a"]), np.delete(rates, 19)
    assert found["Storage", "AVG"] == pytest.approx(kept.mean(), rel=1e-9)
    assert found["Storage", "STD"] == pytest.approx(kept.std(), rel=1e-9)
    assert not [each for each in fetched.findings if each.kind == "duplicate"]


@pytest.mark.server
def test_influxql_names_are_quoted(influxdb, database):
    """Quotes and backslashes in measurement, field, tags and retention policy are used literally."""
    influxdb.run(f'CREATE RETENTION POLICY "r\\"p" ON "{database}" DURATION 1d REPLICATION 1')
    line = r"""lo"ad\,\ it's,t"a'g=v"a'l\ue\ x,host=a fie'ld\ a\=b=12"""
    influxdb.write([f"{line} {NOW - 5}", f"{line.replace('=v', '=w').replace('=a ', '=b ')} {NOW - 5}"],
                   database, retention_policy='r"p')  # fmt: skip
    own = query(measurement="lo\"ad, it's", field="fie'ld a=b", where={"t\"a'g": r"""v"a'l\ue x"""})
    fetched = fetch(influxdb.url, database=database, retention_policy='r"p', queries=[own])
    assert list(fetched.nodes) == ["a"]
    assert values(fetched.nodes["a"])["CPU", "AVG"] == 12


@pytest.mark.server
@pytest.mark.parametrize(
    "attack", ["x' OR '1'='1", "x'; DROP DATABASE telegraf; --", "x\\' OR 1=1 --", 'x" OR "host" != "', "x\n' OR ''='"]
)
def test_influxql_injection_is_not_possible(influxdb, attack):
    """A tag value with a closing quote selects nothing, and the database still exists afterwards."""
    influxdb.write(points("load,host=a", "busy", TIMES, np.full(len(TIMES), 40.0)))
    influxdb.write(points("mem,host=a", "used_percent", TIMES, np.full(len(TIMES), 40.0)))
    fetched = fetch(influxdb.url, queries=[query(where={"host": attack})])
    assert ("CPU", "AVG") not in values(fetched.nodes["a"])
    assert [each.metric for each in fetched.findings] == ["own"]
    assert values(fetch(influxdb.url, queries=[query()]).nodes["a"])["CPU", "AVG"] == 40


@pytest.mark.server
def test_failed_query_does_not_affect_others(influxdb, database):
    """A text field is a finding with InfluxDB's message; the other queries are served."""
    influxdb.write([f'load,host=a busy="much" {NOW - 5}', f"mem,host=a used_percent=40 {NOW - 5}"], database)
    fetched = fetch(influxdb.url, database=database, queries=[query()])
    assert set(values(fetched.nodes["a"])) == {("Memory", "AVG"), ("Memory", "STD")}
    (failed,) = [each for each in fetched.findings if each.kind == "query_failed"]
    assert failed.metric == "own"
    assert "unsupported" in failed.message
    assert "influxdb.queries" in failed.message


@pytest.mark.server
def test_absurd_samples_are_left_out(influxdb, database):
    """Samples with an infinite sum, for which InfluxDB has no response, are left out with a finding."""
    influxdb.write(points("mem,host=a", "used_percent", TIMES, np.full(len(TIMES), 40.0)), database)
    influxdb.write(points("mem,host=b", "used_percent", TIMES, np.full(len(TIMES), 1e308)), database)
    fetched = fetch(influxdb.url, database=database)
    assert set(fetched.nodes) == {"a"}
    assert [each.action for each in fetched.findings if each.kind == "not_finite"] == ["dropped"]


@pytest.mark.server
def test_host_name_suffix_is_removed(influxdb, database):
    """Only host_name_suffix is removed from host names; a series without the tag is a finding."""
    lines = [f"mem,host={host} used_percent=40 {NOW - 5}" for host in ("a.example.com", "b.other", "10.0.0.7")]
    influxdb.write([*lines, f"mem used_percent=40 {NOW - 5}"], database)
    fetched = fetch(influxdb.url, database=database, host_name_suffix=".example.com")
    assert set(fetched.nodes) == {"a", "b.other", "10.0.0.7"}
    (unmatched,) = [each for each in fetched.findings if each.kind == "unmatched_node"]
    assert "influxdb.host_tag" in unmatched.message


@pytest.mark.server
def test_no_series_with_the_host_tag(influxdb, database):
    """If no series has the host tag, the error names the tag and its setting."""
    influxdb.write([f"mem,hostname=a used_percent=40 {NOW - 5}"], database)
    with pytest.raises(ProviderAnswerError, match=r"'host' \(influxdb\.host_tag\)"):
        fetch(influxdb.url, database=database)
    assert set(fetch(influxdb.url, database=database, host_tag="hostname").nodes) == {"a"}


@pytest.mark.server
def test_partial_response_is_a_finding(influxdb, database):
    """A response cut by the server's max-row-limit is a finding."""
    influxdb.write([f"mem,host=node-{number} used_percent=40 {NOW - 5}" for number in range(300)], database)
    fetched = fetch(influxdb.url, database=database)
    assert 0 < len(fetched.nodes) < 300
    assert [each.kind for each in fetched.findings if each.kind == "partial_answer"]


@pytest.mark.server
def test_missing_source_names_the_setting(influxdb, database):
    """A missing database, retention policy or sample is an error that names its setting."""
    with pytest.raises(ProviderAnswerError, match=r"nope \(influxdb\.database\)"):
        fetch(influxdb.url, database="nope")
    with pytest.raises(ProviderAnswerError, match=r"\(influxdb\.retention_policy\)"):
        fetch(influxdb.url, database=database, retention_policy="nope")
    with pytest.raises(ProviderAnswerError, match=r"cpu\.usage_idle .* mem\.available_percent .*15m"):
        fetch(influxdb.url, database=database)


@pytest.mark.server
def test_windows_of_any_duration(influxdb, database):
    """6h works like 15m, and a sample at the start does not belong to the window."""
    times = np.array([NOW - 21_600, NOW - 21_599, NOW - 7, NOW])
    influxdb.write(points("mem,host=a", "used_percent", times, np.array([90.0, 10, 20, 60])), database)
    (metric, *_) = fetch(influxdb.url, "6h", 21_600, database=database).nodes["a"].metrics
    assert (metric.rollup, metric.value) == ("6h", pytest.approx(30))


@pytest.mark.server
def test_check_has_nodes_and_range(influxdb, database):
    """Each query is a step with its nodes and range; a unit other than percent fails."""
    influxdb.write([f"mem,host={host} used_percent=40 {NOW - 5}" for host in "ab"], database)
    influxdb.write([f"load,host={host} busy=70000 {NOW - 5}" for host in "ab"], database)
    with provider(influxdb.url, database=database, queries=[query()]) as opened:
        steps = {step.step: step for step in opened.check() if not step.step.endswith(": nodes")}
    assert steps["version"].ok
    assert steps["query telegraf:memory:percent"] == Check(
        "query telegraf:memory:percent", True, "2 nodes, 40 to 40 percent", "influxdb.queries"
    )
    assert not steps["query own"].ok
    assert "not percent" in steps["query own"].message


@pytest.mark.server
def test_check_names_the_setting(influxdb, database):
    """A step without samples, host tag or database fails and names the setting."""
    influxdb.write([f"mem,hostname=a used_percent=40 {NOW - 5}"], database)
    with provider(influxdb.url, database=database) as opened:
        bad = {(step.step, step.setting) for step in opened.check() if not step.ok}
    assert bad == {
        ("query telegraf:cpu:percent", "influxdb.queries"),
        ("query telegraf:memory:percent: nodes", "influxdb.host_tag"),
    }
    with provider(influxdb.url, database="nope") as opened:
        assert {step.setting for step in opened.check() if not step.ok} == {"influxdb.database"}


@pytest.mark.server
def test_user_and_password(tmp_path):
    """User and password, from settings or address, are sent; a refusal names the setting and no secret."""
    with run_influxdb(tmp_path, user="reader", password="pass w@rd") as server:
        server.write([f"mem,host=a used_percent=40 {NOW - 5}"])
        assert fetch(server.url, username="reader", password="pass w@rd").nodes
        inside = server.url.replace("://", "://reader:pass%20w%40rd@")
        assert fetch(inside).nodes
        with pytest.raises(ProviderRefused, match=r"401.*\(influxdb.password\)") as caught:
            fetch(server.url, username="reader", password="wrong-secret")
        assert "wrong-secret" not in str(caught.value)
        with pytest.raises(ProviderRefused, match=r"401.*provider.token"):
            fetch(server.url)
        with pytest.raises(ProviderError) as caught, provider(inside, database="nope") as opened:
            opened.fetch(Window("5m", NOW - 300, NOW), Deadline.after(5))
        assert "pass" not in str(caught.value)
        with provider(inside) as opened:
            assert "pass" not in str([step.message for step in opened.check()])


@pytest.mark.server
def test_json_web_token(tmp_path):
    """provider.token is sent to 1.x as a bearer token; a wrong token is refused without being shown."""
    with run_influxdb(tmp_path, user="reader", password="password") as server:
        server.write([f"mem,host=a used_percent=40 {NOW - 5}"])
        claims = {"username": "reader", "exp": NOW + 600}
        head, body = (_base64(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        signature = hmac.digest(SHARED_SECRET.encode(), f"{head}.{body}".encode(), "sha256")
        assert fetch(server.url, token=f"{head}.{body}.{_base64(signature)}").nodes
        with pytest.raises(ProviderRefused, match=r"provider\.token") as caught:
            fetch(server.url, token=f"{head}.{body}.{_base64(b'forged')}")
        assert body not in str(caught.value)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.server
def test_queries_on_the_page(influxdb, database, tmp_path):
    """The page's TOML is a valid settings file, and influxd returns percents for each of its queries."""
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    file = tmp_path / "settings.toml"
    file.write_text(text)
    rise = np.arange(len(TIMES)) * 20
    for series, field, samples in (
        ("diskio,host=a,name=sda", "io_time", rise * 300),
        ("nvidia_smi,host=a,index=0", "utilization_gpu", np.full(len(TIMES), 20)),
        ("nvidia_smi,host=a,index=1", "utilization_gpu", np.full(len(TIMES), 40)),
        ("net,host=a,interface=eth0", "bytes_sent", rise * 125_000_000),
        ("net,host=a,interface=eth1", "bytes_sent", rise * 999_000_000),
    ):
        influxdb.write(points(series, field, TIMES, samples.astype(float)), database)
    fetched = fetch(influxdb.url, database=database, queries=load(WatcherSettings, file=file).settings.influxdb.queries)
    assert not [each for each in fetched.findings if each.kind == "duplicate"]
    found = values(fetched.nodes["a"])
    averages = {type_: value for (type_, operator), value in found.items() if operator == "AVG"}
    assert averages == pytest.approx({"Storage": 30, "GPU": 30, "Bandwidth": 10})


@pytest.mark.server
def test_newest_samples_of_stopped_nodes(influxdb, database):
    """With the longest window, the newest sample of a stopped node has its own time."""
    own = query(type="Storage", measurement="disk", field="reads", rate=True)
    for host, times in (("alive", TIMES), ("stopped", TIMES[:20]), ("b", TIMES[:10])):
        influxdb.write(
            points(f"cpu,cpu=cpu-total,host={host}", "usage_idle", times, np.full(len(times), 60.0)), database
        )
    influxdb.write(points("disk,host=b", "reads", TIMES[:30], np.arange(30) * 20.0), database)
    fetched = fetch(influxdb.url, database=database, queries=[own])
    assert fetched.newest == {"alive": TIMES[-1], "stopped": TIMES[19], "b": TIMES[29]}
    assert values(fetched.nodes["b"])["Storage", "AVG"] == 1
    assert fetch(influxdb.url, "5m", 300, database=database).newest == {}


# -- 2.x, by a fake -----------------------------------------------------------------------------------------------


@pytest.fixture
def influxdb2() -> Iterator[FakeInfluxDb2]:
    """Fake with one node."""
    with run_influxdb2() as fake:
        fake.series.append(StoredSeries("mem", "used_percent", {"host": "a"}, TIMES, np.full(len(TIMES), 40.0)))
        yield fake


def fetch2(fake: FakeInfluxDb2, **settings: object) -> Fetched:
    """Fetch once with all settings that 2.x needs."""
    return fetch(fake.url, **{"organization": "acme", "token": "right-token", **settings})


def test_version_2_is_detected(influxdb2):
    """X-Influxdb-Version v2 selects Flux and the token scheme of 2.x."""
    assert set(fetch2(influxdb2).nodes) == {"a"}
    assert set(influxdb2.authorizations) == {"Token right-token"}


def test_flux_operators(influxdb2):
    """Mean, population deviation, percentiles and maximum of idle time become those of use."""
    idle = RANDOM.uniform(5, 95, len(TIMES))
    influxdb2.series.append(StoredSeries("cpu", "usage_idle", {"host": "a", "cpu": "cpu-total"}, TIMES, idle))
    found = values(fetch2(influxdb2, operators=["AVG", "STD", "P90", "MAX"]).nodes["a"])
    used = 100 - idle
    assert found["CPU", "AVG"] == pytest.approx(used.mean(), rel=1e-9)
    assert found["CPU", "STD"] == pytest.approx(used.std(), rel=1e-9)
    assert found["CPU", "P90"] == pytest.approx(np.quantile(used, 0.9), rel=1e-9)
    assert found["CPU", "MAX"] == pytest.approx(used.max(), rel=1e-12)
    assert found["Memory", "MAX"] == 40


def test_flux_newest_samples(influxdb2):
    """The times are read by last(), also of counters, and only with the longest window."""
    counter = StoredSeries("diskio", "io_time", {"host": "b"}, TIMES[:9], np.arange(9) * 20)
    influxdb2.series.append(counter)
    own = query(type="Storage", measurement="diskio", field="io_time", rate=True)
    assert fetch2(influxdb2, queries=[own]).newest == {"a": TIMES[-1], "b": TIMES[8]}
    assert fetch(influxdb2.url, "5m", 300, organization="acme", token="right-token").newest == {}
    assert "last()" not in influxdb2.scripts[-1]


def test_unreadable_times_do_not_affect_metrics(influxdb2):
    """If the newest samples' times cannot be read, the metrics are served with a finding."""
    influxdb2.failing, influxdb2.failing_for = "out of memory", "last()"
    fetched = fetch2(influxdb2)
    assert (set(fetched.nodes), fetched.newest) == ({"a"}, {})
    messages = [each.message for each in fetched.findings if each.metric == "telegraf:memory:percent"]
    assert any("out of memory" in message for message in messages)


def test_flux_names_are_quoted(influxdb2):
    """Quotes, backslashes, line breaks and ${ in bucket, measurement, field and tags are used literally."""
    word = 'a "b" \'c\' \\ d, ${g} \\${h} ü\t\n") |> drop() //\\'
    influxdb2.bucket = word
    influxdb2.series.append(StoredSeries(word, word, {"host": "b", word: word}, TIMES, np.full(len(TIMES), 12.0)))
    own = query(measurement=word, field=word, where={word: word})
    fetched = fetch2(influxdb2, bucket=word, queries=[own])
    assert values(fetched.nodes["b"])["CPU", "AVG"] == 12


def test_flux_rates(influxdb2):
    """A counter is read by derivative, and the busiest device counts."""
    for disk, step in (("sda", 4000), ("sdb", 9000)):
        counter = np.arange(len(TIMES)) * step
        influxdb2.series.append(StoredSeries("diskio", "io_time", {"host": "a", "name": disk}, TIMES, counter))
    disk = query(type="Storage", measurement="diskio", field="io_time", rate=True, scale=0.1, combine="busiest")
    assert values(fetch2(influxdb2, queries=[disk]).nodes["a"])["Storage", "AVG"] == pytest.approx(45)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"token": "wrong-token"}, ProviderRefused, r"401.*unauthorized access.*provider.token"),
        ({"organization": "nope"}, ProviderAnswerError, r'organization name "nope" not found.*influxdb.organization'),
        ({"bucket": "nope"}, ProviderAnswerError, r'could not find bucket "nope".*influxdb.bucket'),
    ],
)
def test_refusals_of_2_x_name_the_setting(influxdb2, wrong, error, says):
    """Token, organization and bucket each have a message; the doctor names the same setting."""
    with pytest.raises(error, match=says) as caught:
        fetch2(influxdb2, **wrong)
    assert "wrong-token" not in str(caught.value)
    with provider(influxdb2.url, **{"organization": "acme", "token": "right-token", **wrong}) as opened:
        bad = {step.setting for step in opened.check() if not step.ok}
    (key,) = wrong
    assert bad == {"provider.token" if key == "token" else f"influxdb.{key}"}


def test_error_with_status_200(influxdb2):
    """A query that fails after its start has its error in a table."""
    influxdb2.failing = "memory allocation limit reached"
    with pytest.raises(ProviderAnswerError, match=r"InfluxDB at .*: memory allocation"):
        fetch2(influxdb2)


def test_empty_response_of_2_x_names_the_bucket(influxdb2):
    """A response without samples is an error that names the bucket."""
    influxdb2.series.clear()
    with pytest.raises(ProviderAnswerError, match=r"'telegraf' \(influxdb\.bucket\)"):
        fetch2(influxdb2)


def test_influxdb_cloud_does_not_report_its_version(influxdb2):
    """Without the header, an organization in the settings selects 2.x; else the error names the setting."""
    influxdb2.version = None
    assert fetch2(influxdb2).nodes
    with pytest.raises(ProviderAnswerError, match=r"influxdb\.version"):
        fetch(influxdb2.url)


def test_other_versions_need_a_setting(influxdb2):
    """3.x is an error with its version, which suggests influxdb.version."""
    influxdb2.version = "3.1.0"
    with pytest.raises(ProviderAnswerError, match=r"3\.1\.0.*influxdb\.version"):
        fetch2(influxdb2)


def test_detected_2_x_needs_settings(influxdb2):
    """The error names organization and token with their variables."""
    with pytest.raises(ProviderRefused) as caught:
        fetch(influxdb2.url)
    assert "TRIMARAN_INFLUXDB__ORGANIZATION" in str(caught.value)
    assert "METRICS_PROVIDER_TOKEN" in str(caught.value)


def test_upgrade_to_2_x_is_detected(influxdb2):
    """After a fetch without results the version is detected again."""
    influxdb2.version = "1.8.10"
    with provider(influxdb2.url, organization="acme", token="right-token") as opened:
        window = Window("15m", NOW - 900, NOW)
        with pytest.raises(ProviderError):
            opened.fetch(window, Deadline.after(5))
        influxdb2.version = "2.7.1"
        assert opened.fetch(window, Deadline.after(5)).nodes


# -- settings -----------------------------------------------------------------------------------------------------


def test_2_x_requires_settings():
    """The error names both missing settings with their variables."""
    with pytest.raises(SettingsError) as caught, provider("http://127.0.0.1:1", version="2"):
        pass
    assert len(caught.value.problems) == 2
    assert "TRIMARAN_INFLUXDB__ORGANIZATION" in str(caught.value)
    assert "METRICS_PROVIDER_TOKEN" in str(caught.value)


def test_queries_from_the_environment(monkeypatch):
    """The variable has a JSON list; a scale of 0 is refused, and the password is masked."""
    monkeypatch.setenv("TRIMARAN_INFLUXDB__QUERIES", json.dumps([query(where={"a": "b"})]))
    monkeypatch.setenv("TRIMARAN_INFLUXDB__PASSWORD", "very-secret")
    monkeypatch.setenv("TRIMARAN_INFLUXDB__VERSION", "1")
    own = load(WatcherSettings).settings.influxdb
    assert own.queries == [InfluxDbQuery(name="own", type="CPU", measurement="load", field="busy", where={"a": "b"})]
    assert display(own.password) == "********"
    monkeypatch.setenv("TRIMARAN_INFLUXDB__QUERIES", json.dumps([query(scale=0)]))
    monkeypatch.setenv("TRIMARAN_INFLUXDB__VERSION", "4")
    with pytest.raises(SettingsError) as caught:
        load(WatcherSettings)
    assert len(caught.value.problems) == 2
    assert "very-secret" not in str(caught.value)


# -- odd answers --------------------------------------------------------------------------------------------------


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """Serve one body for every query."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        reply(handler, body)

    with serving(answer) as fake:
        yield fake.url


def influxql(*series: object) -> bytes:
    """Return a response of 1.x."""
    return json.dumps({"results": [{"statement_id": 0, "series": list(series)}]}).encode()


GOOD = {"name": "mem", "tags": {"host": "a"}, "columns": ["time", "AVG", "STD", "COUNT"], "values": [[0, 40, 0, 4]]}


@pytest.mark.parametrize(
    "odd",
    [
        {"tags": {"host": "b"}},
        {"columns": ["AVG"], "values": [[1, 2]], "tags": {"host": "b"}},
        {"columns": 7, "values": [[1]], "tags": {"host": "b"}},
        {"columns": ["AVG"], "values": {"0": 1}, "tags": {"host": "b"}},
        {"columns": ["AVG"], "values": [[1]], "tags": "host"},
        None,
        [],
        7,
    ],
)
def test_malformed_series_are_an_error(odd):
    """A malformed series is a ProviderAnswerError."""
    with answering(influxql(GOOD, odd)) as url, pytest.raises(ProviderAnswerError, match="shape"):
        fetch(url, version="1")


@pytest.mark.parametrize("tags", [{"host": 7}, {"host": None}, {"host": ""}, {}, None])
def test_invalid_host_tag_is_a_finding(tags):
    """A host tag that is missing or not text only affects its series."""
    with answering(influxql(GOOD, {**GOOD, "tags": tags})) as url:
        fetched = fetch(url, version="1")
    assert set(fetched.nodes) == {"a"}
    assert {each.kind for each in fetched.findings} == {"unmatched_node"}


@pytest.mark.parametrize(
    ("row", "published"),
    [
        ([0, None, None, 0], set()),
        ([0, None, None, None], set()),
        ([0, "40", True, 4], set()),
        ([0, 40, None, 4], {"AVG"}),
        ([0, 40, 1, 1], {"AVG", "STD"}),
        ([0, 40, 1, -3], set()),
        ([0, 40, 1, 1e300], set()),
        ([], set()),
    ],
)
def test_invalid_values_do_not_affect_other_nodes(row, published):
    """null, text, booleans and impossible counts are not values; the other nodes are served."""
    odd = {**GOOD, "tags": {"host": "b"}, "values": [row] if row else []}
    if not row:
        odd["columns"] = []
    with answering(influxql(GOOD, odd)) as url:
        fetched = fetch(url, version="1")
    assert {metric.operator for metric in fetched.nodes["a"].metrics} == {"AVG", "STD"}
    found = fetched.nodes.get("b", NodeMetrics(()))
    assert {metric.operator for metric in found.metrics} == published


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_influxql, b'{"results": 7}'),
        (read_influxql, b'{"results": [7]}'),
        (read_influxql, b'{"results": [{"series": 7}]}'),
        (read_influxql, b'{"error": "timeout"}'),
        (read_influxql, b'{"results": [{"error": null}]}'),
        (read_influxql, b"json: unsupported value: NaN"),
        (read_influxql, b'{"results": ['),
        (read_flux, b"<html>\n<body>,\n"),
        (read_flux, b"a,b\r\n1,2\r\n"),
        (read_flux, b",result,table,host\r\n,AVG,0,a\r\n"),
        (read_flux, b"\x00\r\n"),
        (read_flux, b',result,table,_value,host\r\n,AVG,0,1,"' + b"a" * 200_000 + b'"\r\n'),
        (read_flux, b"\xff\xfe"),
        (read_flux, b"error,reference\r\nfailed,7\r\n"),
    ],
)
def test_invalid_responses_are_errors(read: Callable[[bytes], object], body: bytes):
    """Every body that the API does not document is a ProviderAnswerError with a message."""
    with pytest.raises(ProviderAnswerError) as caught:
        read(body)
    assert str(caught.value)


def test_annotated_csv():
    """Results, tables, schemas, defaults, quotes, infinities and empty values are read as documented."""
    body = (
        "#datatype,string,long,string,double\r\n#group,false,false,true,false\r\n#default,AVG,,,7\r\n"
        ',result,table,host,_value\r\n,,0,a,1.5\r\n,,1,"b,""c""",+Inf\r\n,,2,d,\r\n\r\n'
        "#datatype,string,long,string,string,double\r\n#group,false,false,true,true,false\r\n#default,AVG,,,,\r\n"
        ",result,table,host,pool,_value\r\n,,3,e,x,NaN\r\n,,4,f,,oops\r\n\r\n"
        "#datatype,string,long,string,long\r\n#group,false,false,true,false\r\n#default,COUNT,,,\r\n"
        ",result,table,host,_value\r\n,,0,a,3\r\n\r\n"
    )
    found = [(dict(tags), columns) for tags, columns in read_flux(body.encode()).series]
    assert found[:3] == [
        ({"host": "a"}, {"AVG": 1.5, "COUNT": 3}),
        ({"host": 'b,"c"'}, {"AVG": float("inf")}),
        ({"host": "d"}, {"AVG": 7}),
    ]
    assert found[3][0] == {"host": "e", "pool": "x"}
    assert np.isnan(found[3][1]["AVG"])
    assert len(found) == 4
    assert read_flux(b"\r\n").series == []
