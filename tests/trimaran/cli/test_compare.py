"""``trimaran compare``: whether two watchers say the same."""

import json
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner, Result
from support.servers import reply, serving

from trimaran.cli.main import main
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect


def body(loads: dict[str, float], dialect: Dialect, operator: str = "AVG", type_: str = "CPU") -> bytes:
    """Return what a watcher answers."""
    now = int(time.time())
    data = {name: NodeMetrics((Metric("cpu", type_, operator, "15m", load),)) for name, load in loads.items()}
    return wire.encode(WatcherMetrics(now, Window("15m", now - 900, now), "Test", data), dialect)


@pytest.fixture
def watchers():
    """Return a function that serves two watchers and compares them; the first speaks Go's dialect."""
    with ExitStack() as servers:

        def compared(go: bytes, ours: bytes, *options: str) -> Result:
            def answering(content: bytes):
                def answer(handler: BaseHTTPRequestHandler) -> None:
                    reply(handler, content)

                return servers.enter_context(serving(answer)).url

            return CliRunner().invoke(main, ["compare", answering(go), answering(ours), *options])

        yield compared


def test_watchers_that_agree(watchers):
    """Averages and latest values are one kind; status 0, the same order of nodes."""
    go = body({"a": 10, "b": 20, "c": 30}, Dialect.GO, "Latest")
    ours = body({"a": 11, "b": 21, "c": 30, "d": 5}, Dialect.DOCUMENTED)
    result = watchers(go, ours)
    assert result.exit_code == 0, result.output
    row = result.output.splitlines()[1].split()
    assert row == ["CPU", "AVG", "3", "0.67", "1.00", "(a)", "1.000"]
    assert "only OURS knows d" in result.output
    assert result.output.splitlines()[-1] == "they agree"


def test_watchers_that_are_apart(watchers):
    """A mean beyond the tolerance, nodes that only the Go service knows, another order: status 1, each said."""
    go = body({"a": 10, "b": 20, "10.0.0.1:9100": 5}, Dialect.GO)
    ours = body({"a": 40, "b": 20}, Dialect.DOCUMENTED)
    result = watchers(go, ours)
    assert result.exit_code == 1
    assert "only GO knows 10.0.0.1:9100" in result.output
    assert "too far apart: CPU AVG" in result.output
    document = json.loads(watchers(go, ours, "-o", "json").stdout)
    assert document["values"]["CPU AVG"] == {"nodes": 2, "mean": 15, "largest": 30, "node": "a", "rank": -1}
    assert document["only_theirs"] == ["10.0.0.1:9100"]
    assert json.loads(watchers(go, ours, "-o", "json", "--tolerance", "20").stdout)["apart"] == []


def test_watchers_without_a_node_in_common(watchers):
    """Then nothing is compared: status 1, and what may be the reason."""
    result = watchers(body({"a": 1}, Dialect.GO), body({"b": 1}, Dialect.DOCUMENTED))
    assert result.exit_code == 1
    assert "are the nodes' names mapped alike?" in result.output


def test_they_are_asked_for_as_long_as_wanted(watchers, monkeypatch):
    """--for and --interval are durations; every round counts."""
    slept, clock = [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("trimaran.cli.compare.time.sleep", sleep)
    monkeypatch.setattr("trimaran.cli.compare.time.monotonic", lambda: clock[0])
    go, ours = body({"a": 10}, Dialect.GO), body({"a": 10}, Dialect.DOCUMENTED)
    result = watchers(go, ours, "--for", "1h", "--interval", "20m", "-o", "json")
    assert slept == [1200] * 3
    assert json.loads(result.stdout)["rounds"] == 4


def test_a_watcher_that_cannot_be_asked(watchers):
    """One line and status 2, as for an address that is none."""
    result = CliRunner().invoke(main, ["compare", "http://127.0.0.1:1", "http://127.0.0.1:1"])
    assert (result.exit_code, "cannot be reached" in result.output) == (2, True)
    assert CliRunner().invoke(main, ["compare", "x", "y"]).exit_code == 2
