"""Validation of names by the rules of the Kubernetes API. Source: k8s.io/apimachinery/pkg/util/validation."""

import re
from typing import Any

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME, _MAX_DOMAIN = 63, 253


def is_qualified(name: str) -> bool:
    """Return whether a text is a name, or a DNS domain and a name, such as ``example.com/gpu``."""
    domain, slash, rest = name.rpartition("/")
    return is_name(rest) and (not slash or (len(domain) <= _MAX_DOMAIN and bool(_DOMAIN.fullmatch(domain))))


def is_name(text: str) -> bool:
    """Return whether a text is the name of a label."""
    return len(text) <= _MAX_NAME and bool(_NAME.fullmatch(text))


def is_extended_resource(name: str) -> bool:
    """Return whether a text is the name of an extended resource, such as ``example.com/gpu``."""
    is_native = "/" not in name or "kubernetes.io/" in name
    return not is_native and not name.startswith("requests.") and is_qualified(f"requests.{name}")


def problem_of_requirement(requirement: dict[str, Any]) -> str:
    """Return why a requirement on a node's labels is refused; "" if it is valid."""
    key, operator = requirement.get("key", ""), requirement.get("operator", "")
    values = requirement.get("values", [])
    if operator not in {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}:
        return "operator must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt"
    if not is_qualified(key):
        return "key must be the name of a label"
    if operator in {"In", "NotIn"} and not values:
        return f"values must not be empty for {operator}"
    if operator in {"Exists", "DoesNotExist"} and values:
        return f"values must be empty for {operator}"
    if operator in {"Gt", "Lt"} and (len(values) != 1 or not _is_int64(values[0])):
        return f"values must be one integer for {operator}"
    return "" if all(value == "" or is_name(value) for value in values) else "values must be valid label values"


def _is_int64(text: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9]+", text) is not None and -(2**63) <= int(text) < 2**63
