"""What Go takes for the same work: reading a snapshot, serving it, scoring with it.

The Go side is load-watcher's own client and service and scheduler-plugins' own LoadVariationRiskBalancing, called from
the small programs in ``go/``, which are built once into the cache of the end-to-end tests; without Go this says so, and
measures nothing. Go and Python take turns, and a ratio is of figures from one turn. Reading and scoring are in
processor time, garbage collection included, so that other work disturbs less; ``client`` has its server's too.

    python benchmarks/go_programs.py [--nodes 5000] [--rounds 5]

Other benchmarks import :func:`decode`, :func:`score` and :func:`serving`; each returns None, or yields it, without Go.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import serving as ours

from scoring import LoadVariationRiskBalancing, Node, NodeTable, Pod
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from control_plane.builds import GoMissing, Program, build
from support.servers import free_port, wait_until

FOLDER = Path(__file__).parent / "go"
_SECONDS = {"decode": 60, "serve": 60, "score": 240}
TYPES = ("CPU", "Memory", "Bandwidth", "Storage")
AMOUNTS = {"cpu": "64", "memory": "256Gi"}


def program(name: str) -> Path | None:
    """Return where one of our Go programs is, built if need be; None, said on stderr, where there is no Go."""
    try:
        return build(f"benchmark-{name}", Program(FOLDER, package=f"./{name}", seconds=_SECONDS[name]))
    except GoMissing as missing:
        print(f"no baseline in Go: {missing}", file=sys.stderr)
        return None


def decode(body: bytes, rounds: int) -> Mapping[str, Mapping[str, float]] | None:
    """Return for each way in Go (``client``, ``gojay``, ``json``) the ``nodes`` that it finds in a body, and its times.

    Median ``ms`` by the clock, mean ``processor_ms``; ``go/decode`` says what the ways are.
    """
    return _run("decode", body, rounds)


def score(body: bytes, rounds: int) -> Mapping[str, float] | None:
    """Return the sum of LoadVariationRiskBalancing's scores of one pod on all nodes, as ``total``, and the times.

    Args:
        body: a snapshot in Go's dialect.
        rounds: how often.
    """
    return _run("score", body, rounds)


@contextmanager
def serving(body: bytes) -> Iterator[str | None]:
    """Run load-watcher's service over a snapshot in Go's dialect; yields its address."""
    binary = program("serve")
    if binary is None:
        yield None
        return
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        port = free_port()
        process = subprocess.Popen([binary, file.name, f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: requests.get(f"{url}/watcher", timeout=10).ok, "load-watcher serves")
            yield url
        finally:
            process.kill()
            process.wait()


def _run(name: str, body: bytes, rounds: int) -> Any:
    binary = program(name)
    if binary is None:
        return None
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(body)
        run = subprocess.run([binary, file.name, str(rounds)], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


# -- beside ours --------------------------------------------------------------------------------------------------


def snapshot(nodes: int) -> WatcherMetrics:
    """Return nodes with eight metrics each, all different."""
    return WatcherMetrics(
        1_700_000_000,
        Window("15m", 1_699_999_100, 1_700_000_000),
        "Prometheus",
        {
            f"node-{n}.eu-west-1.compute.internal": NodeMetrics(
                tuple(
                    Metric(f"instance:node_{type_.lower()}:ratio", type_, operator, "15m", percent)
                    for place, type_ in enumerate(TYPES)
                    for operator, percent in (
                        ("AVG", 100 * ((n * 7919 + 31 * place) % 9973) / 9973),
                        ("STD", 10 * ((n * 104729 + 17 * place) % 9973) / 9973),
                    )
                )
            )
            for n in range(nodes)
        },
    )


def processor_ms(act: Callable[[], object], rounds: int) -> float:
    act()
    began = time.process_time()
    for _ in range(rounds):
        act()
    return 1000 * (time.process_time() - began) / rounds


def decoding(nodes: int, rounds: int) -> None:
    """Print how long a snapshot takes to read: by Go in both dialects, by us in the columnar form too."""
    made = snapshot(nodes)
    bodies = {dialect.value: wire.encode(made, dialect) for dialect in Dialect}
    forms = {**bodies, "columnar": wire.encode_columns(made)}
    processor: dict[str, list[float]] = {}
    found: dict[str, float] = {}
    for _ in range(rounds):
        for form, body in forms.items():
            processor.setdefault(f"ours, {form}", []).append(processor_ms(lambda body=body: wire.decode(body), 9))
            found[f"ours, {form}"] = len(wire.decode(body).data)
        for dialect, body in bodies.items():
            for way, result in (decode(body, 9) or {}).items():
                processor.setdefault(f"Go {way}, {dialect}", []).append(result["processor_ms"])
                found[f"Go {way}, {dialect}"] = result["nodes"]
    print(f"\nreading {nodes} nodes x 8 metrics, {len(bodies['go']) / 1e6:.1f} MB | nodes | processor, ms | of Go's")
    theirs = processor[f"Go client, {Dialect.GO.value}"]
    for what, own in processor.items():
        times = statistics.median(each / go for each, go in zip(own, theirs, strict=True))
        print(f"{what:>42} | {found[what]:5,} | {statistics.median(own):13.1f} | {times:.2f}")


def scoring(nodes: int, rounds: int) -> None:
    """Print how long one pod takes to score on all nodes."""
    metrics = snapshot(nodes)
    body = wire.encode(metrics, Dialect.GO)
    amounts = {"capacity": AMOUNTS, "allocatable": AMOUNTS}
    table = NodeTable(Node.from_k8s({"metadata": {"name": name}, "status": amounts}) for name in metrics.data)
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    pod = Pod.from_k8s({"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "main", "resources": requests}]}})
    plugin = LoadVariationRiskBalancing().prepare(table, metrics)
    turns = []
    for _ in range(rounds):
        found = score(body, 50)
        assert found
        if found["total"] != plugin.score(pod).sum():
            sys.exit(f"Go's scores add up to {found['total']}, ours to {plugin.score(pod).sum()}")
        turns.append((found["processor_ms"], processor_ms(lambda: plugin.score(pod), 500)))
    go, own = (statistics.median(each) for each in zip(*turns, strict=True))
    times = statistics.median(go / own for go, own in turns)
    print(f"\nLoadVariationRiskBalancing, one pod on {nodes} nodes, equal scores, processor time:")
    print(f"Go {go:.2f} ms, ours {own:.3f} ms (prepared once a snapshot): {times:.0f} times as fast")


def answering(nodes: int, seconds: int, rounds: int) -> None:
    """Print how many requests a second load-watcher's service and ours answer."""
    paths = {"one node": (f"/watcher?host={ours.HOST}", f"/watcher/{ours.HOST}"), "all nodes": ("/watcher", "/watcher")}
    with ours.serving(nodes) as (own, _):
        body = requests.get(f"{own}/compat/watcher", timeout=30).content
        with serving(body) as go:
            assert go
            print(f"\n{nodes} nodes x 8 metrics, 8 connections | Go, requests/s | ours | ours / Go")
            for what, (theirs_path, own_path) in paths.items():
                turns = [
                    (ours.load(go + theirs_path, 8, seconds).rate, ours.load(own + own_path, 8, seconds).rate)
                    for _ in range(rounds)
                ]
                theirs_rate, own_rate = (statistics.median(each) for each in zip(*turns, strict=True))
                times = statistics.median(own / theirs for theirs, own in turns)
                print(f"{what:>35} | {theirs_rate:10,.0f} | {own_rate:10,.0f} | {times:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not all(map(program, _SECONDS)):
        sys.exit(1)
    print(f"Python {platform.python_version()}, {platform.machine()}")
    decoding(options.nodes, options.rounds)
    scoring(options.nodes, options.rounds)
    for size in (100, options.nodes):
        answering(size, 2, options.rounds)
