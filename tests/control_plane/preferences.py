"""Pods that kube-scheduler scores by volumes, devices, labels and other pods, with the objects that they need."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from control_plane.manifests import Object, container, pod

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_ZONES, _APPS = 3, ("web", "store", "batch")
_LOCAL, _DYNAMIC, _DRIVER, _GPUS = "local", "dynamic", "csi.example.com", "gpu.example.com"
_MODELS = ("large", "small")

#: Returns the objects that a pod needs, and the pod as the last one.
ShapeWithObjects = Callable[[random.Random, str], list[Object]]


def add_zones(nodes: Sequence[Object]) -> None:
    """Give each node a label with its zone; the zones have different numbers of nodes."""
    for number, each in enumerate(nodes):
        each["metadata"]["labels"][ZONE] = f"zone-{number % 7 % _ZONES}"


def shared_objects(dice: random.Random, nodes: Sequence[Object]) -> Iterator[Object]:
    """Yield the objects that all shapes share: services, storage and devices on some of the nodes."""
    for app in _APPS[:2]:
        spec = {"selector": {"app": app}, "ports": [{"port": 80}]}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": _in_default(app), "spec": spec}
    for name, provisioner in ((_LOCAL, "kubernetes.io/no-provisioner"), (_DYNAMIC, _DRIVER)):
        yield _storage("StorageClass", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")
    yield _storage("CSIDriver", _DRIVER, spec={"storageCapacity": True, "attachRequired": False})
    for model in _MODELS:
        selector = f'device.driver == "{_GPUS}" && device.attributes["{_GPUS}"].model == "{model}"'
        yield _device("DeviceClass", {"name": model}, {"selectors": [{"cel": {"expression": selector}}]})
    for number, name in enumerate(each["metadata"]["name"] for each in nodes):
        if number % 4:
            yield _volume(f"{_LOCAL}-{name}", dice.choice(("10Gi", "50Gi", "200Gi")), HOSTNAME, name)
            capacity = _storage("CSIStorageCapacity", f"{_DYNAMIC}-{name}", storageClassName=_DYNAMIC)
            capacity["metadata"]["namespace"] = "default"
            capacity["nodeTopology"] = {"matchLabels": {HOSTNAME: name}}
            yield {**capacity, "capacity": dice.choice(("20Gi", "100Gi", "1Ti"))}
        if number % 3:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            device = {"name": "gpu-0", "attributes": {"model": {"string": _MODELS[number % 3 - 1]}}}
            spec = {"driver": _GPUS, "pool": pool, "nodeName": name, "devices": [device]}
            yield _device("ResourceSlice", {"name": f"gpus-{name}"}, spec)


def local_volume(dice: random.Random, name: str) -> list[Object]:
    """Return a pod with a claim for one of the local volumes; the scheduler selects the volume."""
    return _with_claim(name, _claim(name, _LOCAL, dice.choice(("5Gi", "40Gi"))))


def dynamic_volume(dice: random.Random, name: str) -> list[Object]:
    """Return a pod with a claim for a new volume, for which each node has a published capacity."""
    return _with_claim(name, _claim(name, _DYNAMIC, dice.choice(("1Gi", "15Gi", "60Gi"))))


def bound_volume(dice: random.Random, name: str) -> list[Object]:
    """Return a pod with a claim that is bound to a volume in one of the zones."""
    volume = _volume(name, "10Gi", ZONE, f"zone-{dice.randrange(_ZONES)}")
    volume["spec"]["claimRef"] = _in_default(name)
    claim = _claim(name, _LOCAL, "10Gi")
    claim["spec"]["volumeName"] = name
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return [volume, *_with_claim(name, claim)]


def device(dice: random.Random, name: str) -> list[Object]:
    """Return a pod that prefers one model of a device, and also takes the other."""
    models = dice.sample(_MODELS, 2)
    alternatives = [{"name": model, "deviceClassName": model} for model in models]
    claim = _device("ResourceClaim", _in_default(name), {
        "devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}
    })  # fmt: skip
    user = container(requests={"cpu": "100m"})
    user["resources"]["claims"] = [{"name": "gpu"}]
    return [claim, _of_app("batch", pod(name, user, resourceClaims=[{"name": "gpu", "resourceClaimName": name}]))]


def of_service(dice: random.Random, name: str) -> list[Object]:
    """Return a pod of a service, which is spread by the scheduler's default constraints."""
    return [_of_app(dice.choice(_APPS[:2]), pod(name, _main(dice)))]


def spread(dice: random.Random, name: str) -> list[Object]:
    """Return a pod with topology spread constraints of its own, preferred and required."""
    app = dice.choice(_APPS)
    constraints = [
        {
            "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": app}},
        }
        for skew, key, action in ((1, HOSTNAME, "ScheduleAnyway"), (9, ZONE, "DoNotSchedule"))
    ]  # fmt: skip
    return [_of_app(app, pod(name, _main(dice), topologySpreadConstraints=constraints))]


def near_and_apart(dice: random.Random, name: str) -> list[Object]:
    """Return a pod that prefers the zones of one application and avoids the nodes of another."""
    near, apart = dice.sample(_APPS, 2)
    affinity = {"podAffinity": _preferred(near, ZONE, 30), "podAntiAffinity": _preferred(apart, HOSTNAME, 70)}
    return [_of_app(near, pod(name, _main(dice), affinity=affinity))]


def node_preference(dice: random.Random, name: str) -> list[Object]:
    """Return a pod that prefers a kind of disk, and a zone less so."""
    preferred = [
        {"weight": weight, "preference": _node_term(key, value)}
        for key, value, weight in (("disk", "ssd", 60), (ZONE, f"zone-{dice.randrange(_ZONES)}", 25))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return [_of_app("batch", pod(name, _main(dice), affinity=affinity))]


SHAPES_WITH_OBJECTS: tuple[ShapeWithObjects, ...] = (
    local_volume, dynamic_volume, bound_volume, device, of_service, spread, near_and_apart, node_preference,
)  # fmt: skip


def _main(dice: random.Random) -> Object:
    return container(requests={"cpu": dice.choice(("50m", "250m", "1")), "memory": dice.choice(("64Mi", "1Gi"))})


def _of_app(app: str, created: Object) -> Object:
    return {**created, "metadata": {**created["metadata"], "labels": {"app": app}}}


def _with_claim(name: str, claim: Object) -> list[Object]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return [claim, _of_app("store", pod(name, container(requests={"cpu": "100m"}), volumes=[volume]))]


def _claim(name: str, storage_class: str, size: str) -> Object:
    spec = {
        "storageClassName": storage_class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _in_default(name), "spec": spec}


def _volume(name: str, size: str, key: str, value: str) -> Object:
    spec = {
        "storageClassName": _LOCAL, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
        "local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [_node_term(key, value)]}},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def _storage(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}


def _device(kind: str, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def _in_default(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "default"}


def _node_term(key: str, value: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


def _preferred(app: str, key: str, weight: int) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}
