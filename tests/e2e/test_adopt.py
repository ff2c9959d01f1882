"""How an operator adopts the extender, on a real kube-scheduler: shadow, canary, and back by one edit."""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from control_plane.api import Api
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from support.servers import Service, wait_until

from trimaran.extender.rollout import Rollout

pytestmark = pytest.mark.e2e

NODES = 20
SETTINGS = {"extender__deadline_seconds": 5, "extender__refresh_seconds": 0.5}
WINDOW_SECONDS = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of nodes that are all alike."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", "64", "256Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def loads() -> dict[str, dict[str, dict[str, float]]]:
    """What the nodes use, whatever runs on them."""
    dice = random.Random(4)
    return {f"node-{n}": {kind: {"average": dice.uniform(5, 95)} for kind in ("cpu", "memory")} for n in range(NODES)}


@pytest.fixture
def watcher(watch: Callable[..., Service], loads: Mapping[str, Any], tmp_path: Path) -> str:
    """The address of a watcher with windows of some seconds."""
    file = tmp_path / "loads.json"
    file.write_text(json.dumps(loads))
    service = watch("--provider", "Fake", "--interval", "1", "--set", f"watch.windows={WINDOW_SECONDS}s",
                    TRIMARAN_FAKE__FILE=str(file))  # fmt: skip
    service.wait_for("/readyz")
    return service.url


def written(file: Path, text: str) -> None:
    """Write a file as one whole, as a ConfigMap's volume does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def wanted(name: str) -> dict[str, Any]:
    return pod(name, container(requests={"cpu": "100m", "memory": "64Mi"}), schedulerName="load-aware")


def bound(cluster: ControlPlane, count: int) -> list[dict[str, Any]]:
    """Wait until so many pods are bound, all that there are; return them."""

    def all_bound() -> list[dict[str, Any]]:
        pods = cluster.api.items("/api/v1/pods")
        return pods if len(pods) == count and all(each["spec"].get("nodeName") for each in pods) else []

    found: list[dict[str, Any]] = wait_until(all_bound, f"{count} pods are bound", 180)
    return found


def explained(extender: Extender, name: str, token: str) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"{extender.url}/explain", {"pod": f"default/{name}"}, headers=headers, timeout=10)


def reader(cluster: ControlPlane) -> Api:
    """Return the way in of an account that may get the pods of one namespace, and nothing else."""
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


def test_shadow_decides_nothing_and_says_what_it_would_have_been_worth(
    cluster: ControlPlane, watcher: str, loads: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By kube-scheduler's own log all nodes get the same; each pod is explained; the table is the recorded use's."""
    file = tmp_path / "trimaran.toml"
    written(file, "[extender]\nmode = 'shadow'\n")
    count = 60
    account = reader(cluster)
    with (
        Extender(cluster, LOAD_AWARE, watcher, file, **SETTINGS) as extender,
        extender.scheduler("10s") as scheduler,
    ):
        cluster.api.create(*(wanted(f"pod-{number}") for number in range(count)))
        pods = {each["metadata"]["name"]: each for each in bound(cluster, count)}
        wait_until(lambda: regrets(extender)["schedulers"] and not regrets(extender)["waiting"], "all measured", 60)
        found = {name: explained(extender, name, account.token).json() for name in pods}
        table = regrets(extender)
        elsewhere = requests.get(
            f"{extender.url}/explain", {"pod": "kube-system/x"},
            headers={"Authorization": f"Bearer {account.token}"}, timeout=10,
        )  # fmt: skip
        nobody = explained(extender, "pod-0", "no-token-of-theirs")
        shadowed = extender.outcome("shadow")
    attempts = [each for each in scheduler.attempts() if each.extenders]
    given = {score for attempt in attempts for scores in attempt.extenders.values() for score in scores.values()}
    assert given == {50}
    assert len(attempts) == shadowed == count
    assert (elsewhere.status_code, nobody.status_code) == (403, 401)
    differences = []
    for name, decision in found.items():
        assert decision["mode"] == "shadow"
        assert decision["chosen"]["node"] == pods[name]["spec"]["nodeName"]
        best, chosen = decision["best"]["node"], decision["chosen"]["node"]
        request = {"cpu": 100 * 0.1 / 64, "memory": 100 * 64 / (256 * 1024)} if best != chosen else {}
        ours = max(use["average"] + request.get(kind, 0.0) for kind, use in loads[best].items())
        differences.append(max(use["average"] for use in loads[chosen].values()) - ours)
        assert decision["after"]["regret"] == pytest.approx(differences[-1], abs=0.002)
        assert decision["after"]["window"]["start"] >= decision["chosen"]["bound_at"]
    (row,) = table["schedulers"]
    assert (row["mode"], row["pods"]) == ("shadow", count)
    assert row["regret"] == pytest.approx(sum(differences) / count, abs=0.002)
    assert row["regret"] > 10
    with capsys.disabled():
        sys.stdout.write(f"\nshadow: regret {row['regret']:+.2f} points over {count} pods, as recomputed\n")


def regrets(extender: Extender) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{extender.url}/regret", timeout=10).json()
    return found


def test_a_canary_acts_for_its_share_and_is_turned_back_by_one_edit(
    cluster: ControlPlane, watcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 1,000 pods those are acted for whose uid says so; turned back in the middle of a burst, no pod is lost."""
    file = tmp_path / "trimaran.toml"
    written(file, "[extender]\ncanary = 10\n")
    with Extender(cluster, LOAD_AWARE, watcher, file, **SETTINGS) as extender, extender.scheduler("10s"):
        cluster.api.create(*(wanted(f"pod-{number}") for number in range(1000)))
        pods = bound(cluster, 1000)
        acted, shadowed = extender.outcome("scored"), extender.outcome("shadow")
        expected = sum(Rollout("active", 10).is_active(each["metadata"]["uid"]) for each in pods)
        assert (acted, shadowed) == (expected, 1000 - expected)
        written(file, "[extender]\ncanary = 100\n")
        cluster.api.create(*(wanted(f"more-{number}") for number in range(100)))
        written(file, "[extender]\nmode = 'shadow'\n")
        bound(cluster, 1100)
        before = extender.outcome("scored")
        cluster.api.create(*(wanted(f"last-{number}") for number in range(50)))
        bound(cluster, 1150)
        assert extender.outcome("scored") == before
        assert extender.metrics()["trimaran_extender_acting_percent"] == 0
    with capsys.disabled():
        share = 100 * acted / 1000
        sys.stdout.write(
            f"\ncanary of 10 %: {share:.1f} % of 1,000 pods; turned back {before - acted:.0f} pods after\n"
        )
    assert share == pytest.approx(10, abs=4)  # the uids are drawn: who is acted for is held exactly above
