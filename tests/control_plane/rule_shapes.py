"""Nodes in zones, and pods with every kind of rule on where they run: affinity, spread, ports, taints, priorities."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from control_plane.manifests import Object, container, node, pod
from control_plane.shapes import GPU, IMAGES, Shape

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "cache", "batch", "model")
NAMESPACES: Sequence[Object] = tuple(
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}}
    for name, team in (("blue-1", "blue"), ("blue-2", "blue"), ("red", "red"))
)
_TAINTS: Sequence[Sequence[Object]] = (
    [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}],
    [{"key": "spot", "value": "true", "effect": "PreferNoSchedule"}],
    [{"key": "spot", "value": "true", "effect": "PreferNoSchedule"}, {"key": "old", "effect": "PreferNoSchedule"}],
    [{"key": "drain", "effect": "NoExecute"}],
)


def zoned_nodes(dice: random.Random, count: int) -> Iterator[Object]:
    """Yield nodes in three zones and one without a zone, with taints, labels, images and GPUs; some are cordoned."""
    for number in range(count):
        cores = dice.choice((2, 4, 8, 16))
        zone = {} if number % 25 == 7 else {ZONE: dice.choice("abc")}
        labels = {"disk": dice.choice(("ssd", "hdd")), "generation": str(dice.randint(1, 9)), **zone}
        manifest = node(
            f"node-{number}",
            str(cores),
            f"{cores * dice.choice((2, 4))}Gi",
            resources={GPU: "4"} if number % 6 == 0 else {},
            images={name: size for name, size in IMAGES.items() if dice.random() < 0.3},
            labels=labels,
            taints=_TAINTS[number % 17] if number % 17 < len(_TAINTS) else (),
        )
        if number % 23 == 11:
            manifest["spec"]["unschedulable"] = True
        yield manifest


def _selector(dice: random.Random, app: str) -> Object:
    return dice.choice((
        {"matchLabels": {"app": app}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, dice.choice(APPS)]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]},
    ))  # fmt: skip


def _labelled(dice: random.Random, name: str, app: str, requests: dict[str, str] | None = None, **spec: Any) -> Object:
    amounts = requests or {"cpu": dice.choice(("50m", "100m", "300m")), "memory": dice.choice(("64Mi", "200Mi"))}
    manifest = pod(name, container(image=dice.choice(tuple(IMAGES)), requests=amounts), **spec)
    labels = {"app": app, "version": dice.choice("12"), **({"tier": dice.choice("xyz")} if dice.random() < 0.5 else {})}
    manifest["metadata"]["labels"] = labels
    manifest["metadata"]["namespace"] = dice.choice(("default", "default", "blue-1", "blue-2", "red"))
    return manifest


def labelled(dice: random.Random, name: str) -> Object:
    """Return a pod with labels and no rules, which others attract, repel and count."""
    return _labelled(dice, name, dice.choice(APPS))


def _terms(dice: random.Random, app: str) -> Object:
    term: Object = {"labelSelector": _selector(dice, app), "topologyKey": dice.choice((ZONE, HOST, "disk"))}
    others = dice.random()
    if others < 0.2:
        term["namespaces"] = ["blue-1", "default"]
    elif others < 0.4:
        term["namespaceSelector"] = {"matchLabels": {"team": "blue"}}
    elif others < 0.5:
        term["namespaceSelector"] = {}
    if dice.random() < 0.2:
        term["matchLabelKeys"] = ["version"]
    return term


def attracted(dice: random.Random, name: str) -> Object:
    """Return a pod with required affinity to other pods, or to pods like itself."""
    app = dice.choice(APPS)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_terms(dice, app)]}
    return _labelled(dice, name, app, affinity={"podAffinity": required})


def repelled(dice: random.Random, name: str) -> Object:
    """Return a pod with required anti-affinity to other pods on the node or with the same disk."""
    app = dice.choice(APPS)
    term = {**_terms(dice, app), "topologyKey": HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return _labelled(dice, name, app, affinity={"podAntiAffinity": required})


def rather_near(dice: random.Random, name: str) -> Object:
    """Return a pod with preferred affinity and anti-affinity."""
    weighted = [{"weight": dice.randint(1, 100), "podAffinityTerm": _terms(dice, dice.choice(APPS))} for _ in range(2)]
    other = [{"weight": dice.randint(1, 100), "podAffinityTerm": _terms(dice, dice.choice(APPS))}]
    affinity = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": other},
    }
    return _labelled(dice, name, dice.choice(APPS), affinity=affinity)


def _spread(dice: random.Random, app: str, when: str) -> Object:
    constraint: Object = {
        "maxSkew": dice.randint(1, 3),
        "topologyKey": dice.choice((ZONE, HOST, "disk")),
        "whenUnsatisfiable": when,
        "labelSelector": _selector(dice, app),
    }
    if dice.random() < 0.3:
        constraint["nodeTaintsPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.random() < 0.3:
        constraint["nodeAffinityPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.random() < 0.3:
        constraint["matchLabelKeys"] = ["version"]
    if when == "DoNotSchedule" and dice.random() < 0.3:
        constraint["minDomains"] = dice.randint(1, 4)
    return constraint


def spread(dice: random.Random, name: str) -> Object:
    """Return a pod that must be spread, by one or two constraints; in some cases only over nodes with an SSD."""
    app = dice.choice(APPS)
    constraints = [_spread(dice, app, "DoNotSchedule") for _ in range(dice.randint(1, 2))]
    keys = {each["topologyKey"] for each in constraints}
    spec: Object = {"nodeSelector": {"disk": "ssd"}} if dice.random() < 0.2 else {}
    return _labelled(dice, name, app, topologySpreadConstraints=constraints[: len(keys)], **spec)


def rather_spread(dice: random.Random, name: str) -> Object:
    """Return a pod that is better spread."""
    app = dice.choice(APPS)
    constraints = {each["topologyKey"]: each for each in (_spread(dice, app, "ScheduleAnyway") for _ in range(2))}
    return _labelled(dice, name, app, topologySpreadConstraints=list(constraints.values()))


def with_port(dice: random.Random, name: str) -> Object:
    """Return a pod with a port of the host, on all or on one of its addresses."""
    manifest = _labelled(dice, name, dice.choice(APPS))
    port: Object = {"containerPort": 80, "hostPort": dice.choice((8080, 9090)), "protocol": dice.choice(("TCP", "UDP"))}
    if dice.random() < 0.5:
        port["hostIP"] = dice.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0"))
    manifest["spec"]["containers"][0]["ports"] = [port]
    return manifest


def on_some_nodes(dice: random.Random, name: str) -> Object:
    """Return a pod with required and preferred node affinity."""
    required = dice.choice((
        [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}],
        [{"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["4"]}]}],
        [
            {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{dice.randint(0, 9)}"]}]},
        ],
    ))  # fmt: skip
    preferred = [
        {"weight": dice.randint(1, 100), "preference": {"matchExpressions": [expression]}}
        for expression in (
            {"key": ZONE, "operator": "In", "values": ["b"]},
            {"key": "generation", "operator": "Lt", "values": ["7"]},
        )
    ]
    affinity: Object = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if dice.random() < 0.6:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    return _labelled(dice, name, dice.choice(APPS), affinity={"nodeAffinity": affinity})


def tolerating(dice: random.Random, name: str) -> Object:
    """Return a pod that tolerates some taints, for good or for a while."""
    tolerations = dice.choice((
        [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
        [{"key": "spot", "operator": "Exists", "effect": "PreferNoSchedule"}],
        [{"operator": "Exists"}],
        [{"key": "drain", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    ))  # fmt: skip
    return _labelled(dice, name, dice.choice(APPS), tolerations=tolerations)


def important(dice: random.Random, name: str) -> Object:
    """Return a pod of another priority, which preempts no others."""
    spec = {"priority": dice.choice((-5, 10, 1000)), "preemptionPolicy": "Never"}
    return _labelled(dice, name, dice.choice(APPS), **spec)


def too_large(dice: random.Random, name: str) -> Object:
    """Return a pod that few nodes or no node can take."""
    amounts = dice.choice(({"cpu": "12"}, {"cpu": "500m", GPU: "3"}, {"memory": "200Gi"}, {"example.com/fpga": "1"}))
    manifest = _labelled(dice, name, dice.choice(APPS), dict(amounts), preemptionPolicy="Never")
    limits = {name: amount for name, amount in amounts.items() if "/" in name}
    manifest["spec"]["containers"][0]["resources"]["limits"] = limits
    return manifest


RULE_SHAPES: tuple[Shape, ...] = (
    labelled, attracted, repelled, rather_near, spread, rather_spread, with_port, on_some_nodes, tolerating, important,
    too_large,
)  # fmt: skip
