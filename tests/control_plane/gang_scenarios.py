"""Scenarios of Coscheduling, drawn by seed; see ``plugin_oracle``."""

import random
from typing import Any, Final

from control_plane.manifests import node
from control_plane.plugin_oracle import PluginScenario, custom_resource
from control_plane.plugin_scenarios import pending

_GROUP: Final = "scheduling.x-k8s.io"
RESOURCES: Final = (custom_resource(_GROUP, "v1alpha1", "PodGroup", status=True),)


def draw(seed: int) -> PluginScenario:
    """Return gangs of different priority and single pods, for some of which the nodes have room.

    The gangs are of different priority, so that their order is certain, and the pods of a gang are equal but for gates.
    """
    dice, name = random.Random(seed), f"s{seed}"
    nodes = [node(f"{name}-n{place}", str(dice.randint(1, 3))) for place in range(dice.randint(1, 3))]
    groups, pods = [], []
    for number, priority in enumerate(dice.sample(range(1, 50), dice.randint(1, 3))):
        size = dice.randint(1, 5)
        least = max(1, size + dice.choice([-1, 0, 0, 0, 1]))
        spec: dict[str, Any] = {"minMember": least, "scheduleTimeoutSeconds": 2}
        if dice.random() < 0.3:
            spec["minResources"] = {"cpu": str(dice.choice([least, least * 2]))}
        if dice.random() < 0.9:
            metadata = {"name": f"{name}-g{number}", "namespace": "default"}
            groups.append({"apiVersion": f"{_GROUP}/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec})
        for member in range(size):
            gates = [{"name": "example.com/wait"}] if dice.random() < 0.05 else []
            each = pending(f"{name}-p{number}{member}", priority, 500, schedulingGates=gates)
            each["metadata"]["labels"] = {f"{_GROUP}/pod-group": f"{name}-g{number}"}
            pods.append(each)
    singles = [(f"{name}-q{number}x", dice.choice([60, 0]) + number) for number in range(dice.randint(0, 2))]
    pods += [pending(each, priority, 500) for each, priority in singles]
    return PluginScenario(name, nodes, pending=pods, others=groups, alike=True)
