"""Scenarios of NetworkOverhead and TopologicalSort, drawn by seed; see ``plugin_oracle``."""

import random
from typing import Any, Final

from control_plane.manifests import Object, node
from control_plane.plugin_oracle import PluginScenario, custom_resource
from control_plane.plugin_scenarios import pending

_GROUP, _TOPOLOGY = "appgroup.diktyo.x-k8s.io", "networktopology.diktyo.x-k8s.io"
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
RESOURCES: Final = (
    custom_resource(_GROUP, "v1alpha1", "AppGroup", status=True),
    custom_resource(_TOPOLOGY, "v1alpha1", "NetworkTopology"),
)
TOPOLOGY: Final = "shared"
_PLACES = [("r1", "z1"), ("r1", "z2"), ("r2", "z3"), ("r2", "z4"), ("r3", "z5"), ("", "")]


def overhead(seed: int) -> PluginScenario:
    """Return nodes in some places, with pods of an application on them, and more of its pods."""
    dice, name = random.Random(seed), f"s{seed}"
    nodes = []
    for place in range(dice.randint(2, 6)):
        region, zone = dice.choice(_PLACES)
        nodes.append(node(f"{name}-n{place}", labels={_REGION: region, _ZONE: zone} if region else {}))
    group = {
        "apiVersion": f"{_GROUP}/v1alpha1", "kind": "AppGroup", "metadata": {"name": name, "namespace": "default"},
        "spec": {"numMembers": 3, "topologySortingAlgorithm": "KahnSort", "workloads": _workloads(dice)},
    }  # fmt: skip
    bound = []
    for number in range(dice.randint(1, 6)):
        each = _member(f"{name}-v{number}", name, dice.choice("abc"), 0)
        each["spec"]["nodeName"] = f"{name}-n{dice.randrange(len(nodes))}"
        bound.append(each)
    pods = [
        _member(f"{name}-p{number}", name, dice.choice("abc"), 100 - number) for number in range(dice.randint(1, 3))
    ]
    # The real plugin counts a placed pod once its watch shows it, which may be after the next pod is placed.
    return PluginScenario(name, nodes, bound, pods, [group], one_by_one=True)


def sort(seed: int) -> PluginScenario:
    """Return one node that has room for some of an application's pods only."""
    dice, name = random.Random(seed), f"s{seed}"
    workloads = dice.sample("abcdef", dice.randint(2, 6))
    places = dice.sample(range(1, 20), len(workloads))
    order = [
        {"workload": {"selector": each, "name": each, "kind": "Deployment", "apiVersion": "apps/v1"}, "index": place}
        for each, place in sorted(zip(workloads, places, strict=True))
    ]
    group = {
        "apiVersion": f"{_GROUP}/v1alpha1", "kind": "AppGroup", "metadata": {"name": name, "namespace": "default"},
        "spec": {"numMembers": 3, "topologySortingAlgorithm": "KahnSort", "workloads": []},
        "status": {"topologyOrder": order},
    }  # fmt: skip
    only = node(f"{name}-n0")
    for kind in ("capacity", "allocatable"):
        only["status"][kind]["pods"] = str(dice.randint(1, len(workloads)))
    pods = [_member(f"{name}-p{number}", name, each, 10) for number, each in enumerate(workloads)]
    return PluginScenario(name, [only], pending=pods, others=[group])


def _member(name: str, group: str, workload: str, priority: int) -> Object:
    made = pending(name, priority)
    made["metadata"]["labels"] = {_GROUP: group, f"{_GROUP}.workload": workload}
    return made


def _workloads(dice: random.Random) -> list[Object]:
    workloads: list[Object] = []
    for selector in "abc":
        dependencies = [
            {"workload": _reference(other), "maxNetworkCost": dice.choice([0, 2, 5, 15, 30])}
            for other in "abc" if other != selector and dice.random() < 0.7
        ]  # fmt: skip
        workloads.append({"workload": _reference(selector), "dependencies": dependencies})
    return workloads


def _reference(selector: str) -> Object:
    return {
        "kind": "Deployment", "apiVersion": "apps/v1", "namespace": "default", "name": selector, "selector": selector,
    }  # fmt: skip


def topology() -> Object:
    """Return the network costs, which all scenarios share; some pairs have none."""

    def level(key: str, names: list[str], missing: set[tuple[str, str]], factor: int) -> dict[str, Any]:
        origins = [
            {
                "origin": origin,
                "costList": [
                    {"destination": other, "networkCost": factor * (1 + abs(here - there))}
                    for there, other in enumerate(names) if other != origin and (origin, other) not in missing
                ],
            }
            for here, origin in enumerate(names)
        ]  # fmt: skip
        return {"topologyKey": key, "originList": origins}

    levels = [
        level(_REGION, ["r1", "r2", "r3"], {("r1", "r3")}, 7),
        level(_ZONE, ["z1", "z2", "z3", "z4", "z5"], set(), 2),
    ]
    return {
        "apiVersion": f"{_TOPOLOGY}/v1alpha1", "kind": "NetworkTopology",
        "metadata": {"name": TOPOLOGY, "namespace": "default"},
        "spec": {"weights": [{"name": "UserDefined", "topologyList": levels}]},
    }  # fmt: skip
