"""Adoption of the extender with a real kube-scheduler: shadow mode, canary, and rollback by one edit."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from control_plane.api import Api
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Scheduler
from support.servers import Service, wait_until

from trimaran.extender.rollout import Rollout

pytestmark = pytest.mark.e2e

NODES = 60
SETTINGS = {"extender__deadline_seconds": 5, "extender__refresh_seconds": 0.5}
WINDOW_SECONDS = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of identical nodes."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", "64", "256Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def loads() -> dict[str, dict[str, dict[str, float]]]:
    """Loads of the nodes, independent of the pods on them."""
    dice = random.Random(4)
    return {f"node-{n}": {kind: {"average": dice.uniform(5, 95)} for kind in ("cpu", "memory")} for n in range(NODES)}


@pytest.fixture
def watcher(watch: Callable[..., Service], loads: Mapping[str, Any], tmp_path: Path) -> str:
    """Address of a watcher with a window of 5 seconds."""
    file = tmp_path / "loads.json"
    file.write_text(json.dumps(loads))
    service = watch("--provider", "Fake", "--interval", "1", "--set", f"watch.windows={WINDOW_SECONDS}s",
                    TRIMARAN_FAKE__FILE=str(file))  # fmt: skip
    service.wait_for("/readyz")
    return service.url


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, as a ConfigMap's volume does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def load_aware_pod(name: str) -> dict[str, Any]:
    return pod(name, container(requests={"cpu": "100m", "memory": "64Mi"}), schedulerName="load-aware")


def wait_for_bound_pods(cluster: ControlPlane, count: int) -> list[dict[str, Any]]:
    """Wait until the cluster has exactly so many pods, all of them bound; return the pods."""

    def all_bound() -> list[dict[str, Any]]:
        pods = cluster.api.items("/api/v1/pods")
        return pods if len(pods) == count and all(item["spec"].get("nodeName") for item in pods) else []

    pods: list[dict[str, Any]] = wait_until(all_bound, f"{count} pods are bound", 180)
    return pods


def request_explanation(extender: Extender, name: str, token: str) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"{extender.url}/explain", {"pod": f"default/{name}"}, headers=headers, timeout=60)


def reader(cluster: ControlPlane) -> Api:
    """Return an API client of an account that may only get the pods of one namespace."""
    group = "rbac.authorization.k8s.io"
    cluster.api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}},
        {
            "apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": "default"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
    )  # fmt: skip
    cluster.api.create({
        "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "reader", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    })  # fmt: skip
    return cluster.service_account("default", "reader")


def test_shadow_mode_decides_nothing_and_measures_its_regret(
    cluster: ControlPlane,
    watcher: str,
    loads: Mapping[str, Any],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """By kube-scheduler's log all nodes score the same; decisions and the regret table match the recorded loads."""
    file = tmp_path / "trimaran.toml"
    replace_file(file, "[extender]\nmode = 'shadow'\n")
    count = 60
    account = reader(cluster)
    with (
        Extender(cluster, LOAD_AWARE, watcher, file, **SETTINGS) as extender,
        extender.scheduler("10s") as scheduler,
    ):
        cluster.api.create(*(load_aware_pod(f"pod-{number}") for number in range(count)))
        pods = {each["metadata"]["name"]: each for each in wait_for_bound_pods(cluster, count)}
        wait_until(lambda: regrets(extender)["schedulers"] and not regrets(extender)["waiting"], "all measured")
        decisions = {name: request_explanation(extender, name, account.token).json() for name in pods}
        table = regrets(extender)
        elsewhere = requests.get(
            f"{extender.url}/explain", {"pod": "kube-system/x"},
            headers={"Authorization": f"Bearer {account.token}"}, timeout=60,
        )  # fmt: skip
        unknown = request_explanation(extender, "pod-0", "unknown-token")
        shadowed = extender.outcome("shadow")
    attempts = [each for each in scheduler.attempts() if each.extenders]
    logged = {score for attempt in attempts for scores in attempt.extenders.values() for score in scores.values()}
    assert logged == {0}
    assert len(attempts) == shadowed == count
    assert (elsewhere.status_code, unknown.status_code) == (403, 401)
    regrets_of_pods = []
    for name, decision in decisions.items():
        assert decision["mode"] == "shadow"
        assert decision["chosen"]["node"] == pods[name]["spec"]["nodeName"]
        best, chosen = decision["best"]["node"], decision["chosen"]["node"]
        request = {"cpu": 100 * 0.1 / 64, "memory": 100 * 64 / (256 * 1024)} if best != chosen else {}
        best_load = max(use["average"] + request.get(kind, 0.0) for kind, use in loads[best].items())
        difference = max(use["average"] for use in loads[chosen].values()) - best_load
        regret = decision["after"]["regret"]
        assert regret == pytest.approx(difference, abs=2)  # up to a dozen later pods of 0.16 % each are taken out
        regrets_of_pods.append(regret)
        assert decision["after"]["window"]["start"] >= decision["chosen"]["bound_at"]
    (row,) = table["schedulers"]
    assert (row["mode"], row["pods"]) == ("shadow", count)
    assert row["regret"] == pytest.approx(sum(regrets_of_pods) / count, abs=0.002)
    assert row["regret"] > 10
    record_property("figures", f"shadow: regret {row['regret']:+.2f} points over {count} pods, as recomputed")


def regrets(extender: Extender) -> dict[str, Any]:
    document: dict[str, Any] = requests.get(f"{extender.url}/regret", timeout=60).json()
    return document


def test_an_image_attracts_as_many_pods_in_shadow_as_without_the_extender(
    cluster: ControlPlane, watcher: str, record_property: Callable[[str, object], None]
) -> None:
    """Of 100 equal pods whose image is on 10 of 60 nodes, as many go there as with kube-scheduler alone."""
    image, counts = "registry.internal/model:1", {"alone": [], "shadow": []}
    for number in range(10):
        images = [{"names": [image], "sizeBytes": 600_000_000}]
        cluster.api.patch(f"/api/v1/nodes/node-{number}/status", {"status": {"images": images}})
    with Extender(cluster, LOAD_AWARE, watcher, extender__mode="shadow", **SETTINGS) as extender:
        for name in (*counts,) * 3:
            alone = Scheduler(cluster, [{"schedulerName": "load-aware"}], verbosity=2)
            with alone if name == "alone" else extender.scheduler("10s", verbosity=2):
                needs = container("main", image, {"cpu": "2", "memory": "8Gi"})
                cluster.api.create(*(pod(f"pod-{n}", needs, schedulerName="load-aware") for n in range(100)))
                nodes = [each["spec"]["nodeName"] for each in wait_for_bound_pods(cluster, 100)]
            counts[name].append(sum(int(node.removeprefix("node-")) < 10 for node in nodes))
            cluster.api.delete("/api/v1/namespaces/default/pods")
        assert extender.outcome("shadow") == 300
    record_property("figures", f"of 100 pods on the ten nodes with the image: {counts}")
    # No tie decides between nodes with and without the image, so the numbers are equal.
    assert counts["shadow"] == counts["alone"]
    assert 20 < min(counts["alone"]) < 80


def test_a_canary_acts_for_its_share_and_is_rolled_back_by_one_edit(
    cluster: ControlPlane, watcher: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Scores go to the pods that the hash of the uid selects of 1,000; a rollback during a burst loses no pod."""
    file = tmp_path / "trimaran.toml"
    replace_file(file, "[extender]\nmode = 'active'\ncanary = 10\n")
    with Extender(cluster, LOAD_AWARE, watcher, file, **SETTINGS) as extender, extender.scheduler("10s", verbosity=2):
        cluster.api.create(*(load_aware_pod(f"pod-{number}") for number in range(1000)))
        pods = wait_for_bound_pods(cluster, 1000)
        acted, shadowed = extender.outcome("scored"), extender.outcome("shadow")
        expected = sum(Rollout("active", 10).is_active(each["metadata"]["uid"]) for each in pods)
        assert (acted, shadowed) == (expected, 1000 - expected)
        replace_file(file, "[extender]\nmode = 'active'\ncanary = 100\n")
        cluster.api.create(*(load_aware_pod(f"more-{number}") for number in range(100)))
        replace_file(file, "[extender]\nmode = 'shadow'\n")
        wait_for_bound_pods(cluster, 1100)
        before = extender.outcome("scored")
        cluster.api.create(*(load_aware_pod(f"last-{number}") for number in range(50)))
        wait_for_bound_pods(cluster, 1150)
        assert extender.outcome("scored") == before
        assert extender.metrics()["trimaran_extender_acting_percent"] == 0
    share = 100 * acted / 1000
    record_property(
        "figures", f"canary of 10 %: {share:.1f} % of 1,000 pods; rolled back {before - acted:.0f} pods after"
    )
    assert share == pytest.approx(10, abs=4)  # uids are random; the exact count is checked above
