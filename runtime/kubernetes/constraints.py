"""Constraints of pods on nodes: taints and tolerations, node selectors and required node affinity.

These are values only; :mod:`scoring.table.node_constraints` applies them to a table of nodes.
Source: k8s.io/api/core/v1 and k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runtime.errors import quoted
from runtime.kubernetes.k8s_fields import get, get_list, int64

_LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
_MAX_VALUES: Final = {"In": None, "NotIn": None, "Exists": 0, "DoesNotExist": 0, "Gt": 1, "Lt": 1}
_NODE_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint of a node. ``effect`` is NoSchedule, NoExecute or PreferNoSchedule, which does not exclude pods."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


# A cordoned node counts as having this taint, even if the node controller has not set it yet.
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable")


@dataclass(frozen=True, slots=True)
class Toleration:
    """Toleration of a pod; an empty key or effect matches every taint. ``operator`` is Equal or Exists."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether this toleration matches a taint."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """Requirement on one label of a node, or of a pod. ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def allows(self, value: str | None) -> bool:
        """Return whether a value of the label meets the requirement; None stands for a node without the label."""
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator in {"Exists", "DoesNotExist"}:
            return (value is not None) == (self.operator == "Exists")
        present, bound = (None if value is None else int64(value)), int64(self.values[0])
        if present is None or bound is None:
            return False
        return present > bound if self.operator == "Gt" else present < bound


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Conditions on a node, all of which must hold. A term without conditions matches no node.

    Attributes:
        labels: requirements on labels.
        names: requirements on the node's name, with the key ``metadata.name``.
    """

    labels: tuple[NodeRequirement, ...] = ()
    names: tuple[NodeRequirement, ...] = ()


def read_taints(spec: Any, where: str) -> tuple[Taint, ...]:
    """Read a node's taints.

    Raises:
        ValueError: the field is not a list.
    """
    return tuple(
        Taint(get(taint, "key") or "", get(taint, "value") or "", get(taint, "effect") or "")
        for taint in get_list(spec, "taints", where)
    )


def read_tolerations(spec: Any, where: str) -> tuple[Toleration, ...]:
    """Read a pod's tolerations.

    Raises:
        ValueError: the field is not a list.
    """
    return tuple(
        Toleration(
            get(toleration, "key") or "",
            get(toleration, "operator") or "Equal",
            get(toleration, "value") or "",
            get(toleration, "effect") or "",
        )
        for toleration in get_list(spec, "tolerations", where)
    )


def read_required_affinity(spec: Any, where: str) -> tuple[NodeSelectorTerm, ...] | None:
    """Read a pod's required node affinity: terms, at least one of which must match; None without such an affinity.

    Raises:
        ValueError: a requirement is invalid.
    """
    node_affinity = get(get(spec, "affinity"), "nodeAffinity")
    return None if node_affinity is None else read_required_terms(node_affinity, f"{where}.affinity.nodeAffinity")


def read_required_terms(node_affinity: Any, where: str) -> tuple[NodeSelectorTerm, ...] | None:
    """Read the required terms of a v1 NodeAffinity, at least one of which must match; None without required terms.

    Raises:
        ValueError: a requirement is invalid.
    """
    required = get(node_affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    where += ".requiredDuringSchedulingIgnoredDuringExecution"
    terms = []
    for index, term in enumerate(get_list(required, "nodeSelectorTerms", where)):
        terms.append(read_node_term(term, f"{where}.nodeSelectorTerms[{index}]"))
    return tuple(terms)


def read_node_term(term: Any, where: str) -> NodeSelectorTerm:
    """Read a v1 NodeSelectorTerm; a term that kube-scheduler cannot parse has no conditions, so it matches no node.

    Raises:
        ValueError: a requirement is invalid.
    """
    labels, names = (read_requirements(term, kind, where) for kind in ("matchExpressions", "matchFields"))
    for requirement in names:
        if requirement.key != _NODE_NAME or requirement.operator not in {"In", "NotIn"}:
            found = f"{requirement.operator} of {quoted(requirement.key)}"
            raise ValueError(f"{where}.matchFields: must be In or NotIn of {_NODE_NAME}, got {found}")
    return NodeSelectorTerm(labels, names) if are_parsable(labels) else NodeSelectorTerm()


def are_parsable(requirements: Iterable[NodeRequirement]) -> bool:
    """Return whether kube-scheduler can parse requirements on node labels; the API server admits more values.

    Source: ``NewRequirement`` of k8s.io/apimachinery/pkg/labels.
    """
    return all(
        _LABEL_VALUE.fullmatch(value) and (_MAX_VALUES[each.operator] != 1 or int64(value) is not None)
        for each in requirements
        for value in each.values
    )


def read_requirements(term: Any, kind: str, where: str) -> tuple[NodeRequirement, ...]:
    """Read a list of requirements of a selector.

    Args:
        term: object that has the list.
        kind: name of the list, such as ``matchExpressions``.
        where: path of the object, for error messages.

    Raises:
        ValueError: a requirement is invalid.
    """
    requirements = []
    for index, expression in enumerate(get_list(term, kind, where)):
        path = f"{where}.{kind}[{index}]"
        key, operator = get(expression, "key"), get(expression, "operator")
        values = tuple(get_list(expression, "values", path))
        if operator not in _MAX_VALUES:
            raise ValueError(f"{path}.operator: must be one of {', '.join(_MAX_VALUES)}, got {quoted(operator)}")
        if not isinstance(key, str) or not key:
            raise ValueError(f"{path}.key: must be a label's name, got {quoted(key)}")
        _check_values(operator, values, path)
        requirements.append(NodeRequirement(key, operator, values))
    return tuple(requirements)


def _check_values(operator: str, values: Sequence[Any], path: str) -> None:
    limit = _MAX_VALUES[operator]
    if not all(isinstance(value, str) for value in values) or (limit == 0 and values) or (limit != 0 and not values):
        raise ValueError(
            f"{path}.values: {operator} needs {'no values' if limit == 0 else 'one or more strings'}, "
            f"got {quoted(values)}"
        )
    if limit == 1 and len(values) != 1:
        raise ValueError(f"{path}.values: {operator} needs one value, got {quoted(values)}")
