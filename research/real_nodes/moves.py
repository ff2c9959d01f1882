"""Long run of the rebalancer, and latency for the users of the pods that it moves.

All services begin on one node, next to a job, so that it is hot; other nodes have jobs of their own. Each service has
two pods, and its requests go to the pods that are Ready in turn, as with kube-proxy: pods go on serving for a moment
after SIGTERM, as well-behaved ones do. The rebalancer acts from a minute on. It knows a day of use at its first look,
since a made-up watcher says that each pod always used what it uses now.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np
from control_plane.extender import Extender
from control_plane.landings import CONFIGURATION
from control_plane.moving import RebalancerProcess, budget, ledger
from measuring import (
    CORES,
    COST_MILLISECONDS,
    NODES,
    PORT,
    append_rows,
    cluster_folder,
    create_pod,
    idle_percents,
    read_rows,
    url,
    worst,
)
from open_loop import Floats, Generator, failures, latencies
from real_nodes.cluster import RealCluster
from real_nodes.measured_day import MeasuredDay
from real_nodes.programs import account, container, deployment, grant_shipped_rights, only, pods_of, run_watcher
from real_nodes.recorder import Recorder
from support.waiting import wait_until

from trimaran.rebalancer.moves import MoveRecord

MOVES, SERVICES = "moves.csv", "moves-services.csv"
REPLICAS, RATES = 2, {"service-0": 10.0, "service-1": 15.0, "service-2": 20.0, "service-3": 25.0}
#: Cores of the job of each node; the services begin on the last one.
JOBS = (0.0, 0.03, 0.06, 0.09)
#: A move counts for the users of its workload from the eviction until so long after the replacement is Ready.
AFTER_SECONDS = 10.0
_QUIET_MINUTES = 2
_ENDS_SECONDS = 1.5  # less than the grace period of 2 s
_WARM_UP_SECONDS, _KNOWN_SECONDS = 20.0, 3.0


@dataclass
class Move:
    """A move, and what the users of its workload felt. Loads are percent of a node, of 30 s before and after.

    Attributes:
        seed: seed of the run.
        name: name of the evicted pod.
        source, target, landed_on: names of nodes.
        seconds: time from the eviction until the replacement was Ready.
        source_before, source_after, target_before, target_after: loads.
        requests, failed, slow: requests to the workload around the move, those of them without an answer, and those
            that took more than 50 ms.
        slow_before: percentage of the workload's requests that took more than 50 ms in the minute before.
    """

    seed: int
    name: str
    source: str
    target: str
    landed_on: str
    seconds: float
    source_before: float
    source_after: float
    target_before: float
    target_after: float
    requests: int
    failed: int
    slow: int
    slow_before: float


@dataclass
class ServiceMinute:
    """Latency of a service in a minute.

    Attributes:
        seed: seed of the run.
        service: name.
        minute: minute of the run; the rebalancer acts from the third one on.
        requests, failed: requests, and those without an answer.
        p50, p99: latency, milliseconds.
        slow: percentage of the requests that took more than 50 ms, or had no answer.
        hottest: load of the hottest node in the minute, percent.
    """

    seed: int
    service: str
    minute: int
    requests: int
    failed: int
    p50: float
    p99: float
    slow: float
    hottest: float


class Endpoints:
    """Files with the URLs of the Ready pods of each service, kept up to date. Use it as a context manager.

    Args:
        cluster: the cluster.
        folder: folder of the files.
    """

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster, self._stop = cluster, Event()
        self.files = {name: folder / f"{name}.urls" for name in RATES}
        self._thread = Thread(target=self._run, name="endpoints")

    def __enter__(self) -> Mapping[str, Path]:
        self._thread.start()
        return self.files

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for name, file in self.files.items():
                new = file.with_suffix(".new")
                new.write_text("\n".join(ready_urls(self._cluster, name)))
                new.replace(file)


def ready_urls(cluster: RealCluster, app: str) -> list[str]:
    """Return the addresses of the pods of a Deployment that are Ready and not about to end."""
    return [
        url(pod)
        for pod in pods_of(cluster, app)
        if "deletionTimestamp" not in pod["metadata"]
        and any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"].get("conditions", ()))
    ]


def moves(options: argparse.Namespace) -> int:
    """Let the rebalancer act on a hot node for a long time; write its moves, and the latency of all services."""
    with cluster_folder(options.folder) as folder, _running(folder, options.period) as (cluster, recorder, day):
        plan = [(minute, name) for minute in range(options.minutes) for name in RATES]
        with Endpoints(cluster, folder) as files:
            wait_until(lambda: all(path.exists() and path.read_text() for path in files.values()), "endpoints", 30)
            begins = [_WARM_UP_SECONDS + 60 * minute for minute, _ in plan]
            phases = [
                (begin, begin + 60, RATES[name], f"@{files[name]}")
                for begin, (_, name) in zip(begins, plan, strict=True)
            ]
            warm_up = [(0.0, _WARM_UP_SECONDS, RATES[name], f"@{file}") for name, file in files.items()]
            with Generator([*phases, *warm_up], options.seed) as generator:
                begin = generator.begin + _WARM_UP_SECONDS
                idle = list(idle_percents(begin, [begin + 60 * n + 60 for n in range(_QUIET_MINUTES)]))
                rebalancer = RebalancerProcess(
                    cluster, day.url, "act", lease_seconds=30, moves_per_hour=options.moves_per_hour
                )
                try:
                    rest = range(_QUIET_MINUTES, options.minutes)
                    idle += idle_percents(begin + 60 * _QUIET_MINUTES, [begin + 60 * n + 60 for n in rest])
                    found = [each for each in ledger(cluster) if each.is_made]
                finally:
                    rebalancer.process.kill()
                requests = generator.result()
        time.sleep(_KNOWN_SECONDS)
        parts = [requests[requests[:, 0] == number] for number in range(len(plan))]
        disturbance = worst(parts, idle)
        print(disturbance)
        rows = [
            _minute(options.seed, name, minute, part, _hottest(recorder, cluster, begin + 60 * minute))
            for (minute, name), part in zip(plan, parts, strict=True)
        ]
        requests[:, 1] += generator.begin
        services = np.array([name for _, name in plan] + list(RATES))[requests[:, 0].astype(int)]
        felt = [
            _move(options.seed, each, requests[services == each.workload], recorder)
            for each in found
            if each.ready_at and each.ready_at + 30 < begin + 60 * options.minutes
        ]
        print(f"{len(found)} moves, {len(felt)} of them complete")
        kept = options.folder / "disturbed" if disturbance.is_too_large else options.folder
        append_rows(kept / SERVICES, rows)
        if felt:
            append_rows(kept / MOVES, felt)
    if disturbance.is_too_large:
        print(f"disturbed: its rows are in {kept}; run it again")
    return int(disturbance.is_too_large)


def _minute(seed: int, name: str, minute: int, requests: Floats, hottest: float) -> ServiceMinute:
    return ServiceMinute(seed, name, minute, len(requests), failures(requests), *latencies(requests), hottest)


def _hottest(recorder: Recorder, cluster: RealCluster, begin: float) -> float:
    return max(100 * recorder.cores(name, begin, begin + 60) / CORES for name in cluster.nodes)


def _move(seed: int, record: MoveRecord, requests: Floats, recorder: Recorder) -> Move:
    """Return what the users of the workload of a move felt.

    Args:
        seed: seed of the run.
        record: the move.
        requests: requests to the workload, with their intended times in Unix seconds.
        recorder: recorder of the nodes.
    """
    begin, end = record.evicted_at, record.ready_at
    around = requests[(requests[:, 1] >= begin) & (requests[:, 1] < end + AFTER_SECONDS)]
    before = requests[(requests[:, 1] >= begin - 60) & (requests[:, 1] < begin)]
    loads = [
        100 * recorder.cores(name, *span) / CORES
        for name in (record.source, record.node)
        for span in ((begin - 30, begin), (end, end + 30))
    ]
    slow = round(latencies(around)[2] * len(around) / 100) if len(around) else 0
    return Move(
        seed, record.name, record.source, record.target, record.landed_on, end - begin, *loads, len(around),
        failures(around), slow, latencies(before)[2] if len(before) else 0.0,
    )  # fmt: skip


@contextmanager
def _running(folder: Path, period_microseconds: int) -> Iterator[tuple[RealCluster, Recorder, MeasuredDay]]:
    settings = ("--set", "watch.windows=60s", "--set", "watch.interval_seconds=5")
    with RealCluster(folder, [CORES] * NODES, period_microseconds=period_microseconds) as cluster:
        grant_shipped_rights(cluster)
        with (
            run_watcher(cluster, *settings) as watcher,
            Extender(
                cluster, CONFIGURATION, watcher.url, kubeconfig=account(cluster, "extender"),
                extender__deadline_seconds=0.4,
            ) as extender,
            extender.scheduler(verbosity=2), Recorder(cluster) as recorder, MeasuredDay(cluster, recorder) as day,
        ):  # fmt: skip
            for name, cores in zip(cluster.nodes, JOBS, strict=True):
                create_pod(cluster.api, f"job-{name}", container({"cpu": "10m", "memory": "16Mi"}, BURN=cores), name)
            service = container({"cpu": "20m", "memory": "16Mi"}, PORT=PORT, COST=COST_MILLISECONDS, TERM=_ENDS_SECONDS)
            service["readinessProbe"] = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
            with only(cluster, list(cluster.nodes)[-1]):
                for name in RATES:
                    cluster.api.create(deployment(name, REPLICAS, service), budget(name, 1))
                wait_until(
                    lambda: all(len(ready_urls(cluster, name)) == REPLICAS for name in RATES), "all services run", 120
                )
            yield cluster, recorder, day


def moves_table(folder: Path) -> None:
    """Print the moves of each run, and the latency of all services in each minute."""
    rows, made = read_rows(folder / SERVICES), read_rows(folder / MOVES)
    for seed in sorted({row["seed"] for row in rows}, key=int):
        print(f"\nseed {seed}")
        _run_table([row for row in rows if row["seed"] == seed], [row for row in made if row["seed"] == seed])


def _run_table(rows: list[dict[str, str]], made: list[dict[str, str]]) -> None:
    print("\n| minute | hottest node, % | requests | failed | over 50 ms, % | worst p99 of a service, ms |")
    print("|---:|---:|---:|---:|---:|---:|")
    for minute in sorted({int(row["minute"]) for row in rows}):
        of = [row for row in rows if int(row["minute"]) == minute]
        counts = np.array([float(row["requests"]) for row in of])
        slow = np.average([float(row["slow"]) for row in of], weights=counts)
        failed, p99 = sum(int(row["failed"]) for row in of), max(float(row["p99"]) for row in of)
        print(f"| {minute} | {float(of[0]['hottest']):.0f} | {counts.sum():.0f} | {failed} | {slow:.1f} | {p99:.0f} |")
    print(
        "\n| move | from, before and after, % | to, before and after, % | Ready after, s | requests | failed | slow | ",
        end="",
    )
    print("slow before, % |\n|---|---|---|---:|---:|---:|---:|---:|")
    for row in made:
        loads = {name: float(row[name]) for name in row if name.endswith(("_before", "_after"))}
        source = f"{row['source']}, {loads['source_before']:.0f}, {loads['source_after']:.0f}"
        target = f"{row['landed_on']}, {loads['target_before']:.0f}, {loads['target_after']:.0f}"
        users = f"{row['requests']} | {row['failed']} | {row['slow']} | {loads['slow_before']:.1f}"
        print(f"| {row['name']} | {source} | {target} | {float(row['seconds']):.1f} | {users} |")
