"""``trimaran record`` against a hostile or broken Prometheus: one line of error, or a trace of the valid values."""

import json
import re
import resource
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.fake_kubernetes import FakeKubernetes, node, pod, run_fake_kubernetes
from support.servers import reply, serving

from trimaran.cli.main import main
from trimaran.traces.reading import read_trace
from trimaran.traces.recording import history, prometheus

EVIL = "x\x1b]0;title\x07\x9b2J\u202e\nforged: line"
KEYS = {"namespace": "default", "pod": "web"}
Answer = Callable[[BaseHTTPRequestHandler, int, int], None]


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeKubernetes]:
    folder = tmp_path_factory.mktemp("record")
    with run_fake_kubernetes(folder, nodes={"a": node("a")}, pods={"default/web": pod("web", "a")}) as fake:
        yield fake


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "TIMEOUT_SECONDS", 0.3)


def record(kubernetes: FakeKubernetes, folder: Path, answer: Answer, *arguments: str) -> Result:
    """Record an hour from a server that is given the first and the last time of each query."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        times = [int(re.search(rf"[?&]{name}=(\d+)", handler.path + "&start=0&end=0")[1]) for name in ("start", "end")]
        answer(handler, *times)

    with serving(respond) as fake:
        options = ["--prometheus", fake.url, "--kube-config", str(kubernetes.kube_config())]
        return CliRunner().invoke(main, ["record", str(folder), *options, "--last=1h", "--warm-up=10m", *arguments])


def matrix(values: Any, metric: Any = KEYS, **more: Any) -> Answer:
    """Answer each query with one series; ``values`` may be a function of the first and the last time."""

    def answer(handler: BaseHTTPRequestHandler, start: int, end: int) -> None:
        item = {"metric": metric, "values": values(start, end) if callable(values) else values, "value": [end, "1"]}
        reply(handler, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [item]}, **more}))

    return answer


def steady(start: int, end: int) -> list[Any]:
    """Return a value for each minute."""
    return [[at, "1"] for at in range(start, end + 1, 60)]


def raw(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Answer each query with the same bytes."""
    return lambda handler, _start, _end: reply(handler, body, status, **headers)


def series(body: str) -> Answer:
    """Answer each query with a list of series in JSON text, which may be invalid."""
    return raw(f'{{"status": "success", "data": {{"resultType": "matrix", "result": {body}}}}}'.encode())


def endless(part: bytes) -> Answer:
    """Send a part again and again, until the client hangs up."""

    def answer(handler: BaseHTTPRequestHandler, _start: int, _end: int) -> None:
        handler.wfile.write(b'HTTP/1.1 200 OK\r\n\r\n{"status": "success", "data": {"result": [')
        while True:
            handler.wfile.write(part)

    return answer


def trickle(handler: BaseHTTPRequestHandler, _start: int, _end: int) -> None:
    """Send a byte every twentieth of a second."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(600):
        handler.wfile.write(b" ")
        time.sleep(0.05)


REFUSED = {
    "HTML": raw(b"<html>Sign in</html>", Content_Type="text/html"),
    "empty": raw(b""),
    "null": raw(b"null"),
    "list": raw(b"[]"),
    "no data": raw(b'{"status": "error", "error": "x"}'),
    "deep": raw(b"[" * 200_000),
    "deep object": raw(b'{"a":' * 100_000),
    "other encoding": raw(b"\xff\xfe\x00"),
    "scalar": raw(b'{"data": {"result": [1, "2"]}}'),
    "no labels": series('[{"values": []}]'),
    "labels of other types": series('[{"metric": {"namespace": [], "pod": {}}, "values": []}]'),
    "label with a lone surrogate": series('[{"metric": {"namespace": "\\ud800", "pod": "web"}, "values": [[1, "1"]]}]'),
    "label with control characters": matrix(steady, {"namespace": EVIL, "pod": EVIL}),
    "no values": series('[{"metric": {"namespace": "default", "pod": "web"}}]'),
    "values of another type": matrix(5),
    "values as an object": matrix({"a": "b"}),
    "values of three parts": matrix([[1, "1", "1"]]),
    "times that are no numbers": matrix([["x", "1"]]),
    "times that are not finite": series('[{"metric": {"namespace": "a", "pod": "b"}, "values": [[1e999, "1"]]}]'),
    "times that are NaN": series('[{"metric": {"namespace": "a", "pod": "b"}, "values": [[NaN, "1"]]}]'),
    "times before the query": matrix(lambda start, _end: [[start - 600, "1"]]),
    "times after the query": matrix(lambda _start, end: [[end + 600, "1"]]),
    "values that are no numbers": matrix(lambda start, _end: [[start, "many"]]),
    "values that are lists": matrix(lambda start, _end: [[start, ["1"]]]),
    "huge whole numbers": series(f'[{{"metric": {{"namespace": "a", "pod": "b"}}, "values": [[{"9" * 4000}, "1"]]}}]'),
    "only NaN": matrix(lambda start, end: [[at, "NaN"] for at in range(start, end + 1, 60)]),
    "endless spaces": endless(b" " * 1_000_000),
    "endless series": endless(b'{"metric": {"namespace": "a", "pod": "b"}, "values": []},' * 10_000),
    "a byte at a time": trickle,
    "nothing": lambda handler, _start, _end: time.sleep(2),
    "redirect to another host": raw(b"", 302, Location="http://other.example/?token=hunter2secret99"),
    "redirect in a circle": raw(b"", 302, Location="/api/v1/query_range"),
    "redirect to a file": raw(b"", 302, Location="file:///etc/passwd"),
    "server error with escapes": raw(json.dumps({"status": "error", "error": EVIL}).encode(), 400),
    "always too many samples": raw(b'{"status": "error", "error": "too many samples"}', 422),
}  # fmt: skip


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED)
def test_a_hostile_answer_is_one_line_of_error(kubernetes: FakeKubernetes, tmp_path: Path, answer: Answer) -> None:
    """Each attack ends soon with status 1 and one line, within bounds of memory, and writes no trace."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = record(kubernetes, tmp_path / "w", answer)
    assert result.exit_code == 1, result.output
    assert not isinstance(result.exception, Exception), result.exception
    assert len(result.stderr.strip().splitlines()) <= 2, result.stderr  # with that of the progress bar
    assert result.output.replace("\n", "").replace("\r", "").isprintable(), ascii(result.output)
    assert "hunter2secret99" not in result.output
    assert not (tmp_path / "w").exists()
    assert time.process_time() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


ACCEPTED = {
    "values out of order": (lambda start, end: steady(start, end)[::-1], {}),
    "repeated values": (lambda start, end: 2 * steady(start, end), {}),
    "values that are not finite": (
        lambda start, end: [[start, "NaN"], [start + 60, "+Inf"], [start + 120, "-Inf"], *steady(start + 180, end)], {},
    ),
    "negative values": (lambda start, end: [[start, "-5"], *steady(start + 60, end)], {}),
    "values beyond all machines": (lambda start, end: [[start, "1e300"], *steady(start + 60, end)], {}),
    "many warnings with escapes": (steady, {"warnings": [f"{EVIL}{number}" for number in range(5_000)]}),
    "warnings that are a number": (steady, {"warnings": 5}),
    "warnings that are objects": (steady, {"warnings": [{"a": EVIL}, None]}),
    "other keys": (steady, {"infos": EVIL, "x" * 1000: [EVIL]}),
}  # fmt: skip


@pytest.mark.parametrize(("values", "more"), ACCEPTED.values(), ids=ACCEPTED)
def test_odd_values_leave_a_valid_trace(
    kubernetes: FakeKubernetes, tmp_path: Path, values: Any, more: dict[str, Any]
) -> None:
    """Values that cannot be are left out; the trace has finite use between 0 and what the valid values say."""
    result = record(kubernetes, tmp_path / "w", matrix(values, **more))
    assert result.exit_code == 0, result.output
    assert result.output.replace("\n", "").replace("\r", "").isprintable(), ascii(result.output)
    assert len(result.stderr.splitlines()) < 20
    trace = read_trace(tmp_path / "w")
    assert trace.pods == ("default/web",)
    assert (trace.use.cpu >= 0).all()
    assert float(trace.use.cpu.max()) <= 10_000.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", "x", None, [], 10**400])
def test_odd_requests_of_deleted_pods_are_refused_or_left_out(
    kubernetes: FakeKubernetes, tmp_path: Path, value: Any
) -> None:
    """Requests from kube-state-metrics that cannot be are left out, or end the recording with one line of error."""

    def answer(handler: BaseHTTPRequestHandler, start: int, end: int) -> None:
        labels = {"namespace": "default", "pod": "deleted", "created_by_kind": "Job", "created_by_name": "x-1"}
        number = '"1"' if "kube_pod_info" in handler.path or start else json.dumps(value)
        item = f'{{"metric": {json.dumps(labels)}, "values": {json.dumps(steady(start, end) if start else [])}'
        item += f', "value": [1, {number}]}}'
        reply(handler, f'{{"status": "success", "data": {{"result": [{item}]}}}}')

    result = record(kubernetes, tmp_path / "w", answer)
    assert result.exit_code in {0, 1}
    assert not isinstance(result.exception, Exception), result.exception
    if result.exit_code == 0:
        trace = read_trace(tmp_path / "w")
        assert (trace.cpu_request_milli > 0).all()
        assert (trace.memory_request_bytes > 0).all()


def test_many_series_of_a_long_range_are_bounded(
    kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range in which many series would take gigabytes is asked for in shorter ranges, then refused."""
    monkeypatch.setattr(history, "_MAX_VALUES", 2_000)
    result = [{"metric": {"namespace": "default", "pod": f"p{number}"}, "values": []} for number in range(1_000)]

    def answer(handler: BaseHTTPRequestHandler, start: int, _end: int) -> None:
        reply(handler, {"status": "success", "data": {"result": result if start else []}})

    result_ = record(kubernetes, tmp_path / "w", answer)
    assert (result_.exit_code, "see --minutes-at-once" in result_.output) == (1, True), result_.output


def test_a_flood_of_pods_is_refused(
    kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that invents pods without end is refused once there are more than any cluster has."""
    monkeypatch.setattr("trimaran.traces.recording.recording._MAX_PODS", 100)

    def answer(handler: BaseHTTPRequestHandler, start: int, end: int) -> None:
        names = [{"namespace": "default", "pod": f"p{start}-{number}"} for number in range(60)]
        result = [{"metric": labels, "values": steady(start, end)} for labels in names]
        reply(handler, {"status": "success", "data": {"result": result if start else []}})

    result = record(kubernetes, tmp_path / "w", answer, "--minutes-at-once=10")
    assert (result.exit_code, "100 pods" in result.output) == (1, True), result.output
