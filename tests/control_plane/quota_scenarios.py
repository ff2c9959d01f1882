"""Scenarios of CapacityScheduling, drawn by seed; see ``plugin_oracle``.

The sum over all quotas matters, and many scenarios share a cluster. So each has a resource of its own, which nobody
else requests, and all quotas have more CPU and memory than there is. The pods on nodes are within the sum of all
guarantees: upstream refuses all pods while the sum of any resource is above it, also those that do not request it.
"""

import random
from typing import Any

from control_plane.manifests import Object, container, node, pod
from control_plane.plugin_oracle import PluginScenario, custom_resource
from control_plane.plugin_scenarios import SCHEDULER
from support.odd_pods import ADMITTED_AMOUNTS

from runtime.kubernetes.quantity import MAX_INT64, value

RESOURCES = (custom_resource("scheduling.x-k8s.io", "v1alpha1", "ElasticQuota", status=True),)
_PLENTY = {"cpu": "1000", "memory": "1000Gi"}


def draw(seed: int) -> PluginScenario:
    """Return namespaces of which some borrow from others, and pods that take back, borrow, or preempt by priority."""
    dice, name = random.Random(seed), f"s{seed}"
    resource = f"example.com/{name}"
    namespaces = [f"{name}-{letter}" for letter in "abc"[: dice.randint(2, 3)]]
    quotas = [_quota(namespace, resource, dice.randint(1, 4), dice.choice([0, 2, 4, 100])) for namespace in namespaces]
    if dice.random() < 0.4:
        namespaces.append(f"{name}-free")
    starts, sizes = iter(dice.sample(range(600), 60)), [dice.randint(2, 6) for _ in range(dice.randint(1, 3))]
    nodes = [node(f"{name}-n{place}", resources={resource: str(size)}) for place, size in enumerate(sizes)]
    bound: list[Object] = []
    unused = sum(int(quota["spec"]["min"][resource]) for quota in quotas)
    for place, size in enumerate(sizes):
        free = size
        while free and dice.random() < 0.85:
            amount, namespace = min(free, dice.choice([1, 1, 2])), dice.choice(namespaces)
            free -= amount
            if not namespace.endswith("free"):
                if amount > unused:
                    continue
                unused -= amount
            each = _pod(f"{name}-v{len(bound)}", namespace, resource, amount, dice.randint(0, 20))
            each["spec"]["nodeName"] = f"{name}-n{place}"
            second = next(starts)
            each["status"] = {"phase": "Running", "startTime": f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"}
            bound.append(each)
    priorities = dice.sample(range(5, 30), dice.randint(1, 4))
    pods = [
        _pod(f"{name}-p{number}", dice.choice(namespaces), resource, dice.choice([1, 1, 2, 3]), priority)
        for number, priority in enumerate(priorities)
    ]
    return PluginScenario(name, nodes, bound, pods, quotas, one_by_one=True)


def odd(seed: int) -> PluginScenario:
    """Return the scenario of a seed with one to three odd bounds, and without pods of the quotas on nodes.

    The sum of the guarantees fits 64 bits and is not negative: upstream's sum wraps, and while it is negative upstream
    refuses the pods of all scenarios.
    """
    dice, total = random.Random(f"odd {seed}"), -1
    while not 0 <= total <= MAX_INT64:
        scenario = draw(seed)
        resource = f"example.com/{scenario.name}"
        for _ in range(dice.randint(1, 3)):
            bounds = dice.choice(scenario.others)["spec"][dice.choice(["min", "max"])]
            bounds[resource] = dice.choice(ADMITTED_AMOUNTS)
        total = sum(value(quota["spec"]["min"][resource]) for quota in scenario.others)
    scenario.bound = [each for each in scenario.bound if each["metadata"]["namespace"].endswith("free")]
    return scenario


def _quota(namespace: str, resource: str, least: int, more: int) -> Object:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {**_PLENTY, resource: str(least)}, "max": {**_PLENTY, resource: str(least + more)}},
    }  # fmt: skip


def _pod(name: str, namespace: str, resource: str, amount: int, priority: int) -> Object:
    amounts = {resource: str(amount)}
    spec: dict[str, Any] = {"schedulerName": SCHEDULER, "priority": priority, "terminationGracePeriodSeconds": 0}
    made = pod(name, container(requests=amounts, limits=amounts), **spec)
    made["metadata"]["namespace"] = namespace
    return made
