"""Nodes of mixed sizes, and pods for each case in which a scheduler counts requests differently."""

import random
from collections.abc import Callable, Iterator, Mapping

from control_plane.manifests import Object, container, node, pod

GPU = "nvidia.com/gpu"
RUNTIME_CLASS: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "in-a-vm"},
    "handler": "in-a-vm",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
}
# An image has the same size on every node: kube-scheduler uses the size on the first node.
IMAGES: Mapping[str, int] = {
    "docker.io/library/redis:latest": 45_000_000,
    "docker.io/library/postgres:17": 430_000_000,
    "registry.internal:5000/team/model:v3": 3_900_000_000,
    "registry.internal:5000/team/base:latest": 700_000_000,
    "registry.k8s.io/pause:3.10": 320_000,
}
_AS_WRITTEN = ("docker.io/library/redis", *IMAGES, "registry.internal:5000/team/base", "docker.io/library/none:1")
_DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
_PREFERABLY_NOT = {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}
_TOLERATES = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}

Shape = Callable[[random.Random, str], Object]


def nodes(dice: random.Random, count: int) -> Iterator[Object]:
    """Yield nodes of several sizes; some have GPUs, images or taints, or less allocatable CPU than capacity."""
    for number in range(count):
        cores = dice.choice((2, 4, 8, 16, 64))
        yield node(
            f"node-{number}",
            str(cores),
            dice.choice((f"{cores * 4}Gi", f"{cores * 8}Gi", f"{cores * 2_000_000_123}")),
            reserved_cpu=dice.choice(("", f"{cores * 1000 - 140}m")),
            resources={GPU: "8"} if number % 5 == 0 else {},
            images={name: size for name, size in IMAGES.items() if dice.random() < 0.3},
            labels={"disk": dice.choice(("ssd", "hdd"))},
            taints=[_DEDICATED] if number % 11 == 3 else [_PREFERABLY_NOT] if number % 7 == 2 else [],
        )


def plain(dice: random.Random, name: str) -> Object:
    """Return a pod with requests, written in one of the formats of quantities."""
    return pod(name, _main(dice))


def several(dice: random.Random, name: str) -> Object:
    """Return a pod with containers that request both resources, only CPU, only memory, and nothing."""
    return pod(
        name,
        _main(dice),
        container("some-cpu", requests={"cpu": "30m"}),
        container("some-memory", requests={"memory": "100500m"}),
        container("nothing"),
    )


def best_effort(dice: random.Random, name: str) -> Object:
    """Return a pod without requests."""
    return pod(name, container(image=dice.choice(_AS_WRITTEN)))


def limits_alone(dice: random.Random, name: str) -> Object:
    """Return a pod with limits only; its requests default to them."""
    return pod(name, container(limits={"cpu": dice.choice(("1", "1500m")), "memory": "512Mi"}))


def above_request(dice: random.Random, name: str) -> Object:
    """Return a pod with limits above its requests."""
    return pod(name, container(requests={"cpu": "200m", "memory": "256Mi"}, limits={"cpu": "2", "memory": "2Gi"}))


def init_container(dice: random.Random, name: str) -> Object:
    """Return a pod with an init container that requests more than its main container."""
    large = container("first", requests={"cpu": dice.choice(("900m", "2")), "memory": "3Gi"})
    return pod(name, _main(dice), initContainers=[large])


def sidecar(dice: random.Random, name: str) -> Object:
    """Return a pod with sidecar containers before and after an ordinary init container."""
    steps = [
        container("proxy", requests={"cpu": "100m", "memory": "64Mi"}, sidecar=True),
        container("migrate", requests={"cpu": dice.choice(("50m", "3")), "memory": "1Gi"}),
        container("logs", sidecar=True),
    ]
    return pod(name, _main(dice), initContainers=steps)


def overhead(dice: random.Random, name: str) -> Object:
    """Return a pod with a RuntimeClass that adds overhead."""
    return pod(name, dice.choice((_main(dice), container())), runtimeClassName="in-a-vm")


def gpu(dice: random.Random, name: str) -> Object:
    """Return a pod that requests GPUs."""
    amount = dice.choice(("1", "2", "4"))
    return pod(name, container(requests={"cpu": "1", "memory": "4Gi", GPU: amount}, limits={GPU: amount}))


def storage(dice: random.Random, name: str) -> Object:
    """Return a pod that requests only ephemeral storage."""
    return pod(name, container(requests={"ephemeral-storage": dice.choice(("1Gi", "500M"))}))


def images(dice: random.Random, name: str) -> Object:
    """Return a pod with several images, also in an init container, whose image counts too."""
    runs = [container(f"c{number}", dice.choice(_AS_WRITTEN), {"cpu": "10m"}) for number in range(dice.randint(1, 3))]
    return pod(name, *runs, initContainers=[container("first", dice.choice(_AS_WRITTEN))])


def image_volumes(dice: random.Random, name: str) -> Object:
    """Return a pod with volumes that are images: kube-scheduler counts them for ImageLocality from 1.36 on."""
    references = [dice.choice(_AS_WRITTEN) for _ in range(dice.randint(1, 2))]
    volumes = [{"name": f"v{n}", "image": {"reference": reference}} for n, reference in enumerate(references)]
    return pod(name, _main(dice), volumes=volumes)


def tolerant(dice: random.Random, name: str) -> Object:
    """Return a pod that tolerates the taint of dedicated nodes."""
    return pod(name, _main(dice), **_TOLERATES)


def selective(dice: random.Random, name: str) -> Object:
    """Return a pod with a node selector."""
    return pod(name, _main(dice), nodeSelector={"disk": "ssd"})


def pod_level(dice: random.Random, name: str) -> Object:
    """Return a pod with pod-level resources, in some cases in addition to its containers' requests."""
    resources = {
        "requests": {"cpu": dice.choice(("700m", "2")), "memory": "1Gi"},
        "limits": {"cpu": "4", "memory": "2Gi"},
    }
    first = dice.choice((container(), container(requests={"cpu": "100m"}), container(requests={"memory": "256Mi"})))
    return pod(name, first, container("other"), resources=resources)


SHAPES: tuple[Shape, ...] = (
    plain, several, best_effort, limits_alone, above_request, init_container, sidecar, overhead, gpu, storage, images,
    image_volumes, tolerant, selective,
)  # fmt: skip


def _main(dice: random.Random) -> Object:
    cpu = dice.choice(("50m", "0.1", "250m", "1", "1.5", "2"))
    memory = dice.choice(("64Mi", "129e6", "0.5Gi", "1Gi", "123456789", "4G"))
    return container(image=dice.choice(_AS_WRITTEN), requests={"cpu": cpu, "memory": memory})
