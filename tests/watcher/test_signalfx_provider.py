"""Tests of the provider SignalFx, with a fake of its two endpoints."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_signalfx import FakeSignalFx, Series, running
from support.servers import reply, serving

from runtime import duration
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.findings import Kind
from watcher.model import Operator, Window
from watcher.providers.base import Fetched
from watcher.providers.signalfx.provider import SignalFxProvider
from watcher.settings import ProviderSettings, Settings, SignalFxSettings, WatchSettings

METADATA, POINTS = "/v2/metrictimeseries", "/v1/timeserieswindow"
CPU, MEMORY = 'sf_metric:"cpu.utilization"', 'sf_metric:"memory.utilization"'
NOW = int(time.time())


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let samples end now, not at the import of this module."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", int(time.time()))


def host(name: str, cpu: float = 20, minutes: int = 20, **dimensions: str) -> list[Series]:
    """Return both series of a host, one point a minute: CPU around a value, and memory at 50 percent."""
    times = NOW - 60 * np.arange(minutes, dtype=float)[::-1]
    labels = {"host": name, "cluster": "c1", **dimensions}
    wave = cpu + np.sin(np.arange(minutes))
    return [
        Series(f"{name}-cpu", "cpu.utilization", labels, times, wave),
        Series(f"{name}-memory", "memory.utilization", labels, times, np.full(minutes, 50.0)),
    ]


@contextmanager
def provider_over(fake: FakeSignalFx, operators: str = "AVG,STD", **own: Any) -> Iterator[SignalFxProvider]:
    """Run the fake, and a provider with options of the section signalfx."""
    with running(fake) as url:
        access = ProviderSettings(name="SignalFx", address=url, token="right-token")
        watch = WatchSettings(operators=operators)
        provider = SignalFxProvider(
            Settings(provider=access, signalfx=SignalFxSettings().model_copy(update=own), watch=watch)
        )
        with contextlib.closing(provider):
            yield provider


def window(name: str = "15m", end: int | None = None) -> Window:
    end = NOW if end is None else end
    return Window(name, end - duration.seconds(name), end)


def fetch(provider: SignalFxProvider, name: str = "15m") -> Fetched:
    return provider.fetch(window(name), Deadline.after(20))


def kinds(fetched: Fetched) -> list[str]:
    return [finding.kind for finding in fetched.findings]


def averages(fetched: Fetched, metric: str = CPU) -> dict[str, float]:
    return {
        node: each.value
        for node, metrics in fetched.nodes.items()
        for each in metrics.metrics
        if (each.name, each.operator) == (metric, "AVG")
    }


def test_token_is_required() -> None:
    """Without a token the provider is not built; the error names both settings and their variables."""
    with pytest.raises(SettingsError) as caught:
        SignalFxProvider(Settings(provider=ProviderSettings(name="SignalFx")))
    for word in ("provider.token", "METRICS_PROVIDER_TOKEN", "TRIMARAN_PROVIDER__TOKEN_FILE"):
        assert word in str(caught.value)


def test_names_operators_and_step() -> None:
    """CPU and Memory have upstream's names, all configured operators, and the step."""
    with provider_over(FakeSignalFx(host("node-1")), operators="AVG,STD,P95,MAX") as provider:
        fetched = fetch(provider)
    (node,) = fetched.nodes.values()
    assert {(m.name, m.type, m.operator, m.rollup) for m in node.metrics} == {
        (name, type_, operator, "15m")
        for name, type_ in ((CPU, "CPU"), (MEMORY, "Memory"))
        for operator in (Operator.AVG, Operator.STD, Operator.P95, Operator.MAX)
    }
    assert node.tags == {"step": "1m", "smoothing": "1m"}
    assert (node.metadata, fetched.findings) == ({}, ())


@pytest.mark.parametrize(
    ("name", "resolution"), [("2m", 1000), ("5m", 60_000), ("15m", 60_000), ("6h", 300_000), ("2d", 3_600_000)]
)
def test_resolution_depends_on_the_window(name: str, resolution: int) -> None:
    """Each window uses one of SignalFx' four resolutions; AVG and STD are numpy's over the steps' averages."""
    held = host("node-1", minutes=3000)
    held[0].values = np.random.default_rng(resolution).uniform(0, 100, 3000)
    fake = FakeSignalFx(held)
    with provider_over(fake) as provider:
        fetched = fetch(provider, name)
        fake.requests.clear()
        assert fetch(provider, name) == fetched
    assert {query["resolution"] for path, query in fake.requests if path == POINTS} == {str(resolution)}
    steps = held[0].times * 1000 // resolution * resolution / 1000
    inside = (steps > NOW - duration.seconds(name)) & (steps <= NOW)
    means = np.array([held[0].values[steps == step].mean() for step in np.unique(steps[inside])])
    found = {each.operator: each.value for each in fetched.nodes["node-1"].metrics if each.name == CPU}
    assert found == pytest.approx({"AVG": means.mean(), "STD": means.std()}, rel=1e-9)
    assert Kind.LOW_COVERAGE not in kinds(fetched)


SAMPLED = np.arange(360, dtype=float)[::-1] * 10


@pytest.mark.parametrize("bad", [-30.0, 190.0, 1e9])
@pytest.mark.parametrize("name", ["4m", "5m", "15m", "1h"])
def test_samples_that_cannot_be_right_are_left_out(name: str, bad: float) -> None:
    """Samples that the averages of steps hide are left out and counted; only their hosts are asked again."""
    truth = 30 + 5 * np.sin(SAMPLED / 200)
    wrong = np.arange(len(SAMPLED)) % 6 == 1
    held = []
    for node, levels in (("good", truth), ("bad", np.where(wrong, bad, truth))):
        series = host(node)
        series[0].times, series[0].values = NOW - SAMPLED, levels
        held += series
    fake = FakeSignalFx(held)
    with provider_over(fake) as provider:
        found = [fetch(provider, name), fetch(provider, name)]
    inside = duration.seconds(name) > SAMPLED
    for fetched in found:
        assert averages(fetched)["bad"] == pytest.approx(truth[inside & ~wrong].mean(), abs=1.5)
        assert averages(fetched)["good"] == pytest.approx(truth[inside].mean(), abs=1.5)
        (finding,) = fetched.findings
        assert (finding.kind, finding.node, finding.action) == (Kind.OUT_OF_RANGE, "bad", "dropped")
        assert finding.message.startswith(
            f"{(inside & wrong).sum()} of {inside.sum()} samples are below 0 or above 150"
        )
    again = [query for _, query in fake.requests if "(host" in query["query"]]
    assert all('AND (host:"bad")' in query["query"] and query["resolution"] == "1000" for query in again)
    assert len(again) == (0 if name == "4m" else 2)


def test_samples_that_cannot_be_read_again_are_a_finding() -> None:
    """If the request for samples fails, the averages are served, with a finding that says why."""
    series = host("node-1")
    series[0].times, series[0].values = NOW - SAMPLED, np.where(np.arange(len(SAMPLED)) % 6 == 1, -30.0, 30.0)
    fake = FakeSignalFx(series)
    fake.fail["(host"] = 500
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert averages(fetched)["node-1"] == pytest.approx(20, abs=1)
    assert kinds(fetched) == [Kind.QUERY_FAILED]


def test_point_at_the_windows_start_is_excluded() -> None:
    """With points at whole minutes, as at the service, a window of 15 minutes has 15 points."""
    end = NOW // 60 * 60
    held = host("node-1")
    held[0].times = end - 60 * np.arange(20, dtype=float)[::-1]
    with provider_over(FakeSignalFx(held)) as provider:
        fetched = provider.fetch(window(end=end), Deadline.after(20))
    assert averages(fetched)["node-1"] == pytest.approx(held[0].values[-15:].mean(), rel=1e-12)


def test_filter_by_cluster_and_suffix() -> None:
    """Hosts of other clusters and with other suffixes are excluded; the suffix is removed from the name."""
    held = [*host("node-1.dev"), *host("node-2.dev", cluster="a&b #1"), *host("node-3", cluster="a&b #1")]
    fake = FakeSignalFx(held)
    with provider_over(fake, cluster_name="a&b #1", host_name_suffix=".dev") as provider:
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"node-2"}
    assert {query["query"] for _, query in fake.requests} == {
        f'host:*.dev AND cluster:"a&b #1" AND {metric}' for metric in (CPU, MEMORY)
    }


def test_names_are_not_shortened() -> None:
    """Two hosts that differ after the first dot are two nodes; only a port is removed."""
    with provider_over(FakeSignalFx([*host("a.x.com"), *host("a.y.com"), *host("b:9100")])) as provider:
        assert set(fetch(provider).nodes) == {"a.x.com", "a.y.com", "b"}


def test_other_dimensions_for_node_and_cluster() -> None:
    """The settings can name OpenTelemetry's dimensions."""
    held = host("i-1", **{"k8s.node.name": "node-1", "k8s.cluster.name": "prod"}) + host("i-2")
    own = {"node_dimension": "k8s.node.name", "cluster_dimension": "k8s.cluster.name", "cluster_name": "prod"}
    with provider_over(FakeSignalFx(held), **own) as provider:
        assert set(fetch(provider).nodes) == {"node-1"}


def test_metadata_are_read_once() -> None:
    """Three concurrent windows, fetched twice, read each metric's metadata once."""
    fake = FakeSignalFx(host("node-1"))
    with provider_over(fake) as provider:
        for _ in range(2):
            threads = [threading.Thread(target=fetch, args=(provider, name)) for name in ("5m", "10m", "15m")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    looks = 6  # at the samples of each window, once an hour
    assert (fake.count(METADATA), fake.count(POINTS)) == (2, 12 + looks)


def test_metadata_expire() -> None:
    """After metadata_seconds, here 0, the metadata are read again."""
    fake = FakeSignalFx(host("node-1"))
    with provider_over(fake, metadata_seconds=0) as provider:
        fetch(provider)
        fetch(provider)
    assert fake.count(METADATA) == 4


def test_new_series_is_served_at_once() -> None:
    """A series that is not in the cached metadata causes another read in the same fetch."""
    fake = FakeSignalFx(host("node-1"))
    with provider_over(fake) as provider:
        fetch(provider)
        fake.series += host("node-2")
        fetched = fetch(provider)
        assert set(fetched.nodes) == {"node-1", "node-2"}
        assert fetched.findings == ()
        fake.series = host("node-2")
        assert set(fetch(provider).nodes) == {"node-2"}
    assert fake.count(METADATA) == 4


def test_series_without_metadata_are_reported() -> None:
    """Series without metadata are one finding per metric, and do not cause a read in every fetch."""
    fake = FakeSignalFx(host("node-1") + host("node-2"))
    results = [{"id": f"node-1-{part}", "dimensions": {"host": "node-1"}, "metric": part} for part in ("cpu", "memory")]
    fake.body[METADATA] = {"count": 2, "results": results}
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        before = fake.count(METADATA)
        assert kinds(fetch(provider)) == kinds(fetched) == [Kind.UNMATCHED_NODE, Kind.UNMATCHED_NODE]
    assert set(fetched.nodes) == {"node-1"}
    assert "node-2-cpu" in fetched.findings[0].message
    assert "signalfx.node_dimension" in fetched.findings[0].message
    assert fake.count(METADATA) == before


def test_old_metadata_are_used_after_a_failure() -> None:
    """If a later read fails, the cached metadata are used, with a finding."""
    fake = FakeSignalFx(host("node-1"))
    with provider_over(fake, metadata_seconds=0) as provider:
        fetch(provider)
        fake.fail[METADATA] = 500
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"node-1"}
    assert kinds(fetched) == [Kind.QUERY_FAILED, Kind.QUERY_FAILED]
    assert "metadata: SignalFx at" in fetched.findings[0].message


def test_failed_metric_does_not_affect_the_other() -> None:
    """If memory fails, CPU is served and the finding names the metric."""
    fake = FakeSignalFx(host("node-1"), fail={f"{POINTS}?query=host:* AND {MEMORY}": 503})
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert {metric.name for metric in fetched.nodes["node-1"].metrics} == {CPU}
    assert [(finding.kind, finding.metric) for finding in fetched.findings] == [(Kind.QUERY_FAILED, MEMORY)]


def test_all_pages_of_metadata_are_read() -> None:
    """If the service returns fewer results than the limit, the other pages are requested."""
    fake = FakeSignalFx([each for number in range(8) for each in host(f"node-{number}")], page=3)
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert len(fetched.nodes) == 8
    assert fetched.findings == ()
    offsets = [query["offset"] for path, query in fake.requests if path == METADATA and "cpu" in query["query"]]
    assert offsets == ["0", "3", "6"]


def test_too_many_series() -> None:
    """Beyond 10,000 series the returned series are served, with a finding that names the setting."""
    held = [each for number in range(10_001) for each in host(f"node-{number}", minutes=2)[:1]]
    with provider_over(FakeSignalFx(held)) as provider:
        fetched = fetch(provider, "5m")
    assert len(fetched.nodes) == 10_000
    partial = [finding for finding in fetched.findings if finding.kind is Kind.PARTIAL_ANSWER]
    assert ["signalfx.cluster_name" in finding.message for finding in partial] == [True]


def test_host_registered_again_is_its_newest_series() -> None:
    """Of two series with parts of the window, only the one that goes on has the node's load, and its coverage."""
    old, new = host("node-1", cpu=90)[0], host("node-1", cpu=10)[0]
    new.id, old.times, old.values = "node-1-again", old.times[:12], old.values[:12]
    new.times, new.values = new.times[12:], new.values[12:]
    with provider_over(FakeSignalFx([old, new])) as provider:
        fetched = fetch(provider)
    assert averages(fetched)["node-1"] == pytest.approx(new.values.mean(), rel=1e-12)
    assert fetched.findings == ()
    assert fetched.nodes["node-1"].metadata["coverage"] == pytest.approx(8 / 15, abs=0.1)


@pytest.mark.parametrize(("cool", "suspect"), [(10, True), (91, False)])
def test_hosts_of_two_clusters_are_no_node(cool: float, suspect: bool) -> None:
    """Machines of one name with different loads are a suspect node with the setting; an hour later it is not served."""
    fake = FakeSignalFx([*host("node-1", cpu=90), *host("node-2"), *host("node-3")])
    other = host("node-1", cpu=cool, cluster="c2")[0]
    other.id = "other"
    fake.series.append(other)
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        names = provider._memory._names["15m"]
        provider._memory._names["15m"] = {node: replace(name, since=0) for node, name in names.items()}
        later = fetch(provider)
    (finding,) = fetched.findings
    assert (finding.kind, finding.node) == (Kind.DUPLICATE, "node-1")
    assert finding.action == ("marked" if suspect else "merged")
    assert "signalfx.cluster_name" in finding.message
    assert fetched.nodes["node-1"].metadata == ({"suspect": "duplicate"} if suspect else {})
    assert ("node-1" in later.nodes) != suspect


@pytest.mark.parametrize(
    "points",
    [None, 7, "text", {}, [], [None], [[]], [[NOW * 1000]], [["x", "y"]], [[NOW * 1000, None]], [[None, 5]],
     [[NOW * 1000, "NaN"]], [[NOW * 1000, {}]], [[10**400, 5]], [[NOW * 1000, 10**400]], [[NOW * 1000, 5, 6]]],
)  # fmt: skip
def test_invalid_points_do_not_affect_other_nodes(points: Any) -> None:
    """For invalid points, the other node is served and the node of the series is left out."""
    good = [[(NOW - 60 * step) * 1000, 20 + step] for step in range(10)]
    fake = FakeSignalFx(host("good") + host("odd"))
    fake.body[POINTS] = {"data": {"good-cpu": good, "odd-cpu": points}, "errors": []}
    with provider_over(fake) as provider:
        assert averages(fetch(provider)) == {"good": pytest.approx(24.5)}


@pytest.mark.parametrize(
    "result",
    [None, 7, "x", [], {}, {"id": None}, {"id": 5, "dimensions": {"host": "odd"}}, {"id": "odd-cpu"},
     {"id": "odd-cpu", "dimensions": None}, {"id": "odd-cpu", "dimensions": []}, {"id": "odd-cpu", "dimensions": {}},
     {"id": "odd-cpu", "dimensions": {"host": None}}, {"id": "odd-cpu", "dimensions": {"host": ["odd"]}},
     {"id": "odd-cpu", "dimensions": {"host": ""}}],
)  # fmt: skip
def test_invalid_metadata_do_not_affect_other_nodes(result: Any) -> None:
    """For invalid metadata, the other node is served and the series is reported."""
    fake = FakeSignalFx(host("good")[:1] + host("odd")[:1])
    fake.body[METADATA] = {"results": [result, {"id": "good-cpu", "dimensions": {"host": "good"}}], "count": "two"}
    with provider_over(fake) as provider:
        fetched = fetch(provider)
    assert set(fetched.nodes) == {"good"}
    assert kinds(fetched) == [Kind.UNMATCHED_NODE]


def test_errors_in_the_response() -> None:
    """Errors in addition to points are findings; errors without points fail the fetch."""
    fake = FakeSignalFx(host("node-1"), errors=["shard 7 is slow"])
    with provider_over(fake) as provider:
        fetched = fetch(provider)
        assert set(kinds(fetched)) == {Kind.PARTIAL_ANSWER}
        assert "shard 7 is slow" in fetched.findings[0].message
        fake.series = []
        with pytest.raises(ProviderAnswerError, match="shard 7"):
            fetch(provider)


@pytest.mark.parametrize(
    ("held", "own", "words"),
    [
        ([], {}, ["signalfx.cluster_name", "signalfx.host_name_suffix", "signalfx.node_dimension"]),
        (host("node-1"), {"cluster_name": "other"}, ['cluster:"other"', "signalfx.cluster_name"]),
        (host("node-1", minutes=1), {}, ["2 series", "no points", "agents"]),
    ],
)
def test_response_without_nodes(held: list[Series], own: dict[str, str], words: list[str]) -> None:
    """A response without nodes is an error that names the query and its settings."""
    with provider_over(FakeSignalFx(held), **own) as provider:
        with pytest.raises(ProviderAnswerError) as caught:
            provider.fetch(window("5m", NOW + 3600 if len(words) == 3 and held else NOW), Deadline.after(20))
    for word in words:
        assert word in str(caught.value)


def test_points_without_metadata() -> None:
    """Points without any metadata are an error that names the dimension's setting."""
    fake = FakeSignalFx(host("node-1"), body={METADATA: {"results": [], "count": 0}})
    with provider_over(fake) as provider, pytest.raises(ProviderAnswerError, match=r"signalfx\.node_dimension"):
        fetch(provider)


def test_refused_token() -> None:
    """The error has the service's message without the token, and mentions the realm."""
    fake = FakeSignalFx(host("node-1"), token="another")
    with provider_over(fake) as provider:
        with pytest.raises(ProviderRefused) as caught:
            fetch(provider)
        steps = list(provider.check())
    assert "no such token" in str(caught.value)
    for text in (str(caught.value), steps[0].message):
        assert "right-token" not in text
        assert "<realm>" in text
    assert [(step.ok, step.setting) for step in steps] == [(False, "provider.token")]


def test_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    """A rotated token is used at once, also in the package's requests."""
    file = tmp_path / "token"
    file.write_text("old\n")
    fake = FakeSignalFx(host("node-1"), token="old")
    with running(fake) as url:
        access = ProviderSettings(name="SignalFx", address=url, token_file=file)
        provider = SignalFxProvider(
            Settings(provider=access, signalfx=SignalFxSettings().model_copy(update={"metadata_seconds": 0}))
        )
        fetch(provider)
        fake.token = "new"
        file.write_text("new\n")
        assert set(fetch(provider).nodes) == {"node-1"}
        provider.close()


def test_check_succeeds() -> None:
    """Metadata and points of both metrics are separate steps, which name hosts."""
    with provider_over(FakeSignalFx(host("node-1"))) as provider:
        steps = list(provider.check())
    assert [step.ok for step in steps] == [True] * 4
    assert "node-1" in steps[0].message


@pytest.mark.parametrize(
    ("held", "own", "setting", "word"),
    [
        ([], {}, "provider.address", "there are no series of cpu.utilization"),
        (host("x"), {"node_dimension": "k8s.node.name"}, "signalfx.node_dimension", "cluster, host"),
        (host("x"), {"cluster_name": "prod"}, "signalfx.cluster_name", "c1, not prod"),
        (host("x.dev"), {"host_name_suffix": ".prod"}, "signalfx.host_name_suffix", "x.dev"),
        (host("x", minutes=1)[:1], {}, "signalfx.cluster_name", "0 of 1 series"),
    ],
)
def test_check_names_the_setting(held: list[Series], own: dict[str, str], setting: str, word: str) -> None:
    """If a filter excludes all series, the step names the setting and the values without the filter."""
    if "0 of 1" in word:
        held[0].times = held[0].times - 7200
    with provider_over(FakeSignalFx(held), **own) as provider:
        failed = [step for step in provider.check() if not step.ok]
    assert failed[0].setting == setting
    assert word in failed[0].message


@pytest.mark.parametrize("ask", [lambda provider: list(provider.check()), fetch])
def test_redirect_to_another_host_has_no_token(ask: Callable[[SignalFxProvider], Any]) -> None:
    """The token is only sent to the address in the settings, also by the package."""
    with serving(lambda handler: reply(handler, {"results": []})) as elsewhere:
        target = elsewhere.url.replace("127.0.0.1", "localhost")
        with serving(lambda handler: reply(handler, "", 302, Location=f"{target}/login")) as here:
            access = ProviderSettings(name="SignalFx", address=here.url, token="right-token")
            provider = SignalFxProvider(Settings(provider=access))
            try:
                result = ask(provider)
            except ProviderError as error:
                result = error
            assert "provider.address" in str(result)
            provider.close()
        assert elsewhere.requests == []
