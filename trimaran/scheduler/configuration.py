"""Configuration of the scheduler: the profiles of a KubeSchedulerConfiguration, or the default profile."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import NO_RULES
from scoring import NodeTable
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict, unresolvable_everywhere
from trimaran.plugins import read_scheduler_file
from trimaran.scheduler.profile import SchedulerProfile
from trimaran.scheduler.queue import QueueOptions
from trimaran.scheduler.scheduler import OtherObjects, Scheduler

CONGESTION_WEIGHT: Final = 5
"""Weight of CongestionCost in the default profile, next to kube-scheduler's own plugins; see docs/evidence.md."""

_HARMLESS_RULES = {
    "preferred_affinity_terms",
    "preferred_anti_affinity_terms",
    "preferred_node_terms",
    "gates",
    "preempts",
}


class NodeFit(FilterPlugin):
    """Resources, taints, node selector and required node affinity; pods with other rules are refused everywhere.

    A pod whose rules are not checked must stay pending: a wrong binding cannot be undone.
    """

    name = "NodeFit"
    counts_nominated = True

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
        """Return the nodes that have room for the pod and that its constraints allow."""
        unchecked = sorted(
            rule.name
            for rule in fields(pod.scheduling)
            if rule.name not in _HARMLESS_RULES and getattr(pod.scheduling, rule.name) != getattr(NO_RULES, rule.name)
        )
        allowed = nodes.feasible(pod)[rows]
        if unchecked:
            why = f"the scheduler does not support the pod's {', '.join(unchecked).replace('_', ' ')}"
            return unresolvable_everywhere(np.zeros_like(allowed), why)
        return FilterVerdict(allowed, "node(s) had no room, or did not match the pod's constraints")


@dataclass(frozen=True)
class SchedulerSetup:
    """Parts of a scheduler as configured.

    Attributes:
        profiles: profiles, by which the pods of each scheduler name are placed.
        options: times of the queue.
        kinds: kinds of objects to watch besides nodes and pods, of :data:`~trimaran.scheduler.inbox.OTHER_KINDS`.
        others: store of these objects; None if there are none.
    """

    profiles: tuple[SchedulerProfile, ...]
    options: QueueOptions = field(default_factory=QueueOptions)
    kinds: frozenset[str] = frozenset()
    others: OtherObjects | None = None

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Scheduler names of the profiles."""
        return tuple(profile.scheduler_name for profile in self.profiles)

    def scheduler(self, seed: int | None = None) -> Scheduler:
        """Return a new scheduler; the seed makes ties between equal nodes repeatable."""
        return Scheduler(self.profiles, np.random.default_rng(seed), self.options, self.others)


def read_setup(document: Mapping[str, Any], allow: Collection[str] = ()) -> SchedulerSetup:
    """Read a KubeSchedulerConfiguration.

    Args:
        document: the parsed file.
        allow: names of plugins that may stand in the file although trimaran does not know them.

    Raises:
        ValueError: the document is not valid; the message begins with the key.
    """
    configuration = read_scheduler_file(document, allow=allow)
    options = QueueOptions(
        initial_backoff_seconds=_seconds(document, "podInitialBackoffSeconds", 1.0),
        max_backoff_seconds=_seconds(document, "podMaxBackoffSeconds", 10.0),
    )
    return SchedulerSetup(
        tuple(SchedulerProfile(profile, filters=(NodeFit(),)) for profile in configuration.profiles), options
    )


def default_document(scheduler_name: str) -> dict[str, Any]:
    """Return the default configuration for a scheduler name: kube-scheduler's plugins and CongestionCost."""
    score = {"enabled": [{"name": "CongestionCost", "weight": CONGESTION_WEIGHT}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": scheduler_name, "plugins": {"score": score}}],
    }


def _seconds(document: Mapping[str, Any], key: str, default: float) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key}: must be a number of seconds above 0, got {value!r}")
    return float(value)
