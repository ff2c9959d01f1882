"""``trimaran doctor --worth-it`` and the extender's notice, with a real API server and a real watcher."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from support.servers import Service, wait_until

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e

NODES = 10
LOADS = [10, 15, 20, 30, 40, 55, 60, 75, 88, 95]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of ten nodes of four cores, without pods."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", "4", "16Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def watcher(watch: Callable[..., Service], tmp_path: Path) -> str:
    """Address of a watcher that knows the load of the ten nodes: two hot, five cool."""
    file = tmp_path / "loads.json"
    loads = {f"node-{n}": {"cpu": {"average": load}, "memory": {"average": 40}} for n, load in enumerate(LOADS)}
    file.write_text(json.dumps(loads))
    service = watch("--provider", "Fake", "--interval", "1", TRIMARAN_FAKE__FILE=str(file))
    service.wait_for("/readyz")
    return service.url


def fill(cluster: ControlPlane, cpu: str, cpu_limit: str) -> None:
    """Bind four pods to each node."""
    needs = container(requests={"cpu": cpu, "memory": "3Gi"}, limits={"cpu": cpu_limit, "memory": "4Gi"})
    cluster.api.create(*(pod(f"pod-{n}", needs, nodeName=f"node-{n % NODES}") for n in range(4 * NODES)))


def worth_it(cluster: ControlPlane, watcher: str, *options: str, kubeconfig: Path | None = None) -> tuple[int, str]:
    access = f"provider.kube_config={kubeconfig or cluster.kubeconfig()}"
    done = CliRunner().invoke(main, ["doctor", "--worth-it", "--watcher", watcher, "--set", access, *options])
    return done.exit_code, done.output


def test_a_cluster_with_room_and_hot_nodes_likely_gains(cluster: ControlPlane, watcher: str) -> None:
    """Overcommitted nodes of which some are hot and others cool: a gain is likely, and every figure is printed."""
    fill(cluster, "800m", "2")
    status, text = worth_it(cluster, watcher)
    assert status == 0, text
    assert "load-aware placement: gain likely" in text
    for words in ("CPU requested           80%", "CPU limits              200%", "hot nodes               20%",
                  "cool nodes              50%", "full nodes              0%", "field trial"):  # fmt: skip
        assert words in text, text
    status, document = worth_it(cluster, watcher, "-o", "json")
    figures: dict[str, Any] = json.loads(document)["figures"]
    assert (status, figures["cpu"]["requested"], figures["cpu"]["limits"]) == (0, 0.8, 2.0)
    assert figures["cpu"]["over_use"] == pytest.approx(32 / (4 * sum(LOADS) / 100))


def test_a_cluster_that_is_full_by_requests_stays_in_shadow(cluster: ControlPlane, watcher: str) -> None:
    """Nodes without room for another pod: the verdict is harm, and the extender says so when it begins to act."""
    fill(cluster, "1", "1")
    status, text = worth_it(cluster, watcher)
    assert status == 4, text
    assert "load-aware placement: harm, stay in shadow" in text
    settings = {"extender__events_namespace": "default", "extender__refresh_seconds": 0.5}
    with Extender(cluster, LOAD_AWARE, watcher, **settings) as extender:
        wait_until(lambda: "harm, stay in shadow" in extender.process.log.read_text(), "the log has the verdict")

        def events() -> list[dict[str, Any]]:
            everything = cluster.api.items("/api/v1/namespaces/default/events")
            return [each for each in everything if each["reason"] == "ExpectedBenefit"]

        (event,) = wait_until(events, "there is an Event with the verdict")
        assert event["type"] == "Warning"
        assert "harm, stay in shadow" in event["message"]
        assert extender.metrics()["trimaran_extender_acting_percent"] == 100  # nothing is blocked


def test_the_provider_is_read_without_a_watcher(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --watcher the load is that of the provider; of a cluster without measured nodes there is no verdict."""
    fill(cluster, "800m", "2")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
    file = tmp_path / "loads.json"
    command = ["doctor", "--worth-it", "--provider", "Fake", "--set", f"fake.file={file}", "-o", "yaml"]
    for names, status, verdict in (("node", 0, "gain likely"), ("other", 1, "unknown")):
        loads = {f"{names}-{n}": {"cpu": {"average": load}} for n, load in enumerate(LOADS)}
        file.write_text(json.dumps(loads))
        done = CliRunner().invoke(main, command)
        assert done.exit_code == status, done.output
        assert f"verdict: {verdict}" in done.output


def test_an_account_without_rights_gets_the_missing_right(cluster: ControlPlane, watcher: str) -> None:
    """Without the right to list nodes and pods the status is 1, and the message names it."""
    cluster.api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "none", "namespace": "default"}}
    )
    kubeconfig = cluster.kubeconfig("none", token=cluster.service_account("default", "none").token)
    status, text = worth_it(cluster, watcher, kubeconfig=kubeconfig)
    assert status == 1
    assert "needs the right to list both" in text
