"""The use of containers from a real Prometheus with cAdvisor's series."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.servers import reply, run_prometheus, serving
from support.waiting import LIMIT_SECONDS

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import PodUseProvider
from watcher.providers.prometheus import PrometheusProvider
from watcher.providers.prometheus.container_labels import PLAIN_LABELS
from watcher.providers.prometheus.pod_use import Shard, shards
from watcher.settings import ProviderSettings, Settings
from watcher.windows.container_use import ContainerUse

pytestmark = pytest.mark.usefixtures("closed_sessions")

MEBI = 2**20
Series = tuple[dict[str, str], Callable[[int], float], Callable[[int], float]]
"""Labels, and the CPU counter in seconds and the working set at some seconds before the end."""


def container(pod: str, name: str = "app", namespace: str = "shop", **labels: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "container": name, "image": "i", "id": f"/{pod}/{name}",
            "job": "kubelet", **labels}  # fmt: skip


def steady(cores: float, memory: float = MEBI) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return a counter that is large at the beginning, and a constant working set."""
    return lambda before: 1e6 - cores * before, lambda before: memory


def lines(
    end: int, series: Sequence[tuple[dict[str, str], range, tuple[Callable[[int], float], ...]]]
) -> Iterator[str]:
    """Yield the series as OpenMetrics text, each with a sample at some seconds before the end."""
    for metric, type_, part in (
        ("container_cpu_usage_seconds_total", "counter", 0), ("container_memory_working_set_bytes", "gauge", 1)
    ):  # fmt: skip
        yield f"# TYPE {metric.removesuffix('_total')} {type_}\n"
        for labels, times, values in series:
            text = ",".join(f'{key}="{value}"' for key, value in labels.items())
            for before in times:
                yield f"{metric}{{{text}}} {values[part](before)!r} {end - before}\n"


OLD = range(1500, -1, -30)
"""Scraped every 30 seconds for 25 minutes, the last time at the end of the window."""


def provider_at(url: str, **options: object) -> PrometheusProvider:
    return PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url), **options))


def read(provider: PodUseProvider, end: int, seconds: int = 300) -> ContainerUse:
    return provider.pod_use(Window("5m", end - seconds, end), Deadline.after(30))


def strain_lines(end: int, rates: Sequence[tuple[str, str, float]]) -> Iterator[str]:
    """Yield counters as OpenMetrics text: metric, pod, and growth in a second."""
    for metric in dict.fromkeys(metric for metric, *_ in rates):
        yield f"# TYPE {metric.removesuffix('_total')} counter\n"
        for _, name, rate in (each for each in rates if each[0] == metric):
            labels = ",".join(f'{key}="{value}"' for key, value in container(name).items())
            for before in OLD:
                yield f"{metric}{{{labels}}} {1e6 - rate * before!r} {end - before}\n"


def rows(use: ContainerUse) -> dict[tuple[str, str], tuple[float, float]]:
    """Return cores and bytes by pod and container, each container once."""
    keys = list(zip(use.namespaces, use.pods, use.containers, strict=True))
    assert len(keys) == len(set(keys)) == len(use)
    values = zip(use.cpu_cores.tolist(), use.memory_bytes.tolist(), strict=True)
    return {key[1:]: value for key, value in zip(keys, values, strict=True)}


@pytest.mark.server
def test_each_container_counts_once(tmp_path: Path) -> None:
    """Two kubelet jobs, pause containers, pods' sums and restarts do not change a container's use."""
    end = int(time.time()) - 5
    web, restarted = container("web-1"), container("web-2")
    series = [
        (web, OLD, steady(0.5, 100 * MEBI)),
        ({**web, "job": "cadvisor"}, OLD, steady(0.5, 100 * MEBI)),
        (container("web-1", "sidecar"), OLD, steady(0.25, 50 * MEBI)),
        (container("web-1", "POD"), OLD, steady(9, 9 * MEBI)),
        ({**web, "container": "", "image": ""}, OLD, steady(0.75, 150 * MEBI)),
        ({"namespace": "shop", "pod": "web-1", "id": "/slice"}, OLD, steady(0.75, 150 * MEBI)),
        ({"id": "/"}, OLD, steady(50, 9 * MEBI)),
        ({**restarted, "id": "/first"}, range(1500, 400, -30), steady(4, 400 * MEBI)),
        ({**restarted, "id": "/second"}, range(390, -1, -30), steady(2, 200 * MEBI)),
    ]  # fmt: skip
    with run_prometheus(tmp_path, lines(end, series)) as url:
        use = read(provider_at(url), end)
    assert rows(use) == {
        ("web-1", "app"): (pytest.approx(0.5), 100 * MEBI),
        ("web-1", "sidecar"): (pytest.approx(0.25), 50 * MEBI),
        ("web-2", "app"): (pytest.approx(2.0), 200 * MEBI),
    }
    assert (use.timestamp, use.window_seconds, use.findings) == (end, 300.0, ())


@pytest.mark.server
def test_young_pods_have_their_use_since_they_run(tmp_path: Path) -> None:
    """A pod with one sample is unknown, and one that ran for a part of the window has the mean of that part."""
    end = int(time.time()) - 5
    series = [
        (container("old-1"), OLD, steady(0.5)),
        (container("one-sample"), range(0, -1, -30), steady(1)),
        (container("two-samples"), range(30, -1, -30), steady(1.5)),
        (container("half"), range(150, -1, -30), steady(1)),
        (container("gone"), range(1500, 700, -30), steady(1)),
    ]
    with run_prometheus(tmp_path, lines(end, series)) as url:
        use = read(provider_at(url), end)
    assert rows(use) == {
        ("old-1", "app"): (pytest.approx(0.5), MEBI),
        ("two-samples", "app"): (pytest.approx(1.5), MEBI),
        ("half", "app"): (pytest.approx(1.0), MEBI),
    }


@pytest.mark.server
def test_memory_is_the_highest_and_cpu_survives_a_reset(tmp_path: Path) -> None:
    """The working set is the highest of the window; a counter that was reset gives a mean that is not negative."""
    end = int(time.time()) - 5
    peak = (lambda before: 1e6 - before, lambda before: (300 if before == 120 else 100) * MEBI)
    reset = (lambda before: float(150 - before if before <= 150 else 5000 - before), lambda before: MEBI)
    with run_prometheus(
        tmp_path,
        lines(end, [(container("peak"), OLD, peak), (container("reset"), OLD, reset),
                    (container("young"), range(240, -1, -30), reset)]),
    ) as url:  # fmt: skip
        values = rows(read(provider_at(url), end))
    assert values["peak", "app"] == (pytest.approx(1.0), 300 * MEBI)
    assert values["reset", "app"][0] == pytest.approx(0.9, abs=0.11)  # up to a scrape is lost at the reset
    assert math.isnan(values["young", "app"][0])  # no slope over a reset


@pytest.mark.server
def test_impossible_values_are_dropped_with_a_finding(tmp_path: Path) -> None:
    """Negative, huge and infinite values and NaN are unknown; the other containers keep theirs."""
    end = int(time.time()) - 5
    series = [(container("good"), OLD, steady(0.5))]
    for number, memory in enumerate((float("nan"), -5.0, 1e30, float("inf"))):
        series.append((container(f"bad-{number}"), OLD, steady(1e6 if number == 3 else 0.5, memory)))
    with run_prometheus(tmp_path, lines(end, series)) as url:
        use = read(provider_at(url), end)
    values = rows(use)
    assert values["good", "app"] == (pytest.approx(0.5), MEBI)
    assert all(math.isnan(memory) for (pod, _), (_, memory) in values.items() if pod != "good")
    messages = sorted(finding.message for finding in use.findings)
    assert [message.split(" are ")[0] for message in messages] == [
        "1 values of the CPU of containers", "4 values of the memory of containers"
    ]  # fmt: skip
    assert {finding.action for finding in use.findings} == {"dropped"}


@pytest.mark.server
def test_the_window_has_at_least_four_scrapes(tmp_path: Path) -> None:
    """With a scrape every two minutes CPU is averaged over eight minutes instead of five."""
    end = int(time.time()) - 5
    with run_prometheus(tmp_path, lines(end, [(container("web-1"), range(2400, -1, -120), steady(0.5))])) as url:
        use = read(provider_at(url), end)
    assert use.window_seconds == 480
    (finding,) = use.findings
    assert "10 scrapes of 120 s" in finding.message
    assert "set workloads.interval_seconds to 1200" in finding.message
    assert rows(use) == {("web-1", "app"): (pytest.approx(0.5), MEBI)}


@pytest.mark.server
def test_a_large_namespace_is_read_within_the_servers_limit(tmp_path: Path) -> None:
    """A server that refuses queries with many samples is asked for smaller shards, until it answers with all pods."""
    end = int(time.time()) - 5
    endings = "bcdfghjklmnpqrstvwxz2456789"
    pods = [f"web-{number}{letter}" for number in range(20) for letter in endings]
    series = [(container(pod), range(570, -1, -30), steady(0.5)) for pod in pods]
    series += [(container("p", namespace=f"small-{number}"), OLD, steady(1)) for number in range(30)]
    with run_prometheus(tmp_path, lines(end, series), "--query.max-samples=2500") as url:
        use = read(provider_at(url), end)
    assert use.findings == ()
    assert rows(use).keys() == {("p", "app"), *((pod, "app") for pod in pods)}
    assert len(use) == len(pods) + 30


def test_shards_have_at_most_so_many_series() -> None:
    """Every namespace is in exactly one shard or, if it is large, divided by all letters that a name may end with."""
    counts = {f"ns-{number}": number for number in range(1, 60)} | {"large": 1000}
    divided = shards({PLAIN_LABELS: counts}, 100)
    whole = [shard for shard in divided if not shard.endings]
    assert sorted(name for shard in whole for name in shard.namespaces) == sorted(counts.keys() - {"large"})
    assert all(sum(counts[name] for name in shard.namespaces) <= 100 for shard in whole)
    parts = [shard.endings for shard in divided if shard.endings]
    assert len(parts) == 10
    assert sorted("".join(parts)) == sorted("0123456789abcdefghijklmnopqrstuvwxyz")
    assert Shard(("a", "b"), "").halves() == (Shard(("a",)), Shard(("b",)))
    assert Shard(("a",), "x").halves() == ()


@pytest.mark.server
def test_a_prometheus_without_cadvisor_names_the_series(tmp_path: Path) -> None:
    """Without cAdvisor's series the error names the series, the matchers and the setting."""
    with run_prometheus(tmp_path, ["# TYPE up gauge\n", f"up 1 {int(time.time()) - 30}\n"]) as url:
        with pytest.raises(ProviderAnswerError, match=r"container_cpu_usage_seconds_total\{.*workloads.enabled"):
            read(provider_at(url), int(time.time()))


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data": {"result": [7]}}', b'{"data": {"result": [{"metric": {"namespace": "a"}}]}}']
)
def test_unexpected_answers_are_errors(body: bytes) -> None:
    """An answer of another form is a ProviderError."""
    with serving(lambda handler: reply(handler, body, 200)) as fake, pytest.raises(ProviderError):
        read(provider_at(fake.url), int(time.time()))


def test_a_slow_server_ends_at_the_deadline() -> None:
    """A server that does not answer costs no more than the deadline, whose setting the error names."""
    released = threading.Event()
    with serving(lambda handler: released.wait(2 * LIMIT_SECONDS) and None) as fake:
        began = time.monotonic()
        with pytest.raises(ProviderUnavailable, match=r"watch\.fetch_timeout_seconds"):
            provider_at(fake.url).pod_use(Window("5m", 0, 300), Deadline.after(0.3))
        assert time.monotonic() - began < LIMIT_SECONDS
        released.set()


PERIODS, THROTTLED = "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"
WAITING = "container_pressure_cpu_waiting_seconds_total"


@pytest.mark.server
def test_throttling_and_waiting_are_shares(tmp_path: Path) -> None:
    """A container has the share of throttled periods and of waiting; one without a limit, or with little, has 0."""
    end = int(time.time()) - 5
    names = ("web-1", "web-2", "web-3")
    rates = [(PERIODS, "web-1", 10.0), (PERIODS, "web-2", 10.0), (THROTTLED, "web-1", 2.5), (THROTTLED, "web-2", 0.05),
             (WAITING, "web-2", 0.4)]  # fmt: skip
    text = [*lines(end, [(container(name), OLD, steady(0.5)) for name in names]), *strain_lines(end, rates)]
    with run_prometheus(tmp_path, iter(text)) as url:
        use = read(provider_at(url), end)
    strain = dict(zip(use.pods, use.strain.T.tolist(), strict=True))
    assert strain == {
        "web-1": [pytest.approx(0.25), 0.0], "web-2": [0.0, pytest.approx(0.4)], "web-3": [0.0, 0.0],
    }  # fmt: skip
    assert use.unchecked == ()


@pytest.mark.server
def test_missing_series_of_strain_are_named(tmp_path: Path) -> None:
    """Without the series of throttling and pressure, strain is unknown, and the reasons name the series."""
    end = int(time.time()) - 5
    with run_prometheus(tmp_path, lines(end, [(container("web-1"), OLD, steady(0.5))])) as url:
        use = read(provider_at(url), end)
    assert use.strain is None
    assert use.unchecked == (
        f"throttling of CPU: Prometheus has no series {PERIODS}",
        f"waiting for CPU (PSI): Prometheus has no series {WAITING}",
    )
