"""Fixtures: a clean environment, Prometheus with history, the watcher in its own process."""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from support import programs
from support.bench import Api
from support.servers import IN_CI, SERVER_TESTS, Fake, Service, run_prometheus, serving, two_nodes
from support.threads import begin_test

from runtime import masking
from runtime.http.session import BoundedSession

pytest_plugins = ["support.leak_guard"]

settings.register_profile(
    "trimaran", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50 if IN_CI else 20
)
settings.load_profile("trimaran")

NODES = 100
STEP_SECONDS = 15
BACK_SECONDS = 20 * 60
AHEAD_SECONDS = 2 * 3600  # so that windows stay full while the tests run, on a slow machine too


@dataclass(frozen=True)
class History:
    """A Prometheus server and the samples that it was filled with.

    Attributes:
        url: address of the server.
        times: Unix seconds of the samples.
        rules: recording rule to ratios, shape (nodes, times); empty if only raw series were written.
        cpu_ratios: constant CPU use of each node behind the raw series.
    """

    url: str
    times: np.ndarray
    rules: dict[str, np.ndarray]
    cpu_ratios: np.ndarray


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test if CI=true: CI installs everything that the tests need. Place all skips at their server."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and " is not installed: " in report.longrepr[2]:
        report.longrepr = (programs.__file__, 1, report.longrepr[2])  # the summary has one line for one place
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped, which CI=true does not allow: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a skipped module if CI=true."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome, report.longrepr = "failed", f"skipped, which CI=true does not allow: {report.longrepr}"
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of random order."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests of each, in random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell :func:`need_server` which tests have a mark; shuffle modules, and tests within them, if asked to."""
    if wrong := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"an address is part of a test's name, which differs by process: {wrong[0]}")
    os.environ.pop("PYTEST_ADDOPTS", None)  # it was read; a pytest that a test starts has none of these options
    if (seed := config.getoption("shuffle")) is not None:
        dice = Random(seed)
        of_module = {name: dice.random() for name in dict.fromkeys(item.nodeid.partition("::")[0] for item in items)}
        items.sort(key=lambda item: (of_module[item.nodeid.partition("::")[0]], dice.random()))
    marked = (item for item in items if any(map(item.get_closest_marker, ("server", "e2e", "nodes"))))
    SERVER_TESTS.update(item.nodeid for item in marked)


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Print the figures that tests recorded, in whichever process they ran."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(str(value))


def pytest_collection_finish() -> None:
    """Exclude the ten thousand collected tests from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kubernetes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the fake clusters' certificates, one set for all tests."""
    return tmp_path_factory.mktemp("kubernetes")


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove environment variables that the settings would read; the guard sees to it that no test leaves one."""
    from watcher.settings import UPSTREAM_VARIABLES

    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("TRIMARAN_") or name in UPSTREAM_VARIABLES or name == "KUBERNETES_SERVICE_HOST":
                patch.delenv(name)
        states = tmp_path_factory.mktemp("states")
        patch.setenv("XDG_STATE_HOME", str(states))
        _state_folders.append(states / str(number) for number in count())
        yield


#: Once the session has begun, an iterator of state folders; they are not created, because few tests write there.
_state_folders: list[Iterator[Path]] = []
_LOGGERS = (logging.getLogger(), logging.getLogger("watcher"))
_Process = tuple[list[tuple[int, list[logging.Handler]]], Any]
_PROCESS = pytest.StashKey[_Process]()


# Hooks and not fixtures: of thirteen thousand tests each would pay for three fixtures.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test an empty state folder, and forget the secrets of earlier tests, which may be ordinary words."""
    begin_test()
    for folders in _state_folders:
        os.environ["XDG_STATE_HOME"] = str(next(folders))
    masking.clear_secrets()
    handlers = [(each.level, list(each.handlers)) for each in _LOGGERS]
    item.stash[_PROCESS] = handlers, signal.getsignal(signal.SIGTERM)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Restore what a command in this process has configured: logging, SIGTERM, and the files of a kubeconfig."""
    try:
        yield
    finally:
        logging_before, handler = item.stash[_PROCESS]
        for logger, (level, handlers) in zip(_LOGGERS, logging_before, strict=True):
            if (logger.level, logger.handlers) != (level, handlers):
                logger.setLevel(level)
                logger.handlers[:] = handlers
        if signal.getsignal(signal.SIGTERM) is not handler:
            signal.signal(signal.SIGTERM, handler)
        if "kubernetes.config.kube_config" in sys.modules:  # it would keep the certificates in files until the end
            sys.modules["kubernetes.config.kube_config"]._cleanup_temp_files()


@pytest.fixture
def closed_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the HTTP sessions that the test creates, for tests of parts that live as long as their process."""
    create = BoundedSession.__init__
    with ExitStack() as stack:

        def __init__(session: BoundedSession, *arguments: Any, **options: Any) -> None:  # noqa: N807  it replaces that
            create(session, *arguments, **options)
            stack.callback(session.close)

        monkeypatch.setattr(BoundedSession, "__init__", __init__)
        yield


def _openmetrics(series: dict[str, list[tuple[str, np.ndarray]]], times: np.ndarray, kind: str) -> Iterator[str]:
    for name, members in series.items():
        yield f"# TYPE {name.removesuffix('_total') if kind == 'counter' else name} {kind}\n"
        for labels, values in members:
            for at, value in zip(times, values, strict=True):
                yield f"{name}{{{labels}}} {float(value)!r} {at}\n"


def _times() -> np.ndarray:
    now = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    return np.arange(now - BACK_SECONDS, now + AHEAD_SECONDS, STEP_SECONDS)


@pytest.fixture(scope="session")
def prometheus_with_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A Prometheus server with the recording rules of kube-prometheus for 100 nodes."""
    times = _times()
    random = np.random.default_rng(903)
    rules = {
        name: np.clip(random.uniform(0.05, 0.9, (NODES, 1)) + random.normal(0, 0.05, (NODES, len(times))), 0, 1)
        for name in ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")
    }
    series = {
        name: [(f'instance="node-{node}:9100"', values[node].tolist()) for node in range(NODES)]
        for name, values in rules.items()
    }
    with run_prometheus(tmp_path_factory.mktemp("rules"), _openmetrics(series, times, "gauge")) as url:
        yield History(url, times, rules, np.array([]))


@pytest.fixture(scope="session")
def prometheus_with_raw_series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A Prometheus server with only the series of node_exporter: 5 nodes of 4 processors, each at a constant load."""
    times = _times()
    ratios = np.array([0.1, 0.25, 0.5, 0.75, 0.95])
    elapsed = times - times[0]
    cpu = {
        "node_cpu_seconds_total": [
            (f'instance="10.0.0.{node}:9100",cpu="{core}",mode="{mode}"', (elapsed * share).tolist())
            for node, ratio in enumerate(ratios)
            for core in range(4)
            for mode, share in (
                ("user", ratio * 0.75), ("system", ratio * 0.25), ("idle", 1 - ratio - 0.04),
                ("iowait", 0.03), ("steal", 0.01),
            )
        ]
    }  # fmt: skip
    total = 16 * 1024**3
    memory = {
        "node_memory_MemTotal_bytes": [
            (f'instance="10.0.0.{node}:9100"', [total] * len(times)) for node in range(len(ratios))
        ],
        "node_memory_MemAvailable_bytes": [
            (f'instance="10.0.0.{node}:9100"', [total * (1 - ratio)] * len(times)) for node, ratio in enumerate(ratios)
        ],
    }
    lines = [*_openmetrics(cpu, times, "counter"), *_openmetrics(memory, times, "gauge")]
    with run_prometheus(tmp_path_factory.mktemp("raw"), iter(lines)) as url:
        yield History(url, times, {}, ratios)


@pytest.fixture
def short_handover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for another watcher to release the store's file to 0.1 s."""
    monkeypatch.setattr("watcher.store.store._HANDOVER_SECONDS", 0.1)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start ``trimaran watch`` processes that share one store per test; all are killed at the end of the test."""
    started: list[Service] = []

    def start(
        *arguments: str,
        port: int = 0,
        store: Path | None = None,
        open_files: int | None = None,
        cold: bool = False,
        **environment: str,
    ) -> Service:
        log = tmp_path / f"watch-{len(started)}.log"
        place = store or tmp_path / "watcher.sqlite"
        service = Service(place, log, *arguments, port=port, open_files=open_files, cold=cold, **environment)
        started.append(service)
        return service

    try:
        yield start
    finally:
        for service in started:
            service.close()


@pytest.fixture
def api() -> Iterator[Api]:
    """An API before the first fetch."""
    api = Api()
    yield api
    api.watcher.stop()


@pytest.fixture
def ready_api(api: Api) -> Api:
    """An API after one fetch."""
    api.watcher.fetch_once()
    return api


@pytest.fixture
def prometheus() -> Iterator[Fake]:
    """A fake Prometheus server that always returns two nodes."""
    with serving(two_nodes) as fake:
        yield fake
