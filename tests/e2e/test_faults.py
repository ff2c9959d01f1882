"""Placing pods by load on a real cluster while something fails: pods are bound all the same, and it mends by itself.

After each fault the extender's scores are soon those of a fresh list of nodes and pods, to the point.
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
from support.servers import Service, free_port, wait_until

import client
from scoring import FallbackPolicy, NodeTable, Pod
from trimaran.extender.profiles import Profiles

pytestmark = pytest.mark.e2e

SOON = 30.0
TIMEOUT = 0.5  # kube-scheduler's httpTimeout, as the product writes it
LIFETIME = 40.0
BUSY = 5.0  # what a machine with other work to do may take beside it
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


def wanted(name: str) -> dict[str, Any]:
    """Return a pod that shows in the score of the node that it is on."""
    return pod(name, container(requests={"cpu": "100m", "memory": "256Mi"}), schedulerName="balancing")


PROBE = wanted("probe")  # with an UID of its own: where it is assumed is taken back when it is asked about again
PROBE["metadata"]["uid"] = "probe"


@dataclass
class Placing:
    """A cluster in which a stock kube-scheduler asks an extender, which asks a watcher."""

    cluster: ControlPlane
    relay: Relay
    watcher: Service
    extender: Extender
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def create(self, count: int) -> None:
        self.cluster.api.create(*(wanted(f"pod-{next(self.numbers)}") for _ in range(count)))

    def all_bound(self) -> bool:
        return all(each["spec"].get("nodeName") for each in self.cluster.api.items("/api/v1/pods"))

    def place(self, count: int, seconds: float = 60) -> float:
        """Create pods; return how long it took until they were bound, in seconds."""
        began = time.monotonic()
        self.create(count)
        wait_until(self.all_bound, f"{count} pods are placed", seconds)
        return time.monotonic() - began

    def difference(self) -> str:
        """Say where the extender scores a pod otherwise than a fresh list of nodes and pods has it, "" if nowhere."""
        table = NodeTable.from_k8s(self.cluster.api.items("/api/v1/nodes"), self.cluster.api.items("/api/v1/pods"))
        with client.connect(self.watcher.url) as reading:
            judgment = FallbackPolicy(max_age_seconds=3600).judge(table, reading.metrics(), time.time())
        ours = Profiles.read(CONFIGURATION).by_scheduler["balancing"]
        total = ours.profile.prepare(table, judgment).score(Pod.from_k8s(PROBE), among=NODES).total
        fresh, found = dict(zip(NODES, ours.answered(total).tolist(), strict=True)), self.extender.scores(PROBE, NODES)
        return ", ".join(f"{name}: {found[name]}, not {fresh[name]}" for name in NODES if found[name] != fresh[name])

    def is_scored(self) -> bool:
        """Place a pod; return whether it was scored by load."""
        before = self.extender.outcome("scored")
        self.place(1)
        return self.extender.outcome("scored") > before

    def mends(self) -> None:
        """Wait until the extender scores by what there is again, and place pods by that."""
        until, last = time.monotonic() + SOON, "unknown"
        while last:
            try:
                last = self.difference()
            except (requests.ConnectionError, client.ClientError) as error:
                last = str(error)
                time.sleep(0.1)
            assert not last or time.monotonic() < until, f"after {SOON:.0f} s the extender's scores are {last}"
        wait_until(self.is_scored, "a pod is scored", SOON)
        before = self.extender.outcome("scored")
        self.place(10)
        assert self.extender.outcome("scored") == before + 10


@contextmanager
def placing(
    folder: Path,
    *,
    interval: str = "3000",
    clocks: Mapping[str, Clock] | None = None,
    lifetime: float | None = None,
    **settings: object,
) -> Iterator[Placing]:
    """Run all of it.

    Args:
        folder: for all that it writes.
        interval: of the watcher's fetches, seconds; by default it fetches once.
        clocks: of the extender and the watcher, by their names; the machine's by default.
        lifetime: of the scheduler's certificate for the extender, seconds; by default they talk without any.
        settings: of the extender.
    """
    dice, clocks = random.Random(9), clocks or {}
    loads = {name: {kind: {"average": dice.uniform(5, 60)} for kind in ("cpu", "memory")} for name in NODES}
    (folder / "loads.json").write_text(json.dumps(loads))
    with ControlPlane(folder) as cluster, Relay(cluster) as relay:
        cluster.api.create(*map(node, NODES))
        watcher = watching(folder, free_port(), interval, clocks.get("watcher"))
        issue, tls, of_scheduler = cluster.certificates.issue, {}, None
        if lifetime is not None:
            tls = {"certificate": issue("extender"), "client_certificate": issue("probe")}
            of_scheduler = issue("scheduler", lifetime)
        extender = Extender(
            cluster, CONFIGURATION, watcher.url, kubeconfig=cluster.kubeconfig(server=relay.url),
            environment=clocks["extender"].environment if "extender" in clocks else None,
            extender__refresh_seconds=1, extender__deadline_seconds=0.4, **tls, **settings,
        )  # fmt: skip
        made = Placing(cluster, relay, watcher, extender)
        try:
            with extender, extender.scheduler(certificate=of_scheduler, verbosity=2):
                made.mends()
                yield made
        finally:
            made.watcher.kill()


def watching(folder: Path, port: int, interval: str = "3000", clock: Clock | None = None) -> Service:
    """Start a watcher of the loads in the folder; cold, as one that was forked has this machine's clock and network."""
    environment = {
        "TRIMARAN_FAKE__FILE": str(folder / "loads.json"), "TRIMARAN_WATCH__EXPIRY_SECONDS": "3600",
        "TRIMARAN_QUALITY__FROZEN_ACTION": "report",  # these loads do stand still
        **(clock.environment if clock else {}),
    }  # fmt: skip
    arguments = ("--provider", "Fake", "--interval", interval)
    watcher = Service(folder / "watcher.sqlite", folder / "watcher.log", port, *arguments, cold=True, **environment)
    watcher.wait_for("/readyz")
    return watcher


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placing]:
    """All of it, through all faults of a process or a watch; the load stands still."""
    with placing(tmp_path_factory.mktemp("cluster"), extender__max_age_seconds=3600) as made:
        yield made


def test_an_extender_that_is_killed(still: Placing) -> None:
    """The worker, or all of it, by kill -9 in a burst: the burst is placed, and the next one is scored."""
    (worker,) = children(still.extender.process.pid)
    still.create(20)
    os.kill(worker, signal.SIGKILL)
    assert still.place(20) < 40 * TIMEOUT + BUSY
    still.mends()
    still.create(20)
    still.extender.process.kill()
    assert still.place(20) < BUSY  # nobody listens, which is told at once
    still.extender.process.restart()
    still.mends()


def test_an_extender_that_stands_still(still: Placing) -> None:
    """Each pod waits for the scheduler's httpTimeout and no longer."""
    before = still.extender.outcome("scored")
    still.extender.process.pause()
    try:
        took = still.place(10)
    finally:
        still.extender.process.resume()
    assert 10 * TIMEOUT <= took < 10 * TIMEOUT + BUSY
    still.mends()
    assert still.extender.outcome("deadline") + still.extender.outcome("scored") > before


def test_a_watcher_that_is_killed(still: Placing) -> None:
    """Pods are scored by the last metrics; the watcher comes back with what it had."""
    still.watcher.kill()
    before = still.extender.outcome("scored")
    assert still.place(10) < BUSY
    assert still.extender.outcome("scored") == before + 10
    folder, port = still.cluster.folder, int(still.watcher.url.rpartition(":")[2])
    still.watcher = watching(folder, port)
    still.mends()


def test_a_watcher_that_stands_still(still: Placing) -> None:
    """Pods are scored by the last metrics, and nobody waits for the watcher."""
    before = still.extender.outcome("scored")
    os.killpg(still.watcher.process.pid, signal.SIGSTOP)
    try:
        time.sleep(3)  # some reads are under way, and wait
        assert still.place(10) < BUSY
        assert still.extender.outcome("scored") == before + 10
    finally:
        os.killpg(still.watcher.process.pid, signal.SIGCONT)
    still.mends()


def test_events_that_come_late(still: Placing) -> None:
    """One event of five comes half a minute late, and those behind it wait: pods are scored and bound meanwhile."""
    before, late, until = still.extender.outcome("scored"), [], time.monotonic() + 45
    still.relay.delayed_share, still.relay.delay_seconds = 0.2, 30.0
    try:
        while time.monotonic() < until:
            assert still.place(5) < BUSY
            time.sleep(2)
            late.append(bool(still.difference()))
    finally:
        still.relay.delayed_share = 0.0
    assert any(late)
    assert still.extender.outcome("scored") >= before + 5 * len(late)
    still.mends()


def test_packets_that_are_dropped(tmp_path: Path) -> None:
    """Of each connection a third of the packets, then all: pods are bound, and it mends when packets come through."""
    with private_network() as network, placing(tmp_path, extender__max_age_seconds=3600) as made:
        network.drop(30, made.extender.url, made.relay.url, made.watcher.url)
        took = [made.place(5) for _ in range(4)]
        network.heal()
        assert max(took) < 5 * TIMEOUT + BUSY
        made.mends()
        network.drop(100, made.extender.url)
        took = [made.place(10)]
        network.heal()
        assert 10 * TIMEOUT <= took[0] < 10 * TIMEOUT + BUSY
        made.mends()
        network.drop(100, made.relay.url)
        assert made.place(10) < BUSY  # which may all be where they were assumed; of others nothing was
        made.cluster.api.create(*(pod(f"other-{number}", container(requests={"cpu": "1"})) for number in range(5)))
        wait_until(made.all_bound, "pods of another profile are placed", BUSY)
        assert made.difference()
        time.sleep(25)  # long enough that the view gives its watches up
        assert made.place(10) < BUSY
        network.heal()
        made.mends()
        network.drop(100, made.watcher.url)
        time.sleep(3)  # some reads are under way, and hear nothing
        before = made.extender.outcome("scored")
        assert made.place(10) < BUSY
        assert made.extender.outcome("scored") == before + 10  # by the last metrics
        network.heal()
        made.mends()


def test_clocks_that_jump(tmp_path: Path) -> None:
    """The extender's or the watcher's is an hour off: pods are bound, and scored by load when it is right again."""
    clocks = {name: Clock(tmp_path, name) for name in ("extender", "watcher")}
    # What a watcher says whose clock is behind is older than what the extender has, which serves for a while.
    cases = (("extender", 3600, True), ("extender", -3600, True), ("watcher", 3600, True), ("watcher", -3600, False))
    with placing(tmp_path, interval="4", clocks=clocks) as made:
        for name, seconds, is_blind in cases:
            clocks[name].set(seconds)
            assert made.place(10) < BUSY, f"the {name}'s clock is off by {seconds} s"
            if is_blind:
                wait_until(lambda: outage(made), f"metrics are too old or too new, {name} {seconds:+d} s", SOON)
            else:
                time.sleep(6)  # it has fetched since
                assert not outage(made)
            assert made.place(10) < BUSY
            clocks[name].set(0)
            wait_until(lambda: not outage(made), f"metrics are fresh again, {name} {seconds:+d} s", SOON)
            made.mends()


def outage(made: Placing) -> bool:
    """Return whether the extender has nothing to score by, as of a pod that it is asked about now."""
    before = made.extender.outcome("no_metrics")
    made.extender.scores(PROBE, NODES)
    return made.extender.outcome("no_metrics") > before


def test_certificates_that_expire(tmp_path: Path) -> None:
    """The scheduler's, then the extender's: pods are bound without scores, and with them once there are new ones."""
    with placing(tmp_path, lifetime=LIFETIME, extender__max_age_seconds=3600) as made:
        authority, began = made.cluster.certificates, time.monotonic()
        assert made.extender.outcome("scored") > 0
        time.sleep(LIFETIME - (time.monotonic() - began))
        before = made.extender.outcome("scored")
        assert made.place(10) < BUSY
        assert made.extender.outcome("scored") == before
        authority.issue("scheduler")
        made.mends()

        expires = time.monotonic() + 5
        authority.issue("extender", 5)
        time.sleep(max(0.0, expires - time.monotonic()) + 1)
        (worker,) = children(made.extender.process.pid)
        os.kill(worker, signal.SIGKILL)  # a connection that is there already may stay
        assert made.place(10) < BUSY
        with pytest.raises(requests.exceptions.SSLError, match="expired"):
            made.extender.outcome("scored")
        authority.issue("extender")
        wait_until(lambda: not problem(made), "the new certificate is served", SOON)
        assert made.extender.outcome("scored") == 0
        made.mends()


def problem(made: Placing) -> str:
    """Return why the extender cannot be asked, "" when it can be."""
    try:
        made.extender.outcome("scored")
    except requests.RequestException as error:
        return str(error)
    return ""
