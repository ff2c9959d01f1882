"""Scenarios of NodeResourceTopologyMatch, drawn by seed; see ``plugin_oracle``."""

import random
from typing import Any

from control_plane.manifests import Object, container, node, pod
from control_plane.plugin_oracle import PluginScenario, custom_resource
from control_plane.plugin_scenarios import SCHEDULER
from support.odd_pods import ADMITTED_AMOUNTS

from runtime.kubernetes.quantity import MAX_INT64, value

RESOURCES = (custom_resource("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology", namespaced=False),)
_DEVICE = "example.com/device"
# Above 64 bits, upstream divides by zero, which ends its process; a hundred times an amount wraps in its scores.
_ODD_AMOUNTS = tuple(each for each in ADMITTED_AMOUNTS if abs(value(each)) <= MAX_INT64 // 100)
# Upstream's process ends with the number 64, and with one that is not below the number of zones.
_ODD_NAMES = ("", "node-", "node--1", "node-+{}", "node-0{}", "node-65", "node-{} ", "node-\u0669", "cell-{}")
_ODD_VALUES = ("", "0", "1", "-8", "+8", "08", "\u0668", "9" * 30, "pod", "container", "single-numa-node", "Restricted")
_POLICIES = ("single-numa-node", "single-numa-node", "single-numa-node", "restricted", "none")


def draw(seed: int) -> PluginScenario:
    """Return nodes with free amounts in their NUMA nodes, and pods of all qualities of service."""
    dice, name = random.Random(seed), f"s{seed}"
    nodes, topologies = [], []
    for place in range(dice.randint(2, 4)):
        devices = {_DEVICE: "8"} if dice.random() < 0.7 else {}
        nodes.append(node(f"{name}-n{place}", "32", "64Gi", resources=devices))
        if dice.random() < 0.9:
            topologies.append(_topology(dice, f"{name}-n{place}", has_devices=bool(devices)))
    pods = [_pod(dice, f"{name}-p{number}", 100 - number) for number in range(dice.randint(2, 4))]
    return PluginScenario(name, nodes, pending=pods, others=topologies)


def odd(seed: int) -> PluginScenario:
    """Return the scenario of a seed with one to three odd fields of each topology."""
    dice, scenario = random.Random(f"odd {seed}"), draw(seed)
    for topology in scenario.others:
        for _ in range(dice.randint(1, 3)):
            zone, attributes = dice.choice(topology["zones"]), topology.get("attributes", [])
            match dice.choice(["amount", "amount", "amount", "cost", "name", "attribute"]):
                case "amount":
                    dice.choice(zone["resources"])["available"] = dice.choice(_ODD_AMOUNTS)
                case "cost":
                    dice.choice(zone["costs"])["value"] = dice.choice([-(2**63), -1, 0, 2**31, 2**63 - 1])
                case "name" if zone is topology["zones"][-1]:
                    zone["name"] = dice.choice(_ODD_NAMES).format(len(topology["zones"]) - 1)
                case "attribute" if attributes:
                    dice.choice(attributes)["value"] = dice.choice(_ODD_VALUES)
    return scenario


def _topology(dice: random.Random, name: str, *, has_devices: bool) -> Object:
    count = dice.randint(1, 4)
    zones = []
    for number in range(count):
        amounts = {"cpu": str(dice.randint(1, 8)), "memory": f"{dice.randint(1, 8)}Gi"}
        if has_devices and dice.random() < 0.8:
            amounts[_DEVICE] = str(dice.randint(0, 3))
        resources = [
            {"name": key, "capacity": amount, "allocatable": amount, "available": amount}
            for key, amount in amounts.items()
        ]
        costs = [
            {"name": f"node-{other}", "value": 10 if other == number else dice.choice([12, 20])}
            for other in range(count)
        ]
        zones.append({"name": f"node-{number}", "type": "Node", "costs": costs, "resources": resources})
    made: Object = {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": name}, "zones": zones,
    }  # fmt: skip
    policy, scope = dice.choice(_POLICIES), dice.choice(["pod", "container"])
    if policy == "single-numa-node" and dice.random() < 0.3:
        made["topologyPolicies"] = ["SingleNUMANodePodLevel" if scope == "pod" else "SingleNUMANodeContainerLevel"]
        return made
    made["attributes"] = [
        {"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope},
    ]  # fmt: skip
    if dice.random() < 0.3:
        made["attributes"].append({"name": "topologyManagerMaxNUMANodes", "value": str(dice.choice([4, 8, 16]))})
    return made


def _pod(dice: random.Random, name: str, priority: int) -> Object:
    quality = dice.choice(["Guaranteed", "Guaranteed", "Guaranteed", "Burstable", "BestEffort"])
    containers = [_container(dice, f"c{number}", quality) for number in range(dice.randint(1, 3))]
    spec: dict[str, Any] = {"schedulerName": SCHEDULER, "priority": priority}
    if dice.random() < 0.3:
        spec["initContainers"] = [_container(dice, "first", quality)]
    return pod(name, *containers, **spec)


def _container(dice: random.Random, name: str, quality: str) -> Object:
    amounts = {}
    if quality != "BestEffort":
        amounts = {
            "cpu": dice.choice(["500m", "1", "2", "3", "5"]),
            "memory": dice.choice(["512Mi", "1Gi", "2Gi", "5Gi"]),
        }
    devices = {_DEVICE: str(dice.randint(1, 2))} if dice.random() < 0.3 else {}
    limits = {**amounts, **devices} if quality == "Guaranteed" else devices
    return container(name, requests={**amounts, **devices}, limits=limits)
