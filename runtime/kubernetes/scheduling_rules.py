"""Rules of a pod for kube-scheduler beyond requests, tolerations and required node affinity.

These are affinity to other pods, topology spread, preferred node affinity, host ports, volumes, resource claims and
scheduling gates. Most pods have none of them and share :data:`NO_RULES`.

The values are read as kube-scheduler sees them after the API server's defaults: a term without namespaces applies to
the pod's own, and label keys are merged into selectors. Source: k8s.io/api/core/v1, and ``AffinityTerm`` and
``topologySpreadConstraint`` of kube-scheduler.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runtime.errors import quoted
from runtime.kubernetes.constraints import NodeRequirement, NodeSelectorTerm, read_node_term, read_requirements
from runtime.kubernetes.k8s_fields import get, get_list, get_texts, get_whole

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  the default of a host port, not an address that this program binds
_SELECTOR_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels, all of which must hold; without requirements it selects everything.

    Attributes:
        requirements: requirements, sorted, so that equal selectors are equal values.
    """

    requirements: tuple[NodeRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet all requirements."""
        for requirement in self.requirements:  # noqa: SIM110  a loop is faster than all(), and this runs for many pods
            if not requirement.allows(labels.get(requirement.key)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """Term of a pod's affinity or anti-affinity to other pods.

    Attributes:
        selector: labels of the other pods; None selects no pod.
        topology_key: label of nodes whose value defines the topology domain.
        namespaces: namespaces of the other pods, sorted.
        namespace_selector: labels of further namespaces; None selects none, a selector without requirements all.
    """

    selector: LabelSelector | None
    topology_key: str
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """Topology spread constraint.

    Attributes:
        max_skew: largest allowed difference between the number of matching pods in a domain and the minimum.
        topology_key: label of nodes whose value defines the topology domain.
        required: true for ``DoNotSchedule``; false for ``ScheduleAnyway``, which affects scores only.
        selector: labels of the pods to count; None selects no pod.
        min_domains: with fewer domains, the minimum counts as 0.
        honors_affinity: only nodes that match the pod's node selector and required node affinity count.
        honors_taints: only nodes whose taints the pod tolerates count.
    """

    max_skew: int
    topology_key: str
    required: bool
    selector: LabelSelector | None = None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """Scheduling rules of a pod; most pods have none.

    Attributes:
        required_affinity_terms: terms of required affinity to other pods.
        required_anti_affinity_terms: terms of required anti-affinity.
        preferred_affinity_terms: weights and terms of preferred affinity.
        preferred_anti_affinity_terms: weights and terms of preferred anti-affinity.
        preferred_node_terms: weights and terms of preferred node affinity, without those that have no effect.
        spread: topology spread constraints.
        host_ports: address, protocol and number of each host port of containers and sidecars.
        gates: names of the scheduling gates.
        preempts: false if the pod must not preempt others (``preemptionPolicy: Never``).
        claims: names of the PersistentVolumeClaims of the volumes.
        ephemeral_volumes: names of the generic ephemeral volumes, whose claims are named ``POD-VOLUME``.
        disks: kind and identity of volumes that exclude each other: ``("gcePersistentDisk", name, read only)``,
            ``("awsElasticBlockStore", volume id)``, ``("iscsi", iqn, read only)`` and
            ``("rbd", monitors, pool, image, read only)``.
        resource_claims: names of the entries of ``spec.resourceClaims``, which dynamic resource allocation serves.
        pod_group: name of the PodGroup in ``spec.schedulingGroup``; "" if there is none.
        node_features: features that a node must declare for the pod, see the plugin NodeDeclaredFeatures.
    """

    required_affinity_terms: tuple[PodAffinityTerm, ...] = ()
    required_anti_affinity_terms: tuple[PodAffinityTerm, ...] = ()
    preferred_affinity_terms: tuple[tuple[int, PodAffinityTerm], ...] = ()
    preferred_anti_affinity_terms: tuple[tuple[int, PodAffinityTerm], ...] = ()
    preferred_node_terms: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()
    gates: tuple[str, ...] = ()
    preempts: bool = True
    claims: tuple[str, ...] = ()
    ephemeral_volumes: tuple[str, ...] = ()
    disks: tuple[tuple[Any, ...], ...] = ()
    resource_claims: tuple[str, ...] = ()
    pod_group: str = ""
    node_features: tuple[str, ...] = ()


# A pod's JSON without these keys has rules only in its containers, its volumes and ``preemptionPolicy``, if any.
_RULE_KEYS = frozenset({
    "affinity", "hostNetwork", "initContainers", "resourceClaims", "schedulingGates", "schedulingGroup",
    "topologySpreadConstraints", "topology_spread_constraints",
})  # fmt: skip
_VOLUME_KEYS = frozenset(
    {"awsElasticBlockStore", "ephemeral", "gcePersistentDisk", "iscsi", "persistentVolumeClaim", "rbd"}
)

NO_RULES: Final = SchedulingRules()
"""The rules of most pods, one shared object."""


def read_scheduling_rules(spec: Any, namespace: str, labels: Mapping[str, str], where: str) -> SchedulingRules:
    """Read the rules of a pod.

    Args:
        spec: the field ``spec`` of the pod.
        namespace: namespace of the pod.
        labels: labels of the pod.
        where: path of ``spec``, for error messages.

    Raises:
        ValueError: a rule is invalid; the message starts with the path of its field.
    """
    if _has_no_rules(spec):
        return NO_RULES
    rules: dict[str, Any] = {}
    affinity = get(spec, "affinity")
    if affinity:
        rules.update(_affinity(affinity, namespace, labels, f"{where}.affinity"))
    if get(spec, "topologySpreadConstraints"):
        rules["spread"] = tuple(_spread(spec, labels, where))
    if get(spec, "volumes"):
        rules.update(_volumes(spec, where))
    rules.update(_containers(spec, where))
    if get(spec, "schedulingGates"):
        rules["gates"] = tuple(get(gate, "name") or "" for gate in get_list(spec, "schedulingGates", where))
    if get(spec, "preemptionPolicy") == "Never":
        rules["preempts"] = False
    if get(spec, "resourceClaims"):
        rules["resource_claims"] = tuple(get(each, "name") or "" for each in get_list(spec, "resourceClaims", where))
    group = get(spec, "schedulingGroup")
    if group:
        rules["pod_group"] = get(group, "podGroupName") or ""
    return SchedulingRules(**rules) if rules else NO_RULES


def read_preferred_node_terms(affinity: Any, where: str) -> tuple[tuple[int, NodeSelectorTerm], ...]:
    """Read weights and terms of preferred node affinity, without those that have no effect.

    Args:
        affinity: a v1 NodeAffinity.
        where: its path, for error messages.

    Raises:
        ValueError: a term is invalid.
    """
    terms = []
    for index, entry in enumerate(get_list(affinity, _PREFERRED, where)):
        path = f"{where}.{_PREFERRED}[{index}]"
        weight = get_whole(entry, "weight", path)
        term = read_node_term(get(entry, "preference"), f"{path}.preference")
        if weight and (term.labels or term.names):
            terms.append((weight, term))
    return tuple(terms)


def _has_no_rules(spec: Any) -> bool:
    """Return True for most pods without rules, in a fifth of the time of reading the rules; False if it is uncertain.

    True is returned only for the API server's JSON, not for other forms, such as dicts with underscores in their keys.
    """
    if type(spec) is not dict or not _RULE_KEYS.isdisjoint(spec) or spec.get("preemptionPolicy") == "Never":
        return False
    for volume in spec.get("volumes") or ():
        if type(volume) is not dict or not _VOLUME_KEYS.isdisjoint(volume):
            return False
    for container in spec.get("containers") or ():
        if type(container) is not dict or "restartPolicyRules" in container:
            return False
        for port in container.get("ports") or ():
            if type(port) is not dict or "hostPort" in port:
                return False
        for mount in container.get("volumeMounts") or ():
            if type(mount) is not dict or "bindMountOptions" in mount:
                return False
    return "containers" in spec


def _affinity(affinity: Any, namespace: str, labels: Mapping[str, str], where: str) -> Iterator[tuple[str, Any]]:
    for key, name in (("podAffinity", "affinity_terms"), ("podAntiAffinity", "anti_affinity_terms")):
        rules = get(affinity, key)
        if not rules:
            continue
        terms = get_list(rules, _REQUIRED, f"{where}.{key}")
        if terms:
            path = f"{where}.{key}.{_REQUIRED}"
            yield (
                f"required_{name}",
                tuple(_term(term, namespace, labels, f"{path}[{index}]") for index, term in enumerate(terms)),
            )
        weighted = get_list(rules, _PREFERRED, f"{where}.{key}")
        if weighted:
            path = f"{where}.{key}.{_PREFERRED}"
            yield (
                f"preferred_{name}",
                tuple(
                    (
                        get_whole(entry, "weight", f"{path}[{index}]"),
                        _term(get(entry, "podAffinityTerm"), namespace, labels, f"{path}[{index}].podAffinityTerm"),
                    )
                    for index, entry in enumerate(weighted)
                ),
            )
    node_affinity = get(affinity, "nodeAffinity")
    if get(node_affinity, _PREFERRED):
        yield "preferred_node_terms", read_preferred_node_terms(node_affinity, f"{where}.nodeAffinity")


def _term(term: Any, namespace: str, labels: Mapping[str, str], where: str) -> PodAffinityTerm:
    selector = read_label_selector(term, "labelSelector", where)
    if selector is not None:
        # The API server merges label keys when it creates the pod; only manifests still have them as separate fields.
        merged = {requirement.key for requirement in selector.requirements}
        selector = _with_label_keys(selector, get(term, "matchLabelKeys"), "In", labels, merged)
        selector = _with_label_keys(selector, get(term, "mismatchLabelKeys"), "NotIn", labels, merged)
    namespaces = get_list(term, "namespaces", where)
    namespace_selector = read_label_selector(term, "namespaceSelector", where)
    if not namespaces and namespace_selector is None:
        namespaces = (namespace,)
    topology_key = get(term, "topologyKey") or ""
    return PodAffinityTerm(selector, topology_key, tuple(sorted(set(namespaces))), namespace_selector)


def _spread(spec: Any, labels: Mapping[str, str], where: str) -> Iterator[SpreadConstraint]:
    for index, constraint in enumerate(get_list(spec, "topologySpreadConstraints", where)):
        path = f"{where}.topologySpreadConstraints[{index}]"
        selector = read_label_selector(constraint, "labelSelector", path)
        if selector is not None:
            # kube-scheduler itself adds these keys, with the labels that the pod has now.
            selector = _with_label_keys(selector, get(constraint, "matchLabelKeys"), "In", labels, frozenset())
        yield read_spread_constraint(constraint, selector, path)


def read_spread_constraint(constraint: Any, selector: LabelSelector | None, where: str) -> SpreadConstraint:
    """Read a v1 TopologySpreadConstraint, except for its selector.

    Raises:
        ValueError: a field is invalid.
    """
    unsatisfiable = get(constraint, "whenUnsatisfiable")
    if unsatisfiable not in {"DoNotSchedule", "ScheduleAnyway"}:
        raise ValueError(
            f"{where}.whenUnsatisfiable: must be DoNotSchedule or ScheduleAnyway, got {quoted(unsatisfiable)}"
        )
    max_skew = get_whole(constraint, "maxSkew", where)
    if max_skew < 1:
        raise ValueError(f"{where}.maxSkew: must be at least 1, got {quoted(max_skew)}")
    return SpreadConstraint(
        max_skew,
        get(constraint, "topologyKey") or "",
        unsatisfiable == "DoNotSchedule",
        selector,
        max(1, get_whole(constraint, "minDomains", where, 1)),
        get(constraint, "nodeAffinityPolicy") != "Ignore",
        get(constraint, "nodeTaintsPolicy") == "Honor",
    )


def read_label_selector(owner: Any, key: str, where: str) -> LabelSelector | None:
    """Read a v1 LabelSelector; None if there is none, which selects nothing.

    Args:
        owner: object that has the selector.
        key: name of the field.
        where: path of the owner, for error messages.

    Raises:
        ValueError: a requirement is invalid.
    """
    selector = get(owner, key)
    if selector is None:
        return None
    path = f"{where}.{key}"
    requirements = {
        NodeRequirement(name, "In", (value,)) for name, value in get_texts(selector, "matchLabels", path).items()
    }
    for index, requirement in enumerate(read_requirements(selector, "matchExpressions", path)):
        if requirement.operator not in _SELECTOR_OPERATORS:
            raise ValueError(
                f"{path}.matchExpressions[{index}].operator: must be one of {', '.join(sorted(_SELECTOR_OPERATORS))}, "
                f"got {quoted(requirement.operator)}"
            )
        values = tuple(sorted(set(requirement.values)))
        requirements.add(NodeRequirement(requirement.key, requirement.operator, values))
    return LabelSelector(_in_order(requirements))


def _with_label_keys(
    selector: LabelSelector, keys: Any, operator: str, labels: Mapping[str, str], merged: set[str] | frozenset[str]
) -> LabelSelector:
    present = [key for key in keys or () if key in labels and key not in merged]
    added = {NodeRequirement(key, operator, (labels[key],)) for key in present}
    return LabelSelector(_in_order({*selector.requirements, *added})) if added else selector


def _in_order(requirements: set[NodeRequirement]) -> tuple[NodeRequirement, ...]:
    return tuple(sorted(requirements, key=lambda each: (each.key, each.operator, each.values)))


def _containers(spec: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the rules that are in the containers: host ports, and features that the node must declare."""
    host_network = bool(get(spec, "hostNetwork"))
    ports: list[tuple[str, str, int]] = []
    features: set[str] = set()
    for kind in ("initContainers", "containers"):
        for container in get(spec, kind) or ():
            features.update(_node_features(container))
            # Of the init containers, only sidecars hold their ports as long as the pod runs.
            if kind == "containers" or get(container, "restartPolicy") == "Always":
                ports += _host_ports(container, where, host_network=host_network)
    if host_network and get(spec, "hostUsers") is False:
        features.add("UserNamespacesHostNetworkSupport")
    if ports:
        yield "host_ports", tuple(dict.fromkeys(ports))
    if features:
        yield "node_features", tuple(sorted(features))


def _node_features(container: Any) -> Iterator[str]:
    """Yield the features that a container needs. Source: k8s.io/component-helpers/nodedeclaredfeatures/features."""
    if any(get(mount, "bindMountOptions") for mount in get(container, "volumeMounts") or ()):
        yield "VolumeBindMountOptions"
    if any(get(rule, "action") == "RestartAllContainers" for rule in get(container, "restartPolicyRules") or ()):
        yield "RestartAllContainersOnContainerExits"


def _host_ports(container: Any, where: str, *, host_network: bool) -> Iterator[tuple[str, str, int]]:
    for port in get(container, "ports") or ():
        # On the host's network, the API server sets the host port to the container's port.
        name = "containerPort" if host_network and not get(port, "hostPort") else "hostPort"
        number = get_whole(port, name, f"{where}: ports")
        if number:
            yield get(port, "hostIP") or ANY_ADDRESS, get(port, "protocol") or "TCP", number


def _volumes(spec: Any, where: str) -> Iterator[tuple[str, Any]]:
    claims: list[str] = []
    ephemeral: list[str] = []
    disks: list[tuple[Any, ...]] = []
    for volume in get_list(spec, "volumes", where):
        if (claim := get(volume, "persistentVolumeClaim")) is not None:
            claims.append(str(get(claim, "claimName") or ""))
        elif get(volume, "ephemeral") is not None:
            ephemeral.append(str(get(volume, "name") or ""))
        elif (disk := get(volume, "gcePersistentDisk")) is not None:
            disks.append(("gcePersistentDisk", get(disk, "pdName") or "", bool(get(disk, "readOnly"))))
        elif (disk := get(volume, "awsElasticBlockStore")) is not None:
            disks.append(("awsElasticBlockStore", get(disk, "volumeID") or ""))
        elif (disk := get(volume, "iscsi")) is not None:
            disks.append(("iscsi", get(disk, "iqn") or "", bool(get(disk, "readOnly"))))
        elif (disk := get(volume, "rbd")) is not None:
            monitors = tuple(get_list(disk, "monitors", f"{where}.volumes"))
            pool, image = get(disk, "pool") or "rbd", get(disk, "image") or ""
            disks.append(("rbd", monitors, pool, image, bool(get(disk, "readOnly"))))
    for name, found in (("claims", claims), ("ephemeral_volumes", ephemeral), ("disks", disks)):
        if found:
            yield name, tuple(found)
