"""Small clusters full of pods, drawn by seed, in which a pod has to preempt others; and the manifests of their objects.

A scenario is JSON: the same document is run through a real kube-scheduler, and replayed from a file. Every pod has its
own start time and at most one disruption budget, so that no outcome is left to chance.
"""

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from control_plane.manifests import Object, container, node, pod

Scenario = dict[str, Any]

_START = 1_700_000_000
_ZONE, _HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_THEMES = (
    "plain", "plain", "budgets", "budgets", "ports", "anti-affinity", "affinity", "spread", "counts", "taints", "never",
)  # fmt: skip


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed.

    Returns:
        ``nodes``, each with CPU in millicores, number of pods, zone, and whether it is tainted; ``pods``, each with the
        number of its node, its start in seconds, and a pod; ``pending`` pods; ``budgets``, each with the app that it
        selects, the allowed disruptions, and the numbers of the pods that are being disrupted. A pod has its CPU in
        millicores, priority, app and rules.
    """
    dice = random.Random(seed)
    theme = _THEMES[seed % len(_THEMES)]
    nodes = [
        [
            dice.choice([1000, 1500]),
            dice.randint(2, 5) if theme == "counts" else 110,
            f"z{dice.randint(0, 1)}",
            theme == "taints" and dice.random() < 0.3,
        ]
        for _ in range(dice.randint(3, 8))
    ]
    starts = iter(dice.sample(range(600), 100))
    pods = []
    for number, (capacity, most, *_) in enumerate(nodes):
        free, here, ports = capacity, 0, set()
        while free >= 100 and here < most:
            cpu = min(free, dice.choice([100, 200] if theme == "counts" else [200, 300, 500, 700]))
            free, here = free - cpu, here + 1
            drawn = _pod(dice, theme, cpu, dice.randint(0, 6), is_pending=False)
            rules = drawn[-1]
            if rules.get("port") in ports:
                del rules["port"]  # no node has two pods with the same host port
            if "port" in rules:
                ports.add(rules["port"])
            pods.append([number, next(starts), *drawn])
    budgets = []
    if theme == "budgets" or dice.random() < 0.2:
        for app in dice.sample("abc", dice.randint(1, 3)):
            numbers = [number for number, each in enumerate(pods) if each[4] == app]
            disrupted = dice.sample(numbers, 1) if numbers and dice.random() < 0.2 else []
            budgets.append([app, dice.randint(0, 2), disrupted])
    pending = []
    for _ in range(dice.randint(1, 2)):
        drawn = _pod(dice, theme, dice.choice([200, 400, 600, 900, 1200]), dice.randint(2, 9), is_pending=True)
        pending.append(drawn)
    return {"seed": seed, "nodes": nodes, "pods": pods, "budgets": budgets, "pending": pending}


def _pod(dice: random.Random, theme: str, cpu: int, priority: int, *, is_pending: bool) -> list[Any]:
    rules: Scenario = {}
    if theme == "ports" and dice.random() < 0.5:
        rules["port"] = dice.choice([80, 81])
    if theme in {"affinity", "anti-affinity"} and (is_pending or dice.random() < 0.15):
        rules[theme] = [dice.choice("abc"), dice.choice([_ZONE, _HOSTNAME])]
    if is_pending and theme == "spread":
        rules["spread"] = [dice.randint(1, 2), dice.choice([_ZONE, _HOSTNAME])]
    if is_pending and theme == "never" and dice.random() < 0.7:
        rules["never"] = True
    if is_pending and dice.random() < 0.15:
        rules["zone"] = f"z{dice.randint(0, 1)}"
    return [cpu, priority, dice.choice("abc"), rules]


def objects(scenario: Mapping[str, Any]) -> tuple[list[Object], list[Object], list[Object], list[Object]]:
    """Return the manifests of the nodes, the bound pods, the budgets and the pending pods, with their status."""
    return (
        [_node(f"n{number}", *each) for number, each in enumerate(scenario["nodes"])],
        [_bound(f"v{number}", *each) for number, each in enumerate(scenario["pods"])],
        [_budget(*each) for each in scenario["budgets"]],
        [_manifest(f"p{number}", *each) for number, each in enumerate(scenario["pending"])],
    )


def _node(name: str, cpu: int, pods: int, zone: str, is_tainted: bool) -> Object:
    taints = [{"key": "example.com/reserved", "effect": "NoSchedule"}] if is_tainted else []
    manifest = node(name, f"{cpu}m", labels={_ZONE: zone}, taints=taints)
    for amounts in (manifest["status"]["capacity"], manifest["status"]["allocatable"]):
        amounts["pods"] = str(pods)
    return manifest


def _bound(name: str, number: int, start: int, *drawn: Any) -> Object:
    manifest = _manifest(name, *drawn)
    manifest["spec"]["nodeName"] = f"n{number}"
    manifest["status"] = {"phase": "Running", "startTime": _time(_START + start)}
    return manifest


def _manifest(name: str, cpu: int, priority: int, app: str, rules: Mapping[str, Any]) -> Object:
    main = container(requests={"cpu": f"{cpu}m"})
    if "port" in rules:
        main["ports"] = [{"containerPort": rules["port"], "hostPort": rules["port"]}]
    manifest = pod(name, main, priority=priority, **dict(_rules(app, rules)))
    manifest["metadata"]["labels"] = {"app": app}
    return manifest


def _rules(app: str, rules: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for theme, key in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
        if theme in rules:
            other, topology = rules[theme]
            term = {"labelSelector": {"matchLabels": {"app": other}}, "topologyKey": topology}
            yield "affinity", {key: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if "spread" in rules:
        skew, topology = rules["spread"]
        constraint = {
            "maxSkew": skew, "topologyKey": topology, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }  # fmt: skip
        yield "topologySpreadConstraints", [constraint]
    if "zone" in rules:
        yield "nodeSelector", {_ZONE: rules["zone"]}
    if rules.get("never"):
        yield "preemptionPolicy", "Never"


def _budget(app: str, allowed: int, disrupted: list[int]) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{app}", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        "status": {
            "disruptionsAllowed": allowed, "disruptedPods": {f"v{number}": _time(_START) for number in disrupted},
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        },
    }  # fmt: skip


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
