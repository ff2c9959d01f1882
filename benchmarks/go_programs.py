"""Comparison with the original Go programs, which serve a snapshot and score nodes by it.

The Go code is the client and the service of load-watcher, and LoadVariationRiskBalancing of scheduler-plugins. Small
programs in ``go/`` call it; they are built once, into the cache of the end-to-end tests. Without a Go compiler this
script fails. Go and Python take turns, and a ratio is of figures from one turn. Scoring is measured in processor time,
which other work disturbs less, with garbage collection. Serving is measured in requests per second over 8 connections.

    python benchmarks/go_programs.py [--nodes 5000] [--rounds 5]

``reading.py`` imports :func:`decode`, which returns None without Go.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from common import Table, median_ratio, options, processor_ms, snapshot
from control_plane.builds import GoMissing, Program, build
from support.ports import free_port
from support.servers import wait_until

from scoring import LoadVariationRiskBalancing, Node, NodeTable, Pod
from watcher import wire
from watcher.wire import Dialect

FOLDER = Path(__file__).parent / "go"
BUILD_SECONDS = {"decode": 60, "serve": 60, "score": 240}
AMOUNTS = {"cpu": "64", "memory": "256Gi"}


def program(name: str) -> Path | None:
    """Return the path of a program in ``go/``, and build it if necessary; return None without a Go compiler."""
    try:
        return build(f"benchmark-{name}", Program(FOLDER, package=f"./{name}", seconds=BUILD_SECONDS[name]))
    except GoMissing as missing:
        print(f"no baseline in Go: {missing}", file=sys.stderr)
        return None


def decode(body: bytes, rounds: int) -> Mapping[str, Mapping[str, float]] | None:
    """Decode a snapshot by three decoders in Go; return None without a Go compiler.

    Args:
        body: snapshot in Go's dialect.
        rounds: number of rounds.

    Returns:
        For each decoder (``client``, ``gojay``, ``json``): the number of decoded ``nodes``, the median wall-clock time
        ``ms``, and the mean processor time ``processor_ms``, which for ``client`` includes its server.
    """
    return run_program("decode", body, rounds)


def run_program(name: str, body: bytes, rounds: int) -> Any:
    """Run a program in ``go/`` on a snapshot; return its results, parsed from JSON, or None without a Go compiler.

    Args:
        name: name of the program.
        body: snapshot in Go's dialect.
        rounds: number of rounds that the program runs.
    """
    binary = program(name)
    if binary is None:
        return None
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        run = subprocess.run([binary, file.name, str(rounds)], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


@contextmanager
def go_service(body: bytes) -> Iterator[str]:
    """Run load-watcher's service, which serves a snapshot in Go's dialect; yield the service's URL."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        port = free_port()
        process = subprocess.Popen([program("serve"), file.name, f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: requests.get(f"{url}/watcher", timeout=10).ok, "load-watcher serves")
            yield url
        finally:
            process.kill()
            process.wait()


def compare_scoring(table: Table, nodes: int, rounds: int) -> None:
    """Print the time to score all nodes for one pod, in Go and in Python; stop if the scores differ."""
    metrics = snapshot(nodes)
    body = wire.encode(metrics, Dialect.GO)
    amounts = {"capacity": AMOUNTS, "allocatable": AMOUNTS}
    node_table = NodeTable(Node.from_k8s({"metadata": {"name": name}, "status": amounts}) for name in metrics.data)
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    containers = [{"name": "main", "resources": resources}]
    pod = Pod.from_k8s({"metadata": {"name": "pod"}, "spec": {"containers": containers}})
    plugin = LoadVariationRiskBalancing().prepare(node_table, metrics)
    turns = []
    for _ in range(rounds):
        result = run_program("score", body, 50)
        if result["total"] != plugin.score(pod).sum():
            sys.exit(f"Go's scores add up to {result['total']}, ours to {plugin.score(pod).sum()}")
        turns.append((result["processor_ms"], processor_ms(lambda: plugin.score(pod), 500)))
    go, ours = zip(*turns, strict=True)
    row = "score one pod: LoadVariationRiskBalancing, equal scores"
    table.row(row, f"{nodes:,}", "processor, ms", f"{statistics.median(go):.2f}", f"{statistics.median(ours):.3f}",
              f"{median_ratio(ours, go):.4f}")  # fmt: skip


def compare_serving(table: Table, nodes: int, seconds: int, rounds: int) -> None:
    """Print the requests per second that load-watcher's service and this project's watcher answer."""
    import serving

    host = serving.HOST
    paths = {"one node": (f"/watcher?host={host}", f"/watcher/{host}"), "all nodes": ("/watcher", "/watcher")}
    with serving.run_server(nodes) as (our_url, _):
        body = requests.get(f"{our_url}/compat/watcher", timeout=30).content
        with go_service(body) as go_url:
            for name, (go_path, our_path) in paths.items():
                turns = [
                    (serving.load(go_url + go_path, 8, seconds).rate, serving.load(our_url + our_path, 8, seconds).rate)
                    for _ in range(rounds)
                ]
                go, ours = zip(*turns, strict=True)
                table.row(f"serve {name}", f"{nodes:,}", "requests/s", f"{statistics.median(go):,.0f}",
                          f"{statistics.median(ours):,.0f}", f"{median_ratio(ours, go):.2f}")  # fmt: skip


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, rounds=5)
    if not all(map(program, BUILD_SECONDS)):
        sys.exit(1)
    columns = ("work", "nodes", "unit", "Go", "ours", "ours/Go")
    table = Table(f"medians of {size.rounds} rounds", columns, text_columns=3)
    compare_scoring(table, size.nodes, size.rounds)
    for nodes in (100, size.nodes):
        compare_serving(table, nodes, 2, size.rounds)


if __name__ == "__main__":
    main()
