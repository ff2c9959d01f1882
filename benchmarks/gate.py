"""Gate on speed: a figure that takes more than twice its reference fails. ``.ci/run`` runs it, as ``make speed``.

Each figure is the processor time of the code that a benchmark measures, with smaller sizes, divided by the processor
time of a fixed piece of work that uses nothing of this project, before and after it in the same process: a slow or busy
machine slows down both. The ratio is the median of five turns. A figure that takes too long is measured again, and
fails if it takes too long twice. The reference ratios are in ``gate.json``, with their machine.

    python benchmarks/gate.py              compare with the references; status 1 if a figure is too slow
    python benchmarks/gate.py --record     measure each figure three times, and write the medians as references
    python benchmarks/gate.py --only NAME --slow 3      see the gate fail: slow one figure down three times
"""

import argparse
import itertools
import json
import multiprocessing
import pkgutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import NOW, Table, machine, processor_ms

REFERENCES = Path(__file__).with_suffix(".json")
MOST = 2.0
TURNS = 5
NODES = 1_000
_PAUSE_SECONDS = 3e-4  # longer than a worker needs that is slowed down three times
SERVED_NODES = 100  # a longer answer is sent in several parts, whose number depends on the speed of the reader


def fixed_work() -> None:
    """Do work that is the same in every version of this project: Python objects, numpy arrays, and JSON."""
    nodes = {f"node-{n}": {"cpu": n * 7919 % 9973, "memory": [n * 104729 % 9973, n]} for n in range(6_000)}
    json.loads(json.dumps(nodes))
    for _ in range(8):
        sum(each["cpu"] * 2 + each["memory"][0] // 3 for each in nodes.values() if each["cpu"] % 3)
        sorted(nodes, key=lambda name: nodes[name]["memory"])
    values = np.arange(5_000.0)
    for _ in range(200):
        values = np.sqrt(values * 3 + 1) + np.where(values > 2, values, 1)
    for _ in range(40):
        np.argsort(values * 7919 % 1)


def fixed_ms() -> float:
    """Return the processor time of the fixed work in milliseconds; a first run after other work is slower."""
    return min(processor_ms(fixed_work) for _ in range(3))


# -- the figures: each prepares its work and returns a function that runs one turn and returns its milliseconds -------


class Setting(NamedTuple):
    """Arguments of a figure: a folder for files, the exit stack of what it starts, and the factor of ``--slow``."""

    folder: Path
    ending: ExitStack
    slow: float


def requests(path: str, count: int, setting: Setting) -> Callable[[], float]:
    """Time requests to the watcher under gunicorn: the processor time of its worker."""
    import psutil
    import serving
    from support.ports import free_port
    from support.servers import wait_until

    port = free_port()
    arguments = (setting.slow, SERVED_NODES, port, setting.folder / "s.sqlite")
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
    server.start()
    setting.ending.callback(server.join)
    setting.ending.callback(server.terminate)
    wait_until(lambda: serving.is_ready(port), "the server is ready", 300)
    [worker] = psutil.Process(server.pid).children()

    def turn() -> float:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        before = sum(worker.cpu_times()[:2])
        for _ in range(count):
            connection.request("GET", path.replace("<host>", serving.HOST))
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
            # Without a pause a slow worker finds the next request at once, and saves the time to sleep and wake up.
            time.sleep(_PAUSE_SECONDS)
        connection.close()
        return 1000 * (sum(worker.cpu_times()[:2]) - before) / count

    return turn


def serve(slow: float, nodes: int, port: int, store: Path) -> None:
    import serving

    slow_down(WORKER, slow)
    serving.serve(nodes, port, store)


def collect(setting: Setting) -> Callable[[], float]:
    """Time a round of three windows: collected, judged, encoded, stored and published."""
    import serving

    settings, now = serving.settings_of(NODES, setting.folder / "s.sqlite"), [NOW]
    provider = serving.PreparedProvider(NODES, settings.watch.windows)
    watcher = serving.open_watcher(settings, settings.store.path, provider=provider, clock=lambda: now[0])
    setting.ending.callback(watcher.stop)

    def turn() -> float:
        now[0] += 1
        return processor_ms(watcher.fetch_once)

    return turn


def recover(setting: Setting) -> Callable[[], float]:
    """Time a restart with a store: opened, read, and the first answer."""
    import serving

    settings = serving.settings_of(NODES, setting.folder / "s.sqlite")
    provider = serving.PreparedProvider(NODES, settings.watch.windows)

    opened = partial(serving.open_watcher, settings, settings.store.path, provider=provider, clock=lambda: NOW)
    first = opened()
    assert first.fetch_once()
    first.stop()

    def turn() -> float:
        start = time.process_time()
        watcher = opened()
        answer = serving.create_app(watcher, serving.WatcherTelemetry()).test_client().get("/watcher")
        took = 1000 * (time.process_time() - start)
        assert answer.status_code == 200
        watcher.stop()
        return took

    return turn


def read(_setting: Setting) -> Callable[[], float]:
    """Time the client's way from the columnar form to arrays."""
    import reading

    metrics = reading.snapshot(5 * NODES)
    nodes = reading.NodeTable([reading.Node(name) for name in metrics.data])
    body = reading.wire.encode_columns(metrics)
    return lambda: sum(sum(reading.read(reading.wire.decode, body, nodes)[:2]) for _ in range(8)) / 8


def score(_setting: Setting) -> Callable[[], float]:
    """Time the scores of 5,000 nodes for one pod by LoadVariationRiskBalancing."""
    import score_speed

    described, running, snapshot = score_speed.cluster(5 * NODES)
    nodes = score_speed.NodeTable(described, running)
    prepared = score_speed.LOAD.prepare(nodes, score_speed.MetricsTable.align(snapshot, nodes))
    [pod] = score_speed.pending_pods(1)
    return lambda: processor_ms(lambda: prepared.score(pod), 500)


def prioritize(kind: str, _setting: Setting) -> Callable[[], float]:
    """Time the extender's scoring of 500 nodes."""
    import prioritizing

    timed = prioritizing.scoring(NODES, 8 * NODES, NODES // 2)
    return lambda: statistics.median(timed(kind) for _ in range(50))


def decide(_setting: Setting) -> Callable[[], float]:
    """Time a cycle of the scheduler, for pods with anti-affinity and topology spread."""
    import scheduler_rate
    from control_plane.manifests import node
    from support.extending import metrics

    from runtime.kubernetes.objects import Node, Pod
    from scoring import MetricsTable
    from trimaran.scheduler.profiles.configuration import default_document, read_setup

    scheduler = read_setup(default_document(scheduler_rate.NAME), seed=0).scheduler(0)
    manifests = [
        node(f"node-{n}", "32", "128Gi", labels={"topology.kubernetes.io/zone": "abc"[n % 3]}) for n in range(NODES)
    ]
    scheduler.replace_nodes(map(Node.from_k8s, manifests), 0.0)
    table = scheduler.state.table
    scheduler.use_load(MetricsTable.align(metrics(dict.fromkeys(table.names, 30.0)), table))
    pods = scheduler_rate.pods_of("spread", NODES)

    def cycle() -> float:
        manifest = next(pods)
        manifest["metadata"]["uid"] = manifest["metadata"]["name"]
        scheduler.put_pod(Pod.from_k8s(manifest), 0.0)
        made: list[object] = []
        took = processor_ms(lambda: made.append(scheduler.next(0.0)))
        assert isinstance(made[0], scheduler_rate.Bind), made
        return took

    return lambda: statistics.median(cycle() for _ in range(100))


def replay(policy: str, _setting: Setting) -> Callable[[], float]:
    """Time a decision of a replay."""
    import replaying

    from trimaran.simulator.policies.catalogue import policies
    from trimaran.simulator.replay import Replay

    trace = replaying.Synthetic(1, 10, 20, warm_up_minutes=4, jobs_share=0.2).trace()

    def turn() -> float:
        start = time.process_time()
        outcome = Replay(trace, policies(trace)[policy]).run()
        return 1000 * (time.process_time() - start) / outcome.decisions

    return turn


def plan(_setting: Setting) -> Callable[[], float]:
    """Time a search of the rebalancer, with a plan of 10 moves under all limits."""
    import moves

    return lambda: 1000 * sum(moves.look(10 * NODES, NODES // 2, 10).values())


class Figure(NamedTuple):
    """A figure: how it is prepared, and the function of the project that ``--slow`` slows down."""

    prepare: Callable[[Setting], Callable[[], float]]
    entry: str


WORKER = "runtime.server.worker:Worker._poll_once"
PRIORITIZER = "trimaran.extender.prioritizer:Prioritizer.answer"
REPLAY = "trimaran.simulator.replay:Replay.run"
FIGURES = {
    "GET /watcher": Figure(partial(requests, "/watcher", 5_000), WORKER),
    "GET /watcher/<host>": Figure(partial(requests, "/watcher/<host>", 6_000), WORKER),
    "collect and store a round": Figure(collect, "watcher.pipeline.watcher:Watcher.fetch_once"),
    "recover from the store": Figure(recover, "watcher.pipeline.watcher:Watcher.__init__"),
    "read a snapshot in the client": Figure(read, "watcher.wire:decode"),
    "score 5,000 nodes": Figure(score, "scoring.plugins.base:PreparedPlugin.score"),
    "prioritize by requests": Figure(partial(prioritize, "CongestionCost"), PRIORITIZER),
    "prioritize by learned use": Figure(partial(prioritize, "by learned use"), PRIORITIZER),
    "cycle of the scheduler": Figure(decide, "trimaran.scheduler.framework.scheduler:Scheduler.next"),
    "replay by requests": Figure(partial(replay, "congestion-cost-by-requests"), REPLAY),
    "replay by learned use": Figure(partial(replay, "congestion-cost"), REPLAY),
    "plan of the rebalancer": Figure(plan, "moves:plan_moves"),
}


# -- the gate ---------------------------------------------------------------------------------------------------------


def slow_down(entry: str, times: float) -> None:
    """Let each call of a function take several times its processor time from now on."""
    owner, _, name = entry.replace(":", ".").rpartition(".")
    holder = pkgutil.resolve_name(owner)
    function = getattr(holder, name)

    def slowed(*arguments: object, **options: object) -> object:
        start = time.process_time()
        result = function(*arguments, **options)
        end = start + times * (time.process_time() - start)
        while time.process_time() < end:
            pass
        return result

    if times != 1:
        setattr(holder, name, slowed)


class Measured(NamedTuple):
    """Medians of a figure and of the fixed work, in milliseconds, and of their ratios."""

    milliseconds: float
    fixed: float
    ratio: float


def measure(name: str, slow: float = 1.0, turns: int = TURNS) -> Measured:
    """Measure a figure in this process."""
    from runtime.server.serving import tune_interpreter

    tune_interpreter()  # as every service does
    figure = FIGURES[name]
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        slow_down(figure.entry, slow)
        turn = figure.prepare(Setting(folder, ending, slow))
        turn()
        fixed, times = [fixed_ms()], []
        for _ in range(turns):
            times.append(turn())
            fixed.append(fixed_ms())
    ratios = (took / statistics.mean(both) for took, both in zip(times, itertools.pairwise(fixed), strict=True))
    return Measured(statistics.median(times), statistics.median(fixed), statistics.median(ratios))


def in_new_process(name: str, slow: float = 1.0, turns: int = TURNS) -> Measured:
    """Measure a figure in a process of its own, as what another one leaves behind would slow it down."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, name, slow, turns).result()


def record(names: list[str]) -> None:
    """Measure figures three times, and write the medians of their ratios as references."""
    table = Table("ratios of three measurements", ("figure", "lowest", "median", "highest"))
    kept = json.loads(REFERENCES.read_text())["ratios"] if REFERENCES.exists() else {}
    for name in names:
        ratios = sorted(in_new_process(name).ratio for _ in range(3))
        table.row(name, *(f"{ratio:.4f}" for ratio in ratios))
        kept[name] = float(f"{ratios[1]:.3g}")
    written = {"machine": machine(), "ratios": {name: kept[name] for name in FIGURES if name in kept}}
    REFERENCES.write_text(json.dumps(written, indent=2) + "\n")


def compare(names: list[str], slow: float, turns: int, tries: int) -> list[str]:
    """Print how figures compare with their references; return those that take more than twice as long in all tries."""
    references, failed = json.loads(REFERENCES.read_text())["ratios"], []
    columns = ("figure", "ms", "fixed work, ms", "ratio", "reference", "times the reference")
    table = Table(f"medians of {turns} turns, processor time", columns)
    for name in names:
        for _ in range(tries):
            measured = in_new_process(name, slow, turns)
            times = measured.ratio / references[name]
            if times <= MOST:
                break
        failed += [name] if times > MOST else []
        figures = f"{measured.milliseconds:.3g}", f"{measured.fixed:.3g}", f"{measured.ratio:.3g}"
        table.row(name, *figures, f"{references[name]:.3g}", f"{times:.2f}")
    return failed


def main() -> None:
    """Run the gate; exit with status 1 if a figure is too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=FIGURES, help="measure this figure only")
    parser.add_argument("--record", action="store_true", help="write the references")
    parser.add_argument("--slow", type=float, default=1.0, help="slow the figures down that many times")
    parser.add_argument("--turns", type=int, default=TURNS, help="default: %(default)s")
    parser.add_argument("--tries", type=int, default=2, help="measurements of what is too slow; default: %(default)s")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(FIGURES)
    if arguments.record:
        record(names)
        return
    failed = compare(names, arguments.slow, arguments.turns, arguments.tries)
    sys.exit("\n".join(f"{name}: more than {MOST:g} times the reference" for name in failed) or 0)


if __name__ == "__main__":
    main()
