"""Faults while a real cluster places pods by load: pods are still bound, and the extender recovers.

Soon after each fault the extender's scores exactly equal scores from a fresh list of nodes and pods.
"""

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from control_plane.clock import Clock
from control_plane.cluster import ControlPlane
from control_plane.extender import Extender
from control_plane.manifests import container, node, pod
from control_plane.network import private_network
from control_plane.processes import children
from control_plane.relay import Relay
from support.leaks import replaced
from support.servers import Service, wait_until

import client
from scoring import FallbackPolicy, NodeTable, Pod
from trimaran.extender.profiles import Profiles

pytestmark = pytest.mark.e2e

SOON = 30.0
TIMEOUT = 0.5  # kube-scheduler's httpTimeout, as in ``render_config``
LIFETIME = 40.0
BUSY = 20.0  # tolerance for a busy machine
NODES = [f"node-{number}" for number in range(20)]
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "balancing",
            "plugins": {"score": {"enabled": [{"name": "LoadVariationRiskBalancing", "weight": 1}]}},
        },
        {"schedulerName": "default-scheduler"},
    ],
}


def balancing_pod(name: str) -> dict[str, Any]:
    """Return a pod with requests that change the score of its node."""
    return pod(name, container(requests={"cpu": "100m", "memory": "256Mi"}), schedulerName="balancing")


PROBE = balancing_pod("probe")  # with a fixed UID: the next request for it withdraws its assumption
PROBE["metadata"]["uid"] = "probe"


@dataclass
class System:
    """A cluster with a stock kube-scheduler, an extender and a watcher."""

    cluster: ControlPlane
    relay: Relay
    watcher: Service
    extender: Extender
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def create(self, count: int) -> None:
        self.cluster.api.create(*(balancing_pod(f"pod-{next(self.numbers)}") for _ in range(count)))

    def all_bound(self) -> bool:
        return all(each["spec"].get("nodeName") for each in self.cluster.api.items("/api/v1/pods"))

    def place(self, count: int, seconds: float = 60) -> float:
        """Create pods; return the seconds until all pods are bound."""
        began = time.monotonic()
        self.create(count)
        wait_until(self.all_bound, f"{count} pods are placed", seconds)
        return time.monotonic() - began

    def difference(self) -> str:
        """Return the nodes whose extender score differs from one computed from a fresh list, or ""."""
        table = NodeTable.from_k8s(self.cluster.api.items("/api/v1/nodes"), self.cluster.api.items("/api/v1/pods"))
        with client.connect(self.watcher.url) as reading:
            judgment = FallbackPolicy(max_age_seconds=3600).judge(table, reading.metrics(), time.time())
        balancing = Profiles.read(CONFIGURATION).by_scheduler["balancing"]
        total = balancing.profile.prepare(table, judgment).score(Pod.from_k8s(PROBE), among=NODES).total
        fresh = dict(zip(NODES, balancing.to_points(total).tolist(), strict=True))
        served = self.extender.scores(PROBE, NODES)
        return ", ".join(f"{name}: {served[name]}, not {fresh[name]}" for name in NODES if served[name] != fresh[name])

    def is_scored(self) -> bool:
        """Place a pod; return whether it was scored by load."""
        before = self.extender.outcome("scored")
        self.place(1)
        return self.extender.outcome("scored") > before

    def check_recovery(self) -> None:
        """Wait until the extender's scores are right again, and check that pods are placed by them."""
        until, last = time.monotonic() + SOON, "unknown"
        while last:
            try:
                last = self.difference()
            except (requests.ConnectionError, client.ClientError) as error:
                last = str(error)
                time.sleep(0.1)
            assert not last or time.monotonic() < until, f"after {SOON:.0f} s the extender's scores are {last}"
        wait_until(self.is_scored, "a pod is scored", SOON)
        self.place_scored(10)

    def place_scored(self, count: int) -> float:
        """Place pods and check that they were scored by load; return the seconds that it took.

        A request that a fault of before held up may be counted only now, so that more may be counted than are placed.
        """
        before = self.extender.outcome("scored")
        took = self.place(count)
        assert self.extender.outcome("scored") >= before + count
        return took


@contextmanager
def running_system(
    folder: Path,
    *,
    interval: str = "3000",
    clocks: Mapping[str, Clock] | None = None,
    lifetime: float | None = None,
    **settings: object,
) -> Iterator[System]:
    """Run a cluster, a scheduler, an extender and a watcher; yield them as a system.

    Args:
        folder: folder for all files.
        interval: seconds between the watcher's fetches; by default it fetches once.
        clocks: clocks of the extender and the watcher, by their names; the machine's clock by default.
        lifetime: seconds of validity of the scheduler's certificate for the extender; None is plain HTTP.
        settings: settings of the extender.
    """
    dice, clocks = random.Random(9), clocks or {}
    loads = {name: {kind: {"average": dice.uniform(5, 60)} for kind in ("cpu", "memory")} for name in NODES}
    (folder / "loads.json").write_text(json.dumps(loads))
    with ControlPlane(folder) as cluster, Relay(cluster) as relay:
        cluster.api.create(*map(node, NODES))
        watcher = watching(folder, interval, clocks.get("watcher"))
        issue, tls, scheduler_certificate = cluster.certificates.issue, {}, None
        if lifetime is not None:
            tls = {"certificate": issue("extender"), "client_certificate": issue("probe")}
            scheduler_certificate = issue("scheduler", lifetime)
        extender = Extender(
            cluster, CONFIGURATION, watcher.url, kubeconfig=cluster.kubeconfig(server=relay.url),
            environment=clocks["extender"].environment if "extender" in clocks else None,
            extender__refresh_seconds=1, extender__deadline_seconds=0.4, **tls, **settings,
        )  # fmt: skip
        system = System(cluster, relay, watcher, extender)
        try:
            with extender, extender.scheduler(certificate=scheduler_certificate, verbosity=2):
                system.check_recovery()
                yield system
        finally:
            system.watcher.kill()


def watching(folder: Path, interval: str = "3000", clock: Clock | None = None, port: int = 0) -> Service:
    """Start a watcher of the loads in the folder; cold, as a forked process keeps the machine's clock."""
    environment = {
        "TRIMARAN_FAKE__FILE": str(folder / "loads.json"), "TRIMARAN_WATCH__EXPIRY_SECONDS": "3600",
        **(clock.environment if clock else {}),
    }  # fmt: skip
    arguments = ("--provider", "Fake", "--interval", interval)
    watcher = Service(
        folder / "watcher.sqlite", folder / "watcher.log", *arguments, port=port, cold=True, **environment
    )
    watcher.wait_for("/readyz")
    return watcher


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with constant load, for all faults of processes and watches."""
    with running_system(tmp_path_factory.mktemp("cluster"), extender__max_age_seconds=3600) as system:
        yield system


def test_pods_are_bound_after_the_extender_is_killed(system: System) -> None:
    """After SIGKILL of the worker or the whole extender in a burst all pods are bound, and later pods scored."""
    (worker,) = children(system.extender.process.pid)
    system.create(20)
    os.kill(worker, signal.SIGKILL)
    assert system.place(20) < 40 * TIMEOUT + BUSY
    system.check_recovery()
    system.create(20)
    system.extender.process.kill()
    assert system.place(20) < BUSY  # connections are refused at once
    system.extender.process.restart()
    system.check_recovery()


def test_a_paused_extender_delays_pods_by_the_timeout(system: System) -> None:
    """With a paused extender each pod waits for the scheduler's httpTimeout and no longer."""
    before = system.extender.outcome("scored")
    system.extender.process.pause()
    try:
        took = system.place(10)
    finally:
        system.extender.process.resume()
    assert 10 * TIMEOUT <= took < 10 * TIMEOUT + BUSY
    system.check_recovery()
    assert system.extender.outcome("deadline") + system.extender.outcome("scored") > before


def test_pods_are_scored_after_the_watcher_is_killed(system: System) -> None:
    """Without the watcher pods are scored by the last metrics; after a restart it serves its stored metrics."""
    system.watcher.kill()
    assert system.place_scored(10) < BUSY
    with replaced(system.watcher.process.pid):
        system.watcher = watching(system.cluster.folder, port=system.watcher.port)
    system.check_recovery()


def test_a_paused_watcher_delays_no_pods(system: System) -> None:
    """With a paused watcher pods are scored by the last metrics without delay."""
    os.killpg(system.watcher.process.pid, signal.SIGSTOP)
    try:
        time.sleep(3)  # so that some reads are in flight and wait
        assert system.place_scored(10) < BUSY
    finally:
        os.killpg(system.watcher.process.pid, signal.SIGCONT)
    system.check_recovery()


def test_pods_are_scored_while_events_are_late(system: System) -> None:
    """Pods are scored and bound while one watch event of five, and all behind it, are half a minute late."""
    before, late, until = system.extender.outcome("scored"), [], time.monotonic() + 45
    system.relay.delayed_share, system.relay.delay_seconds = 0.2, 30.0
    try:
        while time.monotonic() < until:
            assert system.place(5) < BUSY
            time.sleep(2)
            late.append(bool(system.difference()))
    finally:
        system.relay.delayed_share = 0.0
    assert any(late)
    assert system.extender.outcome("scored") >= before + 5 * len(late)
    system.check_recovery()


def test_pods_are_bound_despite_dropped_packets(tmp_path: Path) -> None:
    """Pods are bound with a third and with all packets of a connection lost; the extender recovers afterwards."""
    with private_network() as network, running_system(tmp_path, extender__max_age_seconds=3600) as system:
        network.drop(30, system.extender.url, system.relay.url, system.watcher.url)
        took = [system.place(5) for _ in range(4)]
        network.heal()
        assert max(took) < 5 * TIMEOUT + BUSY
        system.check_recovery()
        network.drop(100, system.extender.url)
        took = [system.place(10)]
        network.heal()
        assert 10 * TIMEOUT <= took[0] < 10 * TIMEOUT + BUSY
        system.check_recovery()
        network.drop(100, system.relay.url)
        assert system.place(10) < BUSY
        # These pods may all be on their assumed nodes, without a difference; pods of other profiles are not assumed.
        system.cluster.api.create(*(pod(f"other-{number}", container(requests={"cpu": "1"})) for number in range(5)))
        wait_until(system.all_bound, "pods of another profile are placed", BUSY)
        assert system.difference()
        time.sleep(25)  # long enough for the view to give up its watches
        assert system.place(10) < BUSY
        network.heal()
        system.check_recovery()
        network.drop(100, system.watcher.url)
        time.sleep(3)  # so that some reads are in flight without a response
        assert system.place_scored(10) < BUSY  # by the last metrics
        network.heal()
        system.check_recovery()


def test_pods_are_bound_despite_wrong_clocks(tmp_path: Path) -> None:
    """With a clock an hour off pods are bound; with the right clock they are scored by load again."""
    clocks = {name: Clock(tmp_path, name) for name in ("extender", "watcher")}
    # The metrics of a watcher whose clock is behind are older than the extender's, which it uses for a while.
    cases = (("extender", 3600, True), ("extender", -3600, True), ("watcher", 3600, True), ("watcher", -3600, False))
    with running_system(tmp_path, interval="4", clocks=clocks) as system:
        for name, seconds, is_blind in cases:
            clocks[name].set(seconds)
            assert system.place(10) < BUSY, f"the {name}'s clock is off by {seconds} s"
            if is_blind:
                wait_until(lambda: outage(system), f"metrics are too old or too new, {name} {seconds:+d} s", SOON)
            else:
                time.sleep(6)  # the watcher has fetched since
                assert not outage(system)
            assert system.place(10) < BUSY
            clocks[name].set(0)
            wait_until(lambda: not outage(system), f"metrics are fresh again, {name} {seconds:+d} s", SOON)
            system.check_recovery()


def outage(system: System) -> bool:
    """Return whether the extender has no metrics for a pod that is scored now."""
    before = system.extender.outcome("no_metrics")
    system.extender.scores(PROBE, NODES)
    return system.extender.outcome("no_metrics") > before


def test_pods_are_bound_with_expired_certificates(tmp_path: Path) -> None:
    """With an expired certificate of scheduler or extender pods are bound unscored; with a new one they are scored."""
    with running_system(tmp_path, lifetime=LIFETIME, extender__max_age_seconds=3600) as system:
        authority, began = system.cluster.certificates, time.monotonic()
        assert system.extender.outcome("scored") > 0
        time.sleep(LIFETIME - (time.monotonic() - began))
        before = system.extender.outcome("scored")
        assert system.place(10) < BUSY
        assert system.extender.outcome("scored") == before
        authority.issue("scheduler")
        system.check_recovery()

        expires = time.monotonic() + 5
        authority.issue("extender", 5)
        time.sleep(max(0.0, expires - time.monotonic()) + 1)
        (worker,) = children(system.extender.process.pid)
        os.kill(worker, signal.SIGKILL)  # open connections would outlive the certificate
        assert system.place(10) < BUSY
        with pytest.raises(requests.exceptions.SSLError, match="expired"):
            system.extender.outcome("scored")
        authority.issue("extender")
        wait_until(lambda: not problem(system), "the new certificate is served", SOON)
        assert system.extender.outcome("scored") == 0
        system.check_recovery()


def problem(system: System) -> str:
    """Return the error of a request to the extender, or ""."""
    try:
        system.extender.outcome("scored")
    except requests.RequestException as error:
        return str(error)
    return ""
