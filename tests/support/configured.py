"""Our scheduler with a profile of a KubeSchedulerConfiguration and objects from manifests, for tests of plugins."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from control_plane.manifests import Object, container
from control_plane.manifests import pod as manifest
from control_plane.plugin_oracle import configuration
from control_plane.plugin_scenarios import SCHEDULER, profile

from runtime.kubernetes.objects import Node, Pod
from trimaran.scheduler.framework.decisions import Bind, Decision, Unschedulable
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.profiles.configuration import read_setup

__all__ = ["SCHEDULER", "Configured", "pod", "profile"]


def pod(name: str, requests: Mapping[str, str] | None = None, priority: int = 0, **fields: Any) -> Object:
    """Return a pod; ``namespace``, ``labels`` and ``annotations`` go into its metadata, other fields into its spec."""
    metadata = {key: fields.pop(key) for key in ("namespace", "labels", "annotations") if key in fields}
    spec = {"schedulerName": SCHEDULER, "priority": priority, **fields}
    made = manifest(name, container(requests=requests or {"cpu": "100m"}), **spec)
    made["metadata"].update({"uid": name, **metadata})
    return made


class Configured:
    """Scheduler that follows manifests.

    Args:
        chosen: profile.
        nodes: nodes.
        others: kind and manifest of other objects.
    """

    def __init__(
        self, chosen: Mapping[str, Any], nodes: Sequence[Object], others: Sequence[tuple[str, Object]] = ()
    ) -> None:
        setup = read_setup(configuration(chosen), seed=0, preempts_shared=True)
        self.setup = setup
        self.scheduler = Scheduler(setup.profiles, np.random.default_rng(0), setup.options, setup.others, setup.gangs)
        self.scheduler.replace_nodes([Node.from_k8s(each, setup.annotations) for each in nodes], 0.0)
        for kind, each in others:
            self.scheduler.put_other(kind, each, 0.0)
        self.now = 0.0

    def put(self, *pods: Object, node: str = "") -> None:
        """Add pods, bound to a node if one is given."""
        for each in pods:
            spec = {**each["spec"], "nodeName": node} if node else each["spec"]
            document = {**each, "spec": spec}
            self.scheduler.put_pod(Pod.from_k8s(document, kept_annotations=self.setup.annotations), self.now)

    def decide(self, seconds: float = 0.0) -> list[Decision]:
        """Return all decisions that are due some seconds later."""
        self.now += seconds
        made = []
        while (decision := self.scheduler.next(self.now)) is not None:
            made.append(decision)
        return made

    def place(self, *pods: Object) -> dict[str, str]:
        """Add pending pods; return the node of each placed pod, or the message of the others, by name."""
        self.put(*pods)
        return outcomes(self.decide())


def outcomes(made: Sequence[Decision]) -> dict[str, str]:
    """Return the node or the message of each decision, by pod name."""
    texts = {}
    for each in made:
        if isinstance(each, Bind):
            texts[each.pod.name] = each.node_name
        elif isinstance(each, Unschedulable):
            texts[each.pod.name] = each.message
    return texts
