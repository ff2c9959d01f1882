"""Scenarios of Coscheduling, drawn by seed; see ``plugin_oracle``."""

import random
from typing import Any, Final

from control_plane.manifests import Object, container, node, pod
from control_plane.plugin_oracle import PluginScenario, custom_resource
from control_plane.plugin_scenarios import SCHEDULER
from support.odd_pods import ADMITTED_AMOUNTS

_GROUP: Final = "scheduling.x-k8s.io"
RESOURCES: Final = (custom_resource(_GROUP, "v1alpha1", "PodGroup", status=True),)


def draw(seed: int) -> PluginScenario:
    """Return gangs of different priority and single pods.

    The gangs are of different priority, so that their order is certain, and the pods of a gang are equal.
    Where there is no room for all, each gang states what it needs, so that it takes no node in vain: of gangs that hold
    a part of the room, upstream lets each keep others back (see docs/gangs.md).
    """
    dice, name = random.Random(seed), f"s{seed}"
    resource, is_scarce = f"example.com/{name}", dice.random() < 0.4
    groups, pods = [], []
    for number, priority in enumerate(dice.sample(range(1, 50), dice.randint(1, 3))):
        size = dice.randint(1, 5)
        least = max(1, size + dice.choice([-1, 0, 0, 0, 1]))
        spec: dict[str, Any] = {"minMember": least, "scheduleTimeoutSeconds": 2}
        if is_scarce or dice.random() < 0.3:
            spec["minResources"] = {resource: str(least if is_scarce else dice.choice([least, 50]))}
        if dice.random() < 0.9:
            metadata = {"name": f"{name}-g{number}", "namespace": "default"}
            groups.append({"apiVersion": f"{_GROUP}/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec})
        for member in range(size):
            each = _pod(f"{name}-p{number}{member}", priority, resource)
            each["metadata"]["labels"] = {f"{_GROUP}/pod-group": f"{name}-g{number}"}
            pods.append(each)
    singles = [(f"{name}-q{number}x", dice.choice([60, 0]) + number) for number in range(dice.randint(0, 2))]
    pods += [_pod(each, priority, resource) for each, priority in singles]
    room = dice.randint(1, len(pods)) if is_scarce else len(pods)
    sizes = [room // 2, room - room // 2]
    nodes = [node(f"{name}-n{place}", resources={resource: str(size)}) for place, size in enumerate(sizes)]
    return PluginScenario(name, nodes, pending=pods, others=groups, alike=True)


def odd(seed: int) -> PluginScenario:
    """Return the scenario of a seed with room for all pods and one to three odd fields of PodGroups.

    Timeouts are above zero: with others, upstream lets chance decide whether the pods of a gang meet.
    """
    dice, scenario = random.Random(f"odd {seed}"), draw(seed)
    resource = f"example.com/{scenario.name}"
    for each in scenario.nodes:
        for kind in ("capacity", "allocatable"):
            each["status"][kind][resource] = str(len(scenario.pending))
    for group in dice.choices(scenario.others, k=dice.randint(1, 3)) if scenario.others else ():
        spec = group["spec"]
        match dice.choice(["minMember", "scheduleTimeoutSeconds", "minResources", "minResources", "minResources"]):
            case "minResources":
                name = dice.choice([resource, resource, "cpu", "memory", "pods", "example.com/none"])
                spec.setdefault("minResources", {})[name] = dice.choice(ADMITTED_AMOUNTS)
            case "minMember":
                spec["minMember"] = dice.choice([1, 2**31 - 1])
            case field:
                spec[field] = dice.choice([1, 2**31 - 1])
    return scenario


def _pod(name: str, priority: int, resource: str) -> Object:
    amounts = {resource: "1"}
    return pod(name, container(requests=amounts, limits=amounts), schedulerName=SCHEDULER, priority=priority)
