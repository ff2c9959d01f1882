"""Pods with odd fields that the API server accepts, and a generator of pods with one to three odd leaves."""

import copy
import random
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

Object = dict[str, Any]


def _preferred(**expression: Any) -> Object:
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "x", **expression}]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _unlike(**expression: Any) -> Object:
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", **expression}]}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _beside(**resources: Any) -> Object:
    limits = {"cpu": "3500m", "memory": "64Mi", **resources}
    each = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3500m", "memory": "64Mi"}, "limits": limits}}
    return {"containers": [each]}


ODD: Final[Mapping[str, Object]] = {
    "preference Gt abc": _preferred(operator="Gt", values=["abc"]),
    "preference Lt beyond 64 bits": _preferred(operator="Lt", values=["9" * 30]),
    "preference In an invalid label": _preferred(operator="In", values=["no label", "x" * 300]),
    "anti-affinity": _unlike(operator="NotIn", values=["b"]),
    "memory limit of 9E": _beside(memory="9E"),
    "memory limit of 1e30": _beside(memory="1e30"),
    "CPU limit of 1e15": _beside(cpu="1e15"),
    "9E of another resource": _beside(**{"example.com/x": "9E"}),
    "toleration of everything": {
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -(2**63)}]
    },
}
"""Fields of specs by what is odd; each asks for 3.5 cores and 64 MiB if it has containers."""

_AMOUNTS = (
    "0", "1n", "0.1m", "1", "1.5", "100m", "4E", "9E", "9.3E", "8Ei", "16Ei", "1e15", "1e18", "1e30", "1e999999",
    "500P", "0.000000000001", ".5", "5.", "+1", "-1", "", "abc", "1 Gi", "1e1.5", str(2**63 - 1), str(2**63),
)  # fmt: skip
# Texts that the CustomResourceDefinitions of scheduler-plugins take for amounts, and that upstream can read.
_QUANTITY: Final = re.compile(r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|[eE](\+|-)?[0-9]+)?")
_TEXTS = ("", "a", "A.b_c-1", "no label", "x" * 63, "x" * 64, "-5", "+5", "abc", "1.5", "9" * 19, "9" * 30)
_NUMBERS = (-(2**63), -1, 0, 1, 2, 100, 101, 65535, 2**31 - 1, 2**31, 2**63 - 1)
_AMOUNT_KEYS = frozenset({
    "requests", "limits", "annotations", "capacity", "allocatable", "maximumVolumeSize", "min", "max", "minResources",
    "bandwidthCapacity", "available",
})  # fmt: skip
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like")
FIXED: Final = frozenset({"kind", "name", "namespace", "image"})
"""Keys of leaves that do not change."""
_KINDS: Mapping[str, tuple[Any, ...]] = {
    "amount": _AMOUNTS, "text": _TEXTS, "number": _NUMBERS, "operator": _OPERATORS, "truth": (True, False),
}  # fmt: skip


def whole_pod() -> Object:
    """Return a pod with one of most fields that are read; the API server accepts it."""
    expression = {"key": "x", "operator": "In", "values": ["a"]}
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [dict(expression)]}
    term = {"labelSelector": selector, "topologyKey": "zone"}
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    amounts = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi", "example.com/x": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "default", "labels": {"app": "a"},
            "annotations": {"trimaran.io/network": "1M", "trimaran.io/disk": "1M"},
        },
        "spec": {
            "containers": [
                {
                    "name": "c", "image": "i", "resources": {"requests": dict(amounts), "limits": dict(amounts)},
                    "ports": [{"containerPort": 80, "hostPort": 8080}],
                },
                {"name": "d", "image": "i", "resources": {"requests": dict(amounts), "limits": dict(amounts)}},
            ],
            "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}],
            "nodeSelector": {"disk": "ssd"},
            "priority": 0,
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    required: {"nodeSelectorTerms": [{"matchExpressions": [dict(expression)]}]},
                    preferred: [{"weight": 1, "preference": {"matchExpressions": [dict(expression)]}}],
                },
                "podAffinity": {required: [copy.deepcopy(term)]},
                "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": copy.deepcopy(term)}]},
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 1,
                    "labelSelector": copy.deepcopy(selector),
                }
            ],
        },
    }  # fmt: skip


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> "list[tuple[tuple[Any, ...], str]]":
    """Return the path of each leaf, and the kind of its values."""
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _leaves(each, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in _leaves(each, (*path, index))]
    if _AMOUNT_KEYS.intersection(path):
        return [(path, "amount")]
    if isinstance(value, bool):
        return [(path, "truth")]
    if isinstance(value, int):
        return [(path, "number")]
    return [(path, "operator" if path[-1] == "operator" else "text")]


def odd_pod(dice: random.Random, name: str) -> Object:
    """Return a pod with one to three odd leaves: boundaries, odd units, empty and huge values."""
    made = whole_pod()
    change_leaves(dice, made)
    made["metadata"]["name"] = name
    return made


def odd_amounts(made: Object) -> list[str]:
    """Return all amounts in an object."""
    amounts = []
    for path, kind in _leaves(made):
        if kind == "amount":
            value: Any = made
            for key in path:
                value = value[key]
            amounts.append(str(value))
    return amounts


def are_quantities(amounts: Iterable[str]) -> bool:
    """Return whether the schemas of custom resources allow some amounts; those of the tests allow every text."""
    return all(map(_QUANTITY.fullmatch, amounts))


ADMITTED_AMOUNTS: Final = tuple(each for each in _AMOUNTS if are_quantities([each]))
"""Odd amounts that the schemas of custom resources allow."""


def change_leaves(dice: random.Random, made: Object, *fixed: str) -> None:
    """Change one to three leaves of an object to odd values of their kind, but none below the ``fixed`` keys."""
    changeable = [
        (path, kind)
        for path, kind in _leaves(made)
        if path[0] != "apiVersion" and path[-1] not in FIXED and not {*fixed}.intersection(path)
    ]
    for path, kind in dice.sample(changeable, min(len(changeable), dice.randint(1, 3))):
        owner: Any = made
        for key in path[:-1]:
            owner = owner[key]
        owner[path[-1]] = dice.choice(_KINDS[kind])
        if (
            len(path) > 1 and path[-2] in ("requests", "limits") and dice.random() < 0.7
        ):  # most requests above their limit are refused
            other = "limits" if path[-2] == "requests" else "requests"
            resources: Any = made
            for key in path[:-2]:
                resources = resources[key]
            resources.setdefault(other, {})[path[-1]] = owner[path[-1]]
