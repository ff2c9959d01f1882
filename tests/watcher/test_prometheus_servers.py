"""The same samples in each server with Prometheus' query API: means, doctor, and times of the newest samples."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.servers import PROMETHEUS_SERVERS, run_prometheus

from runtime.http.gather import Deadline
from watcher.doctor import examine
from watcher.model import Window
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings

pytestmark = [
    pytest.mark.server,
    pytest.mark.usefixtures("closed_sessions"),
    pytest.mark.parametrize("server", PROMETHEUS_SERVERS),
]

Floats = NDArray[np.float64]
_PAST = 40 * 60.0
_LAST = 5  # seconds from the last scrape to the end of the window


def _cpu(at: Floats) -> Floats:
    return 0.5 + 0.1 * np.sin(at / 170)


def _busy_seconds(at: Floats) -> Floats:
    return 0.5 * at - 0.1 * 170 * np.cos(at / 170)


def _memory(at: Floats) -> Floats:
    return 0.4 + 0.1 * np.sin(at / 300)


@dataclass(frozen=True)
class Scrapes:
    """Scrapes of a node; all times are seconds after the first one.

    Attributes:
        times: times of the scrapes, shape (scrapes,).
        booted: times at which the node's counters were 0, shape (scrapes,).
        up: returns whether the node was up at some times.
    """

    times: Floats
    booted: Floats
    up: Callable[[Floats], NDArray[np.bool_]] = lambda at: np.ones(at.shape, bool)


def _scrapes() -> dict[str, Scrapes]:
    random = np.random.default_rng(5)
    times = np.arange(0, _PAST + 1, 15)
    old = np.full_like(times, -1e5)
    kept = random.random(times.size) > 0.2
    gap = (times < _PAST - 500) | (times > _PAST - 320)
    crash, boot = _PAST - 400, _PAST - 340
    outage = (times < crash - 5) | (times > boot + 10)
    restarted = np.where(times < _PAST - 200, _PAST - 703, _PAST - 203)
    alive, young = times < _PAST - 150, times > _PAST - 180
    return {
        "steady": Scrapes(times, old),
        "jitter": Scrapes(times + random.uniform(-3, 3, times.size).round(3), old),
        "lost-scrapes": Scrapes(times[kept], old[kept]),
        "one-a-minute": Scrapes(times[::4], old[::4]),
        "gap": Scrapes(times[gap], old[gap]),
        "counters-restart": Scrapes(times, np.where(times < _PAST - 700, -1e5, restarted)),
        "reboots": Scrapes(
            times[outage], np.where(times < crash, -1e5, boot)[outage], lambda at: (at < crash) | (at > boot)
        ),
        "dies": Scrapes(times[alive], old[alive], lambda at: at < _PAST - 165),
        "new": Scrapes(times[young], np.full_like(times, _PAST - 185)[young], lambda at: at > _PAST - 185),
    }  # fmt: skip


def _lines(nodes: Mapping[str, Scrapes], end: float) -> Iterator[str]:
    def series(name: str, labels: str, scrapes: Scrapes, values: Floats) -> Iterator[str]:
        for at, value in zip(scrapes.times.tolist(), values.tolist(), strict=True):
            yield f"{name}{{{labels}}} {value!r} {end - _LAST - _PAST + at:.3f}\n"

    yield "# TYPE node_cpu_seconds counter\n"
    for node, scrapes in nodes.items():
        total = scrapes.times - scrapes.booted
        busy = _busy_seconds(scrapes.times) - _busy_seconds(scrapes.booted)
        for cpu in "01":
            for mode, values in (("user", busy), ("idle", total - busy)):
                labels = f'instance="{node}",cpu="{cpu}",mode="{mode}"'
                yield from series("node_cpu_seconds_total", labels, scrapes, values)
    for name in ("MemTotal", "MemAvailable"):
        yield f"# TYPE node_memory_{name}_bytes gauge\n"
        for node, scrapes in nodes.items():
            share = 1 - _memory(scrapes.times) if name == "MemAvailable" else np.ones_like(scrapes.times)
            yield from series(f"node_memory_{name}_bytes", f'instance="{node}"', scrapes, 16e9 * share)


def _true_means(scrapes: Scrapes, seconds: int) -> tuple[float, float]:
    """Return the mean CPU while the node was up, and the mean of the samples of memory, in percent."""
    end = _PAST + _LAST
    at = np.arange(end - seconds, end) + 0.5
    inside = scrapes.times[(scrapes.times > end - seconds) & (scrapes.times <= end)]
    return 100 * float(_cpu(at[scrapes.up(at)]).mean()), 100 * float(_memory(inside).mean())


def _provider(url: str) -> PrometheusProvider:
    return PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))


def test_means_are_those_of_the_window(
    tmp_path: Path, server: str, record_property: Callable[[str, object], None]
) -> None:
    """Means of windows are within half a point of numpy's, whatever scrapes and counters do; doctor accepts them."""
    end, nodes = int(time.time()) - 45, _scrapes()
    with run_prometheus(tmp_path, _lines(nodes, end), server=server) as url:
        provider = _provider(url)
        found = {seconds: provider.fetch(_window(seconds, end), Deadline.after(20)) for seconds in (900, 600, 300)}
        steps = list(examine(Settings(provider=ProviderSettings(name="Prometheus", address=url))))
    table = [f"{server}: CPU and memory, percent (numpy's)"]
    for seconds, fetched in found.items():
        assert fetched.findings == ()
        for node, scrapes in nodes.items():
            means = [metric.value for metric in fetched.nodes[node].metrics if metric.operator == "AVG"]
            expected = _true_means(scrapes, seconds)
            table.append(f"{seconds // 60:>2}m {node:16} " + "  ".join(
                f"{value:.2f} ({true:.2f})" for value, true in zip(means, expected, strict=True)
            ))  # fmt: skip
            # About one scrape interval at the ends of a window is unknown.
            assert means == pytest.approx(expected, abs=1.5 if node == "one-a-minute" else 0.5), table[-1]
    newest = found[900].newest
    assert newest["dies"] == end - _LAST - 165
    assert newest["steady"] == end - _LAST
    assert [step for step in steps if not step.ok] == []
    record_property("figures", "\n".join(table))


def test_a_window_that_ends_now_ends_now(tmp_path: Path, server: str) -> None:
    """The newest half minute counts: VictoriaMetrics would evaluate a query for the present half a minute earlier."""
    written = int(time.time())

    def lines() -> Iterator[str]:
        for name in ("instance:node_cpu_utilisation:rate1m", "instance:node_memory_utilisation:ratio"):
            yield f"# TYPE {name} gauge\n"
            for at in range(written - 1200, written + 120, 5):
                yield f'{name}{{instance="a"}} {0.5 + (at - written) / 2400!r} {at}\n'

    with run_prometheus(tmp_path, lines(), server=server) as url:
        provider, minute = _provider(url), int(time.time()) // 60 * 60
        for end in (minute + 1, minute + 15, minute + 29, minute + 59):
            metrics = provider.fetch(_window(300, end), Deadline.after(20)).nodes["a"].metrics
            cpu, memory = (metric.value for metric in metrics if metric.operator == "AVG")
            true = 50 + (end - 150 - written) / 24
            assert memory == pytest.approx(true, abs=0.2), end % 60
            assert cpu == pytest.approx(true + 30 / 24, abs=0.2), end % 60


def _window(seconds: int, end: int) -> Window:
    return Window(f"{seconds // 60}m", end - seconds, end)
