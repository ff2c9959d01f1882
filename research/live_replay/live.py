"""One live run: the control plane, the services, the played trace, and everything that is recorded."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.extender import Extender
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from control_plane.usage import Kwok
from control_plane.world_player import CONTROLLERS, PodForm, WorldClock, WorldPlayer
from divided import JOURNAL_VARIABLE, SPEED_VARIABLE
from movers import MOVERS, moving
from placements import Placements
from use_server import use_server

from scoring.plugins.congestion_cost import CongestionCost
from trimaran.extender.decisions.routes import MOST
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import CONGESTION, DEFAULT, configuration_of
from trimaran.traces.trace import Trace, write_trace

FOLDER = Path(__file__).parent
BY_REQUESTS = "congestion-cost-by-requests"
PLACEMENTS = (DEFAULT, BY_REQUESTS, CONGESTION)
POLICIES = (*PLACEMENTS, *(f"{placement}+{mover}" for placement in PLACEMENTS for mover in MOVERS))
HIGHEST_SPEED = 20
CONFIGURATION = configuration_of(CongestionCost.name)
_DEFAULT_PROFILES: list[Mapping[str, Any]] = [{"schedulerName": "default-scheduler"}]
_PROGRAM = (sys.executable, str(FOLDER / "divided.py"))
_SETTLE_SECONDS = 1.0
_MOST_LAG_MINUTES = 0.5  # mean time from a minute of the trace to the creation of its pods
_DECISIONS_MINUTES = 60  # between two reads of the extender's record, in fewer than its thousand newest decisions


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live run.

    Attributes:
        policy: one of :data:`POLICIES`, by the simulator's names: a placement, and after a plus what moves pods.
        speed: minutes of the trace in a minute of life; it divides 300.
        form: form of the pods; with moves they are replicas.
        deadline_seconds: deadline of the extender's scores; the shipped one by default.
    """

    policy: str = BY_REQUESTS
    speed: int = HIGHEST_SPEED
    form: PodForm = PodForm.BARE
    deadline_seconds: float = 0.04

    def __post_init__(self) -> None:
        if not 1 <= self.speed <= HIGHEST_SPEED or 300 % self.speed:
            raise ValueError(f"speed = {self.speed}: must divide 300, and be from 1 to {HIGHEST_SPEED}")
        if self.policy not in POLICIES:
            raise ValueError(f"policy = {self.policy}: must be one of {', '.join(POLICIES)}")

    @property
    def placement(self) -> str:
        """Policy that places pods."""
        return self.policy.partition("+")[0]

    @property
    def mover(self) -> str:
        """Mover of running pods; "" for none."""
        return self.policy.partition("+")[2]


def install_provider(folder: Path) -> Path:
    """Install the provider's package into a folder, as any package of a provider; return the folder."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--disable-pip-version-check", "--target", folder, FOLDER / "provider"], check=True)
    return folder


def live_run(trace: Trace, options: LiveOptions, folder: Path) -> dict[str, Any]:
    """Play a trace under a policy; write what happened into a folder, and return the content of ``outcome.json``.

    The folder gets the trace (``world/``), ``placements.jsonl`` with the pods' nodes over time, ``findings.json`` of
    the watcher, ``rebalancer.json`` with its moves, and ``outcome.json``, which is not ``in_time`` if the machine was
    too slow to play the trace. Without moves it also gets ``journal.jsonl`` with the inputs of every scored pod, and
    ``decisions.jsonl`` with the extender's own records.
    """
    form = PodForm.REPLICA if options.mover else options.form
    folder.mkdir(parents=True, exist_ok=True)
    write_trace(trace, folder / "world")
    clock, placements, lags = WorldClock(options.speed), Placements(trace), []
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(_made(folder / "programs")))
        kwok = stack.enter_context(Kwok(cluster, completes_jobs=False))
        player = stack.enter_context(WorldPlayer(cluster, trace, clock, placements, form))
        player.create_nodes(kwok.for_kwok)
        player.create_owners()
        if form is PodForm.REPLICA:
            stack.enter_context(ControllerManager(cluster, CONTROLLERS))
        watcher, extender = "", None
        if options.policy != DEFAULT:
            watcher = stack.enter_context(_watcher(cluster, placements, clock, folder))
        if options.placement == DEFAULT:
            stack.enter_context(Scheduler(cluster, _DEFAULT_PROFILES, verbosity=1))
        else:
            extender = stack.enter_context(_extender(cluster, watcher, options, folder))
            rendered = render_config(CONFIGURATION, ExtenderEndpoint(extender.url))
            extenders = {"extenders": rendered["extenders"]}
            stack.enter_context(Scheduler(cluster, rendered["profiles"], verbosity=1, **extenders))
        if options.mover:
            stack.enter_context(moving(options.mover, cluster, watcher, _PROGRAM, options.speed, folder))
        time.sleep(_SETTLE_SECONDS)
        clock.start()
        recorded: dict[str, Any] = {}

        def report(minute: int) -> None:
            lags.append(clock.minute() - minute)
            if extender is not None and not options.mover and minute % _DECISIONS_MINUTES == 0:
                recorded.update(_recent_decisions(extender))

        player.play(report=report)
        if extender is not None:
            if not options.mover:
                recorded.update(_recent_decisions(extender))
            _save_services(watcher, extender, recorded, folder)
    outcome = placements.outcome(options.policy)
    placements.write(folder / "placements.jsonl")
    result = measures(outcome)
    lag = sum(lags) / len(lags)
    document = {
        "world": trace.name, "policy": options.policy, "speed": options.speed, "origin": clock.origin,
        "measures": result, "player_lag_minutes": {"mean": lag, "most": max(lags)},
        "in_time": lag <= _MOST_LAG_MINUTES,
    }  # fmt: skip
    (folder / "outcome.json").write_text(json.dumps(document, indent=1))
    return document


@contextmanager
def _watcher(cluster: ControlPlane, placements: Placements, clock: WorldClock, folder: Path) -> Iterator[str]:
    """Run the watcher; yield its URL."""
    programs = folder / "programs"
    site = str(install_provider(programs / "site"))
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))}
    with use_server(placements, clock) as use_url:
        command = [
            *_PROGRAM, "watch", "--port", "0", "--provider", "LiveReplay", "--address", use_url,
            "--store", str(programs / "watcher.sqlite"), "--set", f"provider.kube_config={cluster.kubeconfig()}",
        ]  # fmt: skip
        watcher = Process(command, programs / "watcher.log", {SPEED_VARIABLE: str(clock.speed)} | paths)
        try:
            watcher.wait_until(lambda: requests.get(f"{watcher.url}/readyz", timeout=5).ok, "the watcher is ready")
            yield watcher.url
        finally:
            watcher.terminate()


@contextmanager
def _extender(cluster: ControlPlane, watcher: str, options: LiveOptions, folder: Path) -> Iterator[Extender]:
    """Run the extender of a placement."""
    settings = {
        "extender__learned_use": options.placement == CONGESTION,
        "extender__deadline_seconds": options.deadline_seconds,
        "extender__explain": "open",
    }
    environment = {SPEED_VARIABLE: str(options.speed)}
    if not options.mover:  # a moved pod is there twice for a moment, so that decisions are not checked
        environment[JOURNAL_VARIABLE] = str(folder / "journal.jsonl")
    with Extender(cluster, CONFIGURATION, watcher, environment=environment, program=_PROGRAM, **settings) as extender:
        yield extender


def _recent_decisions(extender: Extender) -> dict[str, Any]:
    """Return the newest decisions of the extender's own record, by uid."""
    answer = requests.get(f"{extender.url}/decisions", params={"limit": MOST}, timeout=30).json()
    return {decision["uid"]: decision for decision in reversed(answer["decisions"])}


def _save_services(watcher: str, extender: Extender, decisions: Mapping[str, Any], folder: Path) -> None:
    findings = requests.get(f"{watcher}/findings", timeout=30).json()
    (folder / "findings.json").write_text(json.dumps(findings, indent=1))
    (folder / "decisions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in decisions.values()))
    (folder / "extender_metrics.json").write_text(json.dumps(extender.metrics(), indent=1))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
