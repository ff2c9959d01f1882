"""Scenarios of the smaller plugins of scheduler-plugins, drawn by seed; see ``plugin_oracle``."""

import random
from typing import Any, Final

from control_plane.manifests import Object, container, node, pod
from control_plane.plugin_oracle import PluginScenario

SCHEDULER: Final = "oracle"


def profile(
    plugin: str, *points: str, args: dict[str, Any] | None = None, without: dict[str, list[str]] | None = None
) -> Object:
    """Return a profile with a plugin at some extension points.

    Args:
        plugin: name of the plugin.
        points: extension points.
        args: arguments of the plugin.
        without: names of the plugins to disable, by extension point.
    """
    plugins: dict[str, Any] = {point: {"enabled": [{"name": plugin}]} for point in points}
    for point, names in (without or {}).items():
        plugins.setdefault(point, {})["disabled"] = [{"name": name} for name in names]
    given = [{"name": plugin, "args": args}] if args else []
    return {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": given}


ALL_SCORES: Final = {"score": ["*"]}


def pending(name: str, priority: int, millicores: int = 100, **spec: Any) -> Object:
    """Return a pending pod."""
    amounts = {"cpu": f"{millicores}m", "memory": "64Mi"}
    spec = {"schedulerName": SCHEDULER, "priority": priority, "terminationGracePeriodSeconds": 0, **spec}
    return pod(name, container(requests=amounts), **spec)


def allocatable(seed: int) -> PluginScenario:
    """Return nodes of different size, of which some are nearly full."""
    dice, name = random.Random(seed), f"s{seed}"
    sizes = [(dice.choice([1, 2, 4, 8]), dice.choice([2, 4, 8, 16])) for _ in range(dice.randint(2, 6))]
    nodes = [node(f"{name}-n{number}", str(cpu), f"{memory}Gi") for number, (cpu, memory) in enumerate(sizes)]
    amounts = [dice.choice([300, 900, 1500]) for _ in range(dice.randint(3, 8))]
    pods = [pending(f"{name}-p{number}", 100 - number, cpu) for number, cpu in enumerate(amounts)]
    return PluginScenario(name, nodes, pending=pods)


def pod_state(seed: int) -> PluginScenario:
    """Return nodes with pods that are being deleted, and pods that are nominated to nodes and come last."""
    dice, name = random.Random(seed), f"s{seed}"
    nodes = [node(f"{name}-n{number}") for number in range(dice.randint(2, 5))]
    bound, terminating = [], set()
    for number in range(dice.randint(2, 8)):
        each = pending(f"{name}-v{number}", 0, nodeName=f"{name}-n{dice.randrange(len(nodes))}")
        if dice.random() < 0.6:
            each["metadata"]["finalizers"] = ["example.com/keep"]
            terminating.add(each["metadata"]["name"])
        bound.append(each)
    pods = [pending(f"{name}-p{number}", 100 - number) for number in range(dice.randint(1, 4))]
    for number in range(dice.randint(0, 3)):
        each = pending(f"{name}-m{number}", 50 - number)
        each["status"] = {"nominatedNodeName": f"{name}-n{dice.randrange(len(nodes))}"}
        pods.append(each)
    return PluginScenario(name, nodes, bound, pods, terminating=frozenset(terminating))


def qos_sort(seed: int) -> PluginScenario:
    """Return one node that has room for some of the pods only, which differ in priority and quality of service."""
    dice, name = random.Random(seed), f"s{seed}"
    classes = dice.sample([(each, rank) for each in range(2) for rank in range(3)], dice.randint(3, 6))
    pods = []
    for number, (priority, rank) in enumerate(classes):
        amounts = {"cpu": "100m", "memory": "64Mi"}
        requests, limits = ((amounts, amounts), (amounts, None), (None, None))[rank]
        main = container(requests=requests, limits=limits)
        pods.append(pod(f"{name}-p{number}", main, schedulerName=SCHEDULER, priority=priority))
    only = node(f"{name}-n0")
    for kind in ("capacity", "allocatable"):
        only["status"][kind]["pods"] = str(dice.randint(1, len(pods)))
    return PluginScenario(name, [only], pending=pods)


def toleration(seed: int) -> PluginScenario:
    """Return full nodes whose pods are protected from some preemptors, for ever or no longer."""
    dice, name = random.Random(seed), f"s{seed}"
    prefix = "preemption-toleration.scheduling.x-k8s.io/"
    classes = []
    for number in range(3):
        annotations = {}
        if dice.random() < 0.7:
            annotations[f"{prefix}minimum-preemptable-priority"] = dice.choice(["5", "15", "25", "x"])
        if dice.random() < 0.8:
            annotations[f"{prefix}toleration-seconds"] = dice.choice(["-1", "0", "100000", "1"])
        classes.append({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": number,
            "metadata": {"name": f"{name}-c{number}", "annotations": annotations},
        })  # fmt: skip
    nodes = [node(f"{name}-n{number}", "1") for number in range(dice.randint(1, 4))]
    bound = []
    for place in range(len(nodes)):
        for number in range(2):
            rank = dice.randrange(3)
            each = pending(f"{name}-v{place}{number}", rank, 450, nodeName=f"{name}-n{place}")
            each["spec"]["priorityClassName"] = f"{name}-c{rank}"
            moment = dice.choice(["2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"])
            condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
            each["status"] = {
                "phase": "Running",
                "startTime": f"2026-01-01T00:{place}{number}:00Z",
                "conditions": [condition],
            }
            bound.append(each)
    pods = [
        pending(f"{name}-p{number}", dice.choice([10, 20, 30]) + number, 500) for number in range(dice.randint(1, 2))
    ]
    return PluginScenario(name, nodes, bound, pods, classes)
