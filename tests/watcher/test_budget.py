"""Tests of the memory limit of a fetch, with real servers that send endless responses."""

import subprocess
import sys
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import orjson
import pytest
from support.servers import reply, serving

from runtime.http.budget import Budget, current, estimate_memory_bytes, use_budget
from runtime.http.errors import TooLarge
from runtime.http.gather import Deadline, gather
from runtime.http.session import BoundedSession
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from watcher.errors import ProviderError
from watcher.findings import Kind
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.providers.base import Fetched
from watcher.providers.failover import Failover
from watcher.quality import analyzer

MEBI = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SERIES = b'{"metric":{"instance":"10.0.0.1:9100"},"value":[1700000000,"0.25"]},'

#: Program that fetches from an address like a watcher, and prints the maximum growth of the process in MiB.
FETCH = """
import sys, resource
from watcher.pipeline.factory import open_watcher
from watcher.settings import Settings
settings = Settings.model_validate({
    "provider": {"name": sys.argv[2], "address": sys.argv[1], "token": "a" * 20, "app_key": "b" * 20},
    "watch": {"fetch_timeout_seconds": 60, "max_fetch_megabytes": 64},
    "influxdb": {"version": "1"},
})
watcher = open_watcher(settings, None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
watcher.fetch_once()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
print(" ".join(watcher.health().reasons))
watcher.stop()
"""


def endless(start: bytes, again: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Send a beginning, and then the same bytes without end."""
    block = again * (MEBI // len(again) + 1)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(HEAD + b"\r\n" + start)
        while True:
            handler.wfile.write(block)

    return answer


def bomb(again: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Send an endless gzip stream that unpacks to a thousand times its size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = packer.compress(b"[") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(again * (MEBI // len(again) + 1)) + packer.flush(zlib.Z_FULL_FLUSH)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(HEAD + b"Content-Encoding: gzip\r\n\r\n" + start)
        while True:
            handler.wfile.write(block)

    return answer


@pytest.mark.parametrize(
    ("provider", "answer"),
    [
        ("Prometheus", endless(b"[", b" ")),
        ("Prometheus", endless(b"[", SERIES)),
        ("Prometheus", endless(b"[", b"[],")),
        ("Prometheus", bomb(b" ")),
        ("InfluxDB", bomb(b"{},")),
        ("SignalFx", endless(b"[", b" ")),
        ("Datadog", bomb(b" ")),
    ],
    ids=["spaces", "series", "lists", "bomb", "bomb of objects", "SignalFx", "Datadog"],
)
def test_endless_responses_stay_within_the_budget(
    provider: str, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    """All responses of a fetch, over all windows, share one budget; the process grows by no more than that."""
    with serving(answer) as fake:
        done = subprocess.run(
            [sys.executable, "-c", FETCH, fake.url, provider], capture_output=True, text=True, check=True, timeout=100
        )
    grown, reasons = done.stdout.split("\n", 1)
    assert int(grown) < 64 + 32  # 32 MiB more for connection buffers and the allocator
    assert "larger than 64 MiB (watch.max_fetch_megabytes)" in reasons


@pytest.mark.parametrize(
    "item",
    [SERIES[:-1], b"[]", b"{}", b'{"a":1}', b"1.5", b"12345", b'"' + b"x" * 200 + b'"',
     b'["\\ud83d\\ude00' + b"x" * 100 + b'"]'],
)  # fmt: skip
def test_estimated_weight_of_json(item: bytes) -> None:
    """The estimate is not below CPython's memory for the text and the parsed objects."""
    count = 20_000
    body = b"[" + b",".join([item] * count) + b"]"
    program = (
        "import sys, orjson, tracemalloc; body = sys.stdin.buffer.read(); tracemalloc.start()\n"
        "read = orjson.loads(body); print(tracemalloc.get_traced_memory()[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], input=body, capture_output=True, check=True)
    assert len(body) + int(done.stdout) <= estimate_memory_bytes(body) * 1.1


def test_threads_of_a_fetch_share_the_budget() -> None:
    """Calls started by gather use the same budget; once it is exceeded nothing more is read."""
    body = b" " * MEBI

    def ask(session: BoundedSession, url: str) -> int:
        return len(session.get(url).content)

    with serving(lambda handler: reply(handler, body)) as fake:
        session = BoundedSession(lambda _request: None)
        with use_budget(Budget(5 * MEBI, setting="a.setting")):
            answers = gather({number: lambda: ask(session, fake.url) for number in range(6)}, Deadline.after(20))
            with pytest.raises(TooLarge, match=r"5 MiB \(a\.setting\)"):
                ask(session, fake.url)
        assert sum(answer == MEBI for answer in answers.values()) <= 2  # each once unchanged and once as texts
        assert ask(session, fake.url) == MEBI
        session.close()


def test_providers_have_separate_budgets() -> None:
    """A first provider with endless responses leaves the second provider its budget; its windows share one."""

    class Spender:
        def fetch(self, window: Window, deadline: Deadline) -> Fetched:
            budgets.add(id(current()))
            while True:
                current().charge(b" " * MEBI)

        def check(self):
            return iter(())

    class Modest:
        def fetch(self, window: Window, deadline: Deadline) -> Fetched:
            current().charge(b" " * MEBI)
            return Fetched({"a": NodeMetrics(())})

        check = Spender.check

    budgets: set[int] = set()
    failover = Failover([("Spender", Spender()), ("Modest", Modest())])
    with use_budget(Budget(4 * MEBI)):
        assert failover.fetch(Window("5m", 0, 300), Deadline.after(10)).source == "Modest"
        assert failover.fetch(Window("10m", 0, 600), Deadline.after(10)).source == "Modest"
        with pytest.raises(ProviderError, match="4 MiB"):
            failover.fetch(Window("15m", 0, 900), Deadline.after(10))  # the second provider's budget is used up as well
    assert len(budgets) == 1


def test_discarded_pages_do_not_count() -> None:
    """A list is read page by page: only the kept items count in the budget."""
    item = {"metadata": {"name": "n"}, "status": {"images": ["x" * 1000] * 20}}
    pages = 30

    def answer(handler: BaseHTTPRequestHandler) -> None:
        more = {"continue": str(len(fake.requests))} if len(fake.requests) < pages else {}
        reply(handler, orjson.dumps({"items": [item] * 100, "metadata": more}))

    with serving(answer) as fake:
        api = KubernetesApi(ApiServerConfig(address=fake.url))
        budget = Budget(10 * MEBI)
        with use_budget(budget):
            items = sum(1 for _ in api.list_items("/api/v1/nodes", Deadline.after(30)))
        api.close()
    assert items == 100 * pages
    with pytest.raises(TooLarge):
        budget.charge_bytes(10 * MEBI - 100 * pages * 1024 + 1)


def test_too_many_nodes_are_dropped_by_name() -> None:
    """The first nodes by name are kept in every fetch, and a finding has both numbers."""
    node = NodeMetrics((Metric("cpu", "CPU", Operator.AVG, "5m", 1.0),))
    nodes = {f"node-{number}": node for number in (3, 1, 2)}
    kept, (finding,) = analyzer.limit(nodes, "5m", 2)
    assert list(kept) == ["node-1", "node-2"]
    assert (finding.kind, finding.window, finding.action) == (Kind.TOO_MANY_NODES, "5m", "dropped")
    assert "3 nodes" in finding.message
    assert analyzer.limit(nodes, "5m", 3) == (nodes, [])
