"""Field trial with a real kube-scheduler: blocks of seconds, a report, and a stop by harm that outlives the process."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from support.servers import Service, wait_until

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e

NODES = 30
WINDOW_SECONDS, BLOCK_SECONDS, PAIRS = 3, 15, 6
SETTINGS = {"extender__deadline_seconds": 5, "extender__refresh_seconds": 0.5}
#: The rights of the shipped account, and those of a trial.
RULES = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of identical nodes."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", "64", "256Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def loads_file(tmp_path: Path) -> Path:
    """File with the loads of the nodes, of which half are hot, so that a few pods on a slow machine show it."""
    file, dice = tmp_path / "loads.json", random.Random(4)
    write_loads(file, {f"node-{n}": 90.0 if n % 2 == 0 else dice.uniform(20, 60) for n in range(NODES)})
    return file


@pytest.fixture
def watcher(watch: Callable[..., Service], loads_file: Path) -> str:
    """Address of a watcher with windows of three seconds."""
    service = watch("--provider", "Fake", "--interval", "1", "--set", f"watch.windows={WINDOW_SECONDS}s",
                    TRIMARAN_FAKE__FILE=str(loads_file))  # fmt: skip
    service.wait_for("/readyz")
    return service.url


def write_loads(file: Path, loads: Mapping[str, float]) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps({name: {kind: {"average": load} for kind in ("cpu", "memory")}
                               for name, load in loads.items()}))  # fmt: skip
    new.replace(file)


@contextmanager
def arriving_pods(cluster: ControlPlane) -> Iterator[None]:
    """Create three pods a second, and delete the oldest ones, so that 150 run."""
    stop = threading.Event()

    def create() -> None:
        number = 0
        while not stop.wait(1):
            needs = container(requests={"cpu": "100m", "memory": "64Mi"})
            cluster.api.create(*(pod(f"pod-{number + n}", needs, schedulerName="load-aware") for n in range(3)))
            for old in range(number - 150, number - 147):
                if old >= 0:
                    cluster.api.delete(f"/api/v1/namespaces/default/pods/pod-{old}?gracePeriodSeconds=0")
            number += 3

    thread = threading.Thread(target=create, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def report(extender: Extender) -> dict[str, Any]:
    """Return the report; an error until the extender has read the trial."""
    document: dict[str, Any] = requests.get(f"{extender.url}/trial", timeout=60).json()
    return document


def started(cluster: ControlPlane, watcher: str, file: Path, kubeconfig: Path) -> Extender:
    return Extender(cluster, LOAD_AWARE, watcher, file, kubeconfig=kubeconfig, **SETTINGS)


def write_settings(file: Path, name: str, pairs: int = PAIRS) -> None:
    new = file.with_suffix(".new")
    new.write_text(
        f"[extender]\nmode = 'trial'\ntrial_name = '{name}'\ntrial_block_seconds = {BLOCK_SECONDS}\n"
        f"trial_pairs = {pairs}\n"
    )
    new.replace(file)


def test_a_trial_finds_an_effect_stops_on_harm_and_stays_stopped(
    cluster: ControlPlane,
    watcher: str,
    loads_file: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Pods avoid hot nodes in active blocks only; planted harm ends acting within two pairs, also after a restart."""
    file = tmp_path / "trimaran.toml"
    write_settings(file, "first")
    kubeconfig = cluster.kubeconfig(token=cluster.create_account("extender", *RULES).token)
    extender = started(cluster, watcher, file, kubeconfig)
    with extender, extender.scheduler("10s", verbosity=2), arriving_pods(cluster):
        first = wait_until(
            lambda: document if (document := report(extender)).get("phase") == "ended" else None,
            "the trial ends", BLOCK_SECONDS * 2 * (PAIRS + 2),
        )  # fmt: skip
        last = first["end"] - BLOCK_SECONDS
        wait_until(lambda: report(extender)["blocks"][-1]["start"] == last, "the last block is recorded")
        first = report(extender)
        shown = CliRunner().invoke(main, ["extender", "trial", "--extender", extender.url]).output
        page = tmp_path / "trial.html"
        CliRunner().invoke(main, ["extender", "trial", "--extender", extender.url, "--html", str(page)])
        scored, shadowed = extender.outcome("scored"), extender.outcome("shadow")
        write_settings(file, "second")
        second = wait_until(
            lambda: harmed(extender, loads_file), "the trial is stopped", BLOCK_SECONDS * 6
        )  # fmt: skip
        events = [each["reason"] for each in cluster.api.items("/api/v1/namespaces/default/events")]
        metrics = extender.metrics()
    again = started(cluster, watcher, file, kubeconfig)
    with again:
        state = wait_until(lambda: (each := report(again)).get("stopped") and each, "the state is read")
        deadline = time.monotonic() + 2 * BLOCK_SECONDS
        while time.monotonic() < deadline:
            assert again.metrics()["trimaran_extender_acting_percent"] == 0
            time.sleep(1)
    record_property("figures", f"{shown}\n{second['verdict']}")
    placed = first["effects"]["placed_hot_percent"]
    assert placed["shadow"] > 10
    assert placed["shadow"] + placed["difference"] < 2
    assert placed["pairs"] >= PAIRS - 1
    assert scored > 30
    assert shadowed > 30
    assert "<svg" in page.read_text()
    assert second["stopped"]["at"] <= second["begin"] + 4 * BLOCK_SECONDS + 5
    assert {"TrialEnded", "TrialStopped"} <= set(events)
    assert metrics["trimaran_extender_trial_stopped"] == 1
    assert state["stopped"] == second["stopped"]


def harmed(extender: Extender, loads_file: Path) -> dict[str, Any] | None:
    """Make all nodes hot while the extender acts, and cool while it does not; return the report after the stop."""
    document = report(extender)
    write_loads(loads_file, {f"node-{n}": 95.0 if document.get("acting") else 30.0 for n in range(NODES)})
    return document if document.get("name") == "second" and document["stopped"] else None
