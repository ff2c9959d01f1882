"""Validation of the arguments of kube-scheduler's plugins, after defaulting.

Source: validation_pluginargs.go and defaults.go of k8s.io/kubernetes/pkg/scheduler/apis/config.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from scoring.kubernetes_version import at_least
from trimaran.kube_scheduler.findings import Findings
from trimaran.kube_scheduler.names import is_qualified, problem_of_requirement
from trimaran.kube_scheduler.table import VersionTable

Arguments = Mapping[str, Any]
_MOST_PERCENT, _MOST_SHAPE_SCORE, _MOST_WEIGHT, _SECOND = 100, 10, 100, 10**9
_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


class ArgumentRules:
    """Rules of one Kubernetes version for the arguments of plugins.

    Args:
        version: Kubernetes version.
        table: structs, plugins and feature gates of the version.
        findings: collects the refused values.
    """

    def __init__(self, version: str, table: VersionTable, findings: Findings) -> None:
        self._version = version
        self._gates = table.gates
        self._findings = findings
        self._unless = findings.refuse_unless
        self._rules: Mapping[str, Callable[[str, Arguments], None]] = {
            "DefaultPreemption": self._default_preemption,
            "DynamicResources": self._dynamic_resources,
            "InterPodAffinity": self._inter_pod_affinity,
            "NodeAffinity": self._node_affinity,
            "NodeResourcesBalancedAllocation": self._balanced_allocation,
            "PodTopologySpread": self._topology_spread,
            "VolumeBinding": self._volume_binding,
        }

    def check(self, plugin: str, path: str, arguments: Arguments) -> None:
        """Check the arguments of a plugin, whether or not it is enabled."""
        if rule := self._rules.get(plugin):
            rule(path, arguments)
        elif plugin != "NodeResourcesFit":  # checked only where it is enabled: upstream's table misspells its name
            self._findings.leave(path, f"the rules of {plugin} are not known")

    def check_fit(self, path: str, arguments: Arguments, *, ignored_by_extender: bool) -> None:
        """Check the arguments of an enabled NodeResourcesFit.

        Args:
            path: path of the arguments.
            arguments: the arguments.
            ignored_by_extender: whether the resources of an extender replace ``ignoredResources``.
        """
        for key in ("ignoredResources", "ignoredResourceGroups"):
            if key == "ignoredResources" and ignored_by_extender:
                continue
            for index, name in enumerate(arguments.get(key, [])):
                valid = is_qualified(name) and not (key == "ignoredResourceGroups" and "/" in name)
                self._unless(valid, f"{path}.{key}[{index}]", "must be a valid name")
        if "scoringStrategy" in arguments:
            self._strategy(f"{path}.scoringStrategy", arguments["scoringStrategy"])

    def _strategy(self, path: str, strategy: Arguments) -> None:
        kind, ratio = strategy.get("type", ""), strategy.get("requestedToCapacityRatio")
        self._unless(kind in _STRATEGIES, f"{path}.type", f"must be one of {', '.join(_STRATEGIES)}")
        for index, resource in enumerate(strategy.get("resources", [])):
            weight = resource.get("weight", 0) or 1
            self._unless(1 <= weight <= _MOST_WEIGHT, f"{path}.resources[{index}].weight", "must be 1 to 100")
        where, is_ratio = f"{path}.requestedToCapacityRatio", kind == _STRATEGIES[-1]
        if is_ratio and ratio is None:
            self._findings.refuse(where, f"is required for type {kind}")
        elif ratio is not None and not is_ratio and at_least(self._version, "1.36"):
            self._findings.refuse(where, f"must be absent unless the type is {_STRATEGIES[-1]}")
        elif ratio is not None:
            self._shape(f"{where}.shape", ratio.get("shape", []))

    def _shape(self, path: str, shape: list[Arguments]) -> None:
        self._unless(shape, path, "must have at least one point")
        utilizations = [point.get("utilization", 0) for point in shape]
        rising = all(before < after for before, after in pairwise(utilizations))
        self._unless(rising, path, "utilization must rise from point to point")
        for index, point in enumerate(shape):
            utilization, score = point.get("utilization", 0), point.get("score", 0)
            self._unless(0 <= utilization <= _MOST_PERCENT, f"{path}[{index}].utilization", "must be 0 to 100")
            self._unless(0 <= score <= _MOST_SHAPE_SCORE, f"{path}[{index}].score", "must be 0 to 10")

    def _default_preemption(self, path: str, arguments: Arguments) -> None:
        percentage = arguments.get("minCandidateNodesPercentage", 10)
        absolute = arguments.get("minCandidateNodesAbsolute", 100)
        self._unless(0 <= percentage <= _MOST_PERCENT, f"{path}.minCandidateNodesPercentage", "must be 0 to 100")
        self._unless(absolute >= 0, f"{path}.minCandidateNodesAbsolute", "must be at least 0")
        both = "minCandidateNodesPercentage and minCandidateNodesAbsolute must not both be 0"
        self._unless(percentage or absolute, path, both)

    def _inter_pod_affinity(self, path: str, arguments: Arguments) -> None:
        weight = arguments.get("hardPodAffinityWeight", 1)
        self._unless(0 <= weight <= _MOST_WEIGHT, f"{path}.hardPodAffinityWeight", "must be 0 to 100")

    def _balanced_allocation(self, path: str, arguments: Arguments) -> None:
        seen = set()
        for index, resource in enumerate(arguments.get("resources", [])):
            name = resource.get("name", "")
            self._unless(name not in seen, f"{path}.resources[{index}].name", "an earlier resource has this name")
            self._unless((resource.get("weight", 0) or 1) == 1, f"{path}.resources[{index}].weight", "must be 1")
            seen.add(name)

    def _topology_spread(self, path: str, arguments: Arguments) -> None:
        kind, constraints = arguments.get("defaultingType", "") or "System", arguments.get("defaultConstraints", [])
        self._unless(kind in {"System", "List"}, f"{path}.defaultingType", "must be System or List")
        self._unless(
            not (kind == "System" and constraints), f"{path}.defaultingType", "must be List with defaultConstraints"
        )
        seen = set()
        for index, constraint in enumerate(constraints):
            where = f"{path}.defaultConstraints[{index}]"
            key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
            self._unless(constraint.get("maxSkew", 0) > 0, f"{where}.maxSkew", "must be above 0")
            self._unless(is_qualified(key), f"{where}.topologyKey", "must be the name of a label")
            known = action in {"DoNotSchedule", "ScheduleAnyway"}
            self._unless(known, f"{where}.whenUnsatisfiable", "must be DoNotSchedule or ScheduleAnyway")
            self._unless("labelSelector" not in constraint, f"{where}.labelSelector", "must be absent")
            repeated = "an earlier constraint has the same topologyKey and whenUnsatisfiable"
            self._unless((key, action) not in seen, where, repeated)
            seen.add((key, action))

    def _volume_binding(self, path: str, arguments: Arguments) -> None:
        self._unless(arguments.get("bindTimeoutSeconds", 600) >= 0, f"{path}.bindTimeoutSeconds", "must be at least 0")
        if "StorageCapacityScoring" not in self._gates:
            absent = "must be absent unless the feature gate StorageCapacityScoring is on"
            self._unless("shape" not in arguments, f"{path}.shape", absent)
        elif arguments.get("shape"):
            self._shape(f"{path}.shape", arguments["shape"])

    def _dynamic_resources(self, path: str, arguments: Arguments) -> None:
        # Upstream checks values together with gates; these gates are on by default in versions that have the keys.
        if "filterTimeout" in arguments:
            on = "DRASchedulerFilterTimeout" in self._gates
            where = f"{path}.filterTimeout"
            self._unless(on, where, "must be absent unless the feature gate DRASchedulerFilterTimeout is on")
            self._unless(arguments["filterTimeout"] >= 0, where, "must be at least 0")
        if "bindingTimeout" in arguments:
            on = {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"} <= self._gates
            where = f"{path}.bindingTimeout"
            self._unless(on, where, "must be absent unless the feature gate DRADeviceBindingConditions is on")
            self._unless(arguments["bindingTimeout"] >= _SECOND, where, "must be at least 1s")

    def _node_affinity(self, path: str, arguments: Arguments) -> None:
        added = arguments.get("addedAffinity", {})
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(added.get(required, {}).get("nodeSelectorTerms", [])):
            self._term(f"{path}.addedAffinity.{required}.nodeSelectorTerms[{index}]", term)
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        for index, weighted in enumerate(added.get(preferred, [])):
            if weighted.get("weight", 0):
                where = f"{path}.addedAffinity.{preferred}[{index}].preference"
                self._term(where, weighted.get("preference", {}))

    def _term(self, path: str, term: Arguments) -> None:
        for index, requirement in enumerate(term.get("matchExpressions", [])):
            problem = problem_of_requirement(requirement)
            self._unless(not problem, f"{path}.matchExpressions[{index}]", problem)
        for index, requirement in enumerate(term.get("matchFields", [])):
            valid = requirement.get("operator", "") in {"In", "NotIn"} and len(requirement.get("values", [])) == 1
            self._unless(valid, f"{path}.matchFields[{index}]", "must be In or NotIn with one value")
