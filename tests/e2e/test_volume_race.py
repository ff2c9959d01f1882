"""Two schedulers and one volume: the API server lets one of them have it, and the other one's pod stays pending.

Each scheduler is our VolumeBinding with objects of its own; both decide on the same state, then both write.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from control_plane.api import Api, Object, path_of
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from support.servers import wait_until

from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.paths import LISTS
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import Rejection
from trimaran.scheduler.plugins.volumes.binding import VolumeBinding
from trimaran.scheduler.profiles.object_cache import ObjectCache

pytestmark = pytest.mark.e2e

_HOSTNAME = "kubernetes.io/hostname"
_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
_ROUNDS = 10
_NODES = NodeTable([Node(name, labels={_HOSTNAME: name}) for name in ("node-a", "node-b")])


class Binder:
    """Volume binding of one scheduler."""

    def __init__(self, api: Api) -> None:
        self._api, self._objects = api, ObjectCache()
        self._seen: dict[str, dict[str, Object]] = {kind: {} for kind in _KINDS}
        self.plugin = VolumeBinding(self._objects, binds_claims=True)

    def look(self) -> None:
        """Read all objects, as a watch would."""
        for kind, seen in self._seen.items():
            listed = {each["metadata"]["uid"]: each for each in self._api.items(LISTS[kind])}
            for uid in seen.keys() - listed.keys():
                self._objects.drop(kind, seen[uid])
            for each in listed.values():
                self._objects.put(kind, each)
            self._seen[kind] = listed

    def choose(self, pod: Pod) -> list[str]:
        """Return the nodes that the pod's volumes allow, and reserve the volumes on the first of them."""
        verdict = self.plugin.filter(pod, _NODES)
        assert verdict is not None
        names = [name for name, allowed in zip(_NODES.names, verdict.allowed, strict=True) if allowed]
        if names:
            assert self.plugin.reserve(pod, names[0]) is None
        return names

    def write(self, pod: Pod, node_name: str) -> int:
        """Send the requests before the Binding; return the status of the last one that was sent."""
        writes = self.plugin.pre_bind(pod, node_name)
        assert not isinstance(writes, Rejection)
        for each in writes:
            headers = {"Content-Type": each.form}
            try:
                self._api.request("PATCH", each.path, json=dict(each.body), headers=headers)
            except requests.HTTPError as error:
                self.plugin.unreserve(pod, node_name)
                return error.response.status_code
        return 200

    def outcome(self, pod: Pod, node_name: str) -> bool | Rejection:
        """Return whether the pod may be bound, or why not, once that is known."""

        def is_known() -> bool | Rejection:
            self.look()
            return self.plugin.is_ready(pod, node_name)

        known: bool | Rejection = wait_until(is_known, f"the claims of {pod.name} are bound")
        return known


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("volumes")) as cluster, ControllerManager(cluster):
        for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "example.com/none")):
            storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
            cluster.api.create({
                **storage_class, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
            })  # fmt: skip
        yield cluster


def volume(name: str, node: str) -> Object:
    expression = {"key": _HOSTNAME, "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": "local", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }  # fmt: skip


def claim(name: str, storage_class: str = "local") -> Object:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "storageClassName": storage_class, "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }  # fmt: skip


def pod(name: str, claim_name: str) -> Pod:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return Pod.from_k8s({"metadata": {"name": name}, "spec": {"containers": [{"name": "main"}], "volumes": volumes}})


def is_available(api: Api, manifest: Object) -> bool:
    return bool(api.get(path_of(manifest)).get("status", {}).get("phase") == "Available")


def test_one_volume_goes_to_one_of_two_claims(cluster: ControlPlane, record_property: Any) -> None:
    """Of two claims for one volume, one is bound, and the other pod finds no volume."""
    winners = []
    for number in range(_ROUNDS):
        (created,) = cluster.api.create(volume(f"v{number}", "node-a"))
        cluster.api.create(claim(f"a{number}"), claim(f"b{number}"))
        wait_until(lambda created=created: is_available(cluster.api, created), "the volume is available")
        binders = [Binder(cluster.api), Binder(cluster.api)]
        pods = [pod(f"{name}-{number}", f"{name}{number}") for name in "ab"]
        for binder, each in zip(binders, pods, strict=True):
            binder.look()
            assert binder.choose(each) == ["node-a"]
        order = [0, 1] if number % 2 else [1, 0]
        assert [binders[index].write(pods[index], "node-a") for index in order] == [200, 409]
        winner, loser = order
        assert binders[winner].outcome(pods[winner], "node-a") is True
        binders[loser].look()
        assert binders[loser].choose(pods[loser]) == []
        bound = cluster.api.get(f"/api/v1/persistentvolumes/v{number}")["spec"]["claimRef"]["name"]
        assert bound == f"{'ab'[winner]}{number}"
        winners.append(winner)
    record_property("figures", f"one volume, two schedulers: {len(winners)} races, each with one winner")


def test_one_claim_gets_one_of_two_volumes(cluster: ControlPlane) -> None:
    """Two volumes are reserved for one claim; the pod whose volume the controller gives up is rejected."""
    for number in range(_ROUNDS):
        created = cluster.api.create(volume(f"l{number}", "node-a"), volume(f"r{number}", "node-b"))
        cluster.api.create(claim(f"shared{number}"))
        wait_until(lambda created=created: all(is_available(cluster.api, each) for each in created), "available")
        left, right = Binder(cluster.api), Binder(cluster.api)
        one, other = pod(f"one-{number}", f"shared{number}"), pod(f"other-{number}", f"shared{number}")
        left.look()
        right.look()
        assert left.choose(one) == ["node-a", "node-b"]
        right.plugin.filter(other, _NODES)
        assert right.plugin.reserve(other, "node-b") is None
        assert (left.write(one, "node-a"), right.write(other, "node-b")) == (200, 200)  # different objects
        outcomes = [left.outcome(one, "node-a"), right.outcome(other, "node-b")]
        # The controller keeps one of the two; the pod on the other node is rejected and tried again.
        assert sorted(isinstance(each, Rejection) for each in outcomes) == [False, True], outcomes
        for name in (f"l{number}", f"r{number}"):
            cluster.api.delete(f"/api/v1/persistentvolumes/{name}")


def test_one_claim_is_made_for_one_of_two_nodes(cluster: ControlPlane) -> None:
    """The API server refuses the second selected node, and the second pod follows the first."""
    cluster.api.create(claim("made", "made"))
    left, right = Binder(cluster.api), Binder(cluster.api)
    one, other = pod("one", "made"), pod("other", "made")
    left.look()
    right.look()
    assert left.choose(one) == ["node-a", "node-b"]
    right.plugin.filter(other, _NODES)
    assert right.plugin.reserve(other, "node-b") is None
    assert (left.write(one, "node-a"), right.write(other, "node-b")) == (200, 409)
    right.look()
    assert right.choose(other) == ["node-a"]
