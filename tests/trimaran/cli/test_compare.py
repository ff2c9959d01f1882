"""``trimaran compare``: comparison of two watchers."""

import json
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner, Result
from support.refusals import check_refusal
from support.servers import reply, serving

from trimaran.cli.main import main
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect


def body(loads: dict[str, float], dialect: Dialect, operator: str = "AVG", type_: str = "CPU") -> bytes:
    """Return the body of a watcher's answer."""
    now = int(time.time())
    data = {name: NodeMetrics((Metric("cpu", type_, operator, "15m", load),)) for name, load in loads.items()}
    return wire.encode(WatcherMetrics(now, Window("15m", now - 900, now), "Test", data), dialect)


@pytest.fixture
def watchers():
    """Return a function that serves and compares two watchers; the first uses the Go dialect."""
    with ExitStack() as servers:

        def compared(go: bytes, ours: bytes, *options: str) -> Result:
            def answering(content: bytes):
                def answer(handler: BaseHTTPRequestHandler) -> None:
                    reply(handler, content)

                return servers.enter_context(serving(answer)).url

            return CliRunner().invoke(main, ["compare", answering(go), answering(ours), *options])

        yield compared


def test_watchers_that_agree(watchers):
    """Latest values count as averages; watchers with small differences agree, with status 0."""
    go = body({"a": 10, "b": 20, "c": 30}, Dialect.GO, "Latest")
    ours = body({"a": 11, "b": 21, "c": 30, "d": 5}, Dialect.DOCUMENTED)
    result = watchers(go, ours)
    assert result.exit_code == 0, result.output
    row = result.output.splitlines()[1].split()
    assert row == ["CPU", "AVG", "3", "0.67", "1.00", "(a)", "1.000"]
    assert "only OURS has d" in result.output
    assert result.output.splitlines()[-1] == "the watchers agree"


def test_watchers_that_differ(watchers):
    """A mean difference above the tolerance and nodes missing from OURS are reported, with status 1."""
    go = body({"a": 10, "b": 20, "10.0.0.1:9100": 5}, Dialect.GO)
    ours = body({"a": 40, "b": 20}, Dialect.DOCUMENTED)
    result = watchers(go, ours)
    assert result.exit_code == 1
    assert "--tolerance: CPU AVG" in result.output
    document = json.loads(watchers(go, ours, "-o", "json").stdout)
    assert document["values"]["CPU AVG"] == {"nodes": 2, "mean": 15, "largest": 30, "node": "a", "rank": -1}
    assert document["only_theirs"] == ["10.0.0.1:9100"]
    assert json.loads(watchers(go, ours, "-o", "json", "--tolerance", "20").stdout)["apart"] == []


def test_watchers_without_a_node_in_common(watchers):
    """Watchers without a common node do not agree; the output has a hint about node names."""
    result = watchers(body({"a": 1}, Dialect.GO), body({"b": 1}, Dialect.DOCUMENTED))
    assert (result.exit_code, "node names?" in result.output) == (1, True)


def test_a_comparison_over_time(watchers, monkeypatch):
    """--for and --interval are durations; every round is counted."""
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


def test_an_unreachable_watcher_is_an_error(watchers):
    """An unreachable watcher and an invalid address are errors with status 2."""
    result = CliRunner().invoke(main, ["compare", "http://127.0.0.1:1", "http://127.0.0.1:1"])
    check_refusal(result, "http://127.0.0.1:1")
    assert CliRunner().invoke(main, ["compare", "x", "y"]).exit_code == 2
