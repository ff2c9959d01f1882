"""Levels of the live learner after its first start, compared with those of a replay's learner after the same history.

The watcher runs as it ships, at the speed of life. It finds a cluster whose pods have run for days: their past, and the
first minutes of the trace, are in a real Prometheus. It measures a first round, fills the days before from Prometheus,
and serves the learned use. The replay's learner gets the trace's history and the first round.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import requests
from control_plane.cluster import ControlPlane
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from control_plane.usage import Kwok
from control_plane.world_player import JOB_SUFFIX, WorldClock, WorldPlayer
from past_series import past_lines, past_pods, running_pods
from placements import Placements
from support.servers import run_prometheus, wait_until

from runtime.kubernetes.workloads import Workload
from trimaran.simulator import past_days, windows
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES
from trimaran.simulator.windows import Windows
from trimaran.traces.history import STEP_SECONDS
from trimaran.traces.trace import JOB, Trace, write_trace
from watcher.wire import COLUMNS_TYPE
from watcher.wire.workloads import decode_workloads
from watcher.workload_table import WorkloadTable

LEVELS, PLACEMENTS, ORIGIN = "levels.json", "placements.jsonl", "origin.txt"
_HEAD_START_SECONDS = 60 * ROUND_MINUTES - 30  # before the pods are created, so that the first round is of the trace
_NEAR, _MOST_OF_USE = 0.02, 0.95
_FILLED = "the past use of workloads is filled"
_PROFILES: list[dict[str, Any]] = [{"schedulerName": "default-scheduler"}]


def live_levels(trace: Trace, folder: Path) -> None:
    """Let a watcher learn on a real control plane; write the trace and what it learned into a folder."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    write_trace(trace, folder / "world")
    clock, placements = WorldClock(1), Placements(trace)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(programs))
        kwok = stack.enter_context(Kwok(cluster, completes_jobs=False))
        player = stack.enter_context(WorldPlayer(cluster, trace, clock, placements))
        player.create_nodes(kwok.for_kwok)
        player.create_owners()
        stack.enter_context(Scheduler(cluster, _PROFILES, verbosity=1))
        clock.origin = int(time.time() - _HEAD_START_SECONDS) // STEP_SECONDS * STEP_SECONDS
        player.play(until=ROUND_MINUTES)
        wait_until(lambda: _are_tried(cluster, placements), "kube-scheduler has tried all pods")
        placements.write(folder / PLACEMENTS)
        bound = {run.pod for run in placements.runs}  # others fit no node
        running = [number for number in running_pods(trace, ROUND_MINUTES) if number in bound]
        (folder / ORIGIN).write_text(f"{clock.origin}\n")
        lines = past_lines(list(past_pods(trace, running)), int(clock.origin))
        prometheus = stack.enter_context(run_prometheus(programs, lines))
        watcher = stack.enter_context(_watcher(cluster, prometheus, programs))
        watcher.wait_until(lambda: _FILLED in watcher.output, "the past is filled", 120)
        answer = requests.get(f"{watcher.url}/workloads", headers={"Accept": COLUMNS_TYPE}, timeout=30)
        answer.raise_for_status()
        (folder / LEVELS).write_bytes(answer.content)


def _are_tried(cluster: ControlPlane, placements: Placements) -> bool:
    pods = cluster.api.items("/api/v1/pods")
    bound = [each for each in pods if each["spec"].get("nodeName")]
    return placements.running() == len(bound) > 0 and all(each["status"].get("conditions") for each in pods)


@contextmanager
def _watcher(cluster: ControlPlane, prometheus: str, programs: Path) -> Iterator[Process]:
    command = [
        sys.executable, "-m", "trimaran", "watch", "--port", "0", "--provider", "Prometheus", "--address", prometheus,
        "--store", str(programs / "watcher.sqlite"), "--set", f"provider.kube_config={cluster.kubeconfig()}",
    ]  # fmt: skip
    with Process(command, programs / "watcher.log") as watcher:
        yield watcher


def replayed_levels(trace: Trace, placements: Placements, origin: int, *, with_history: bool) -> WorkloadTable:
    """Return what a replay's learner knows after the history and the first round, with the placements of a live run.

    The replay begins at the time of the live run, as an earlier revision counts by the mean of its newest calendar day.
    """
    with patch.object(windows, "BEGIN_SECONDS", origin), patch.object(past_days, "BEGIN_SECONDS", origin):
        return _replayed_levels(trace, placements, with_history=with_history)


def _replayed_levels(trace: Trace, placements: Placements, *, with_history: bool) -> WorkloadTable:
    cluster = Cluster(trace if with_history else replace(trace, history=None), trace.overcommit)
    history = UseHistory(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster))
    for run in placements.runs:
        cluster.minute = int(trace.arrival_minute[run.pod])
        cluster.place(run.pod, cluster.pod(run.pod), run.node)
    cluster.minute = ROUND_MINUTES
    history.update()
    return history.learner.table()


def check_levels(folder: Path, trace: Trace, *, with_history: bool = True) -> dict[str, Any]:
    """Compare the levels of a live watcher with those of a replay.

    Args:
        folder: folder of the live run.
        trace: the trace.
        with_history: whether the replay's learner gets the history.

    Returns:
        The number of workloads with pods and, for CPU and memory, the percentage of the use that workloads have whose
        levels differ by at most 2 percent, the largest difference of these workloads' levels that have 95 percent of
        the use, and the median difference, weighed by the use.
    """
    placements = Placements.read(trace, folder / PLACEMENTS)
    live = decode_workloads((folder / LEVELS).read_bytes())
    origin = int((folder / ORIGIN).read_text())
    replayed = replayed_levels(trace, placements, origin, with_history=with_history)
    place_of = {workload: place for place, workload in enumerate(replayed.workloads)}
    pairs = [(place, place_of.get(_traced(each), -1)) for place, each in enumerate(live.workloads) if live.pods[place]]
    at, other = np.array(pairs).T
    expected = np.where(other < 0, 0.0, replayed.use[:, other])
    report: dict[str, Any] = {"workloads": len(pairs), "passes": True}
    for name, learned, ours in zip(("cpu", "memory"), live.use[:, at], expected, strict=True):
        share = learned * live.pods[at] / (learned * live.pods[at]).sum()
        differs = np.abs(ours - learned) / learned
        order = np.argsort(differs)
        cumulated = np.cumsum(share[order])
        near = float(share[differs <= _NEAR].sum())
        report[f"{name}_near_percent"] = round(100 * near, 1)
        report[f"{name}_most_percent"] = round(100 * float(differs[order][np.searchsorted(cumulated, _MOST_OF_USE)]), 2)
        report[f"{name}_median_percent"] = round(100 * float(differs[order][np.searchsorted(cumulated, 0.5)]), 3)
        report["passes"] &= near >= _MOST_OF_USE
    return report


def _traced(workload: Workload) -> Workload:
    """Return the trace's workload that the watcher has named."""
    return workload._replace(name=workload.name.removesuffix(JOB_SUFFIX)) if workload.kind == JOB else workload
