"""Volumes of every kind that decides where a pod may run, and pods that use them.

- volumes of a CSI driver that are bound to claims, used from one zone or anywhere, some of them by one pod at a time;
- local volumes of a class with ``WaitForFirstConsumer``, which get their claim with the pod;
- nodes that can attach few volumes.
"""

import random
from collections.abc import Iterable, Iterator

from control_plane.manifests import Object, container, pod
from control_plane.rule_shapes import HOST, ZONE

DRIVER = "csi.example.com"
BOUND = 24
LATE_CLASS: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local-late"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
_MODES = ("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")


def storage(dice: random.Random, nodes: int) -> Iterator[Object]:
    """Yield limits of nodes, bound volumes with their claims, and local volumes for the claims of later pods.

    Args:
        dice: random number generator.
        nodes: number of nodes, which are named ``node-0`` and so on.
    """
    yield LATE_CLASS
    for number in range(nodes):
        drivers = [{"name": DRIVER, "nodeID": f"node-{number}", "allocatable": {"count": dice.randint(0, 2)}}]
        metadata = {"name": f"node-{number}"}
        yield {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}}
    for number in range(BOUND):
        name, mode = f"bound-{number}", _MODES[number % len(_MODES)]
        where = (ZONE, dice.choice("abc")) if number % 3 else None
        source = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
        yield _volume(name, "1Gi", mode, where, **source, claimRef=claim)
        yield _claim(name, "1Gi", mode, storageClassName="", volumeName=name)
    for number in range(nodes):
        size = dice.choice(("1Gi", "2Gi", "5Gi", "10Gi"))
        where = (HOST, f"node-{dice.randrange(nodes)}")
        source = {"local": {"path": "/data"}, "storageClassName": LATE_CLASS["metadata"]["name"]}
        yield _volume(f"local-{number}", size, "ReadWriteOnce", where, **source)


def with_bound_claim(dice: random.Random, name: str) -> Object:
    """Return a pod that uses a bound claim, which other pods may use, too."""
    return _using(dice, name, f"bound-{dice.randrange(BOUND)}")


def with_late_claim(dice: random.Random, name: str) -> Object:
    """Return a pod with a claim of its own that is bound once the pod has a node, and in some cases with a second."""
    return _using(dice, name, *(f"{name}-{number}" for number in range(dice.choice((1, 1, 2)))))


def late_claims(dice: random.Random, pods: Iterable[Object]) -> Iterator[Object]:
    """Yield the claims of pods that are bound once the pods have a node."""
    for manifest in pods:
        for volume in manifest["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            if name.startswith(manifest["metadata"]["name"]):
                size = dice.choice(("1Gi", "1Gi", "2Gi", "4Gi"))
                yield _claim(name, size, "ReadWriteOnce", storageClassName=LATE_CLASS["metadata"]["name"])


VOLUME_SHAPES = (with_bound_claim, with_late_claim)


def _using(dice: random.Random, name: str, *claims: str) -> Object:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    requests = {"cpu": dice.choice(("50m", "100m")), "memory": "64Mi"}
    return pod(name, container(requests=requests), volumes=volumes)


def _volume(name: str, size: str, mode: str, where: tuple[str, str] | None, **spec: object) -> Object:
    if where is not None:
        expression = {"key": where[0], "operator": "In", "values": [where[1]]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": [mode], **spec},
    }  # fmt: skip


def _claim(name: str, size: str, mode: str, **spec: object) -> Object:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": size}}, **spec},
    }  # fmt: skip
