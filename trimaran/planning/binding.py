"""Carrying a plan out: a v1 Binding for each pod, which is what a scheduler sends too."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests

from runtime import masking
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from scoring.arrays import Int64s
from trimaran.planning.cluster import Batch, Waiting

_SECONDS = 30.0


@dataclass(frozen=True)
class Bound:
    """What became of a pod.

    Attributes:
        pod: its namespace and name.
        node: where it was to go.
        error: why it is not there; "" where it is.
    """

    pod: str
    node: str
    error: str


def bindings(batch: Batch, plan: Int64s) -> list[dict[str, Any]]:
    """Return a v1 Binding for each pod that has a node, the pods of a gang next to each other.

    ``kubectl create`` takes them too.
    """
    placed = [(waiting, int(row)) for waiting, row in zip(batch.waiting, plan, strict=True) if row >= 0]
    placed.sort(key=lambda each: each[0].gang)
    return [_binding(waiting, batch.names[row]) for waiting, row in placed]


def bind(api: KubernetesApi, wanted: Sequence[dict[str, Any]]) -> Iterator[Bound]:
    """Bind one pod after another, and yield what became of each.

    A pod that somebody else has bound meanwhile, that is gone, or that may not be bound, costs itself alone. Once the
    API server cannot be reached, or knows us no more, or Ctrl-C was pressed, the pods that are left are not tried.
    """
    why_stopped = ""
    for binding in wanted:
        if why_stopped:
            error = f"not tried: {why_stopped}"
        else:
            error, goes_on = _bind(api, binding)
            why_stopped = "" if goes_on else error
        metadata = binding["metadata"]
        yield Bound(f"{metadata['namespace']}/{metadata['name']}", binding["target"]["name"], error)


def failed_gangs(batch: Batch, bound: Iterable[Bound]) -> list[str]:
    """Return the gangs of which some pods are bound and some are not."""
    gang_of = {each.name: each.gang for each in batch.waiting if each.gang}
    ways: dict[str, set[bool]] = {}
    for each in bound:
        if each.pod in gang_of:
            ways.setdefault(gang_of[each.pod], set()).add(not each.error)
    return sorted(gang for gang, found in ways.items() if len(found) > 1)


def _binding(waiting: Waiting, node: str) -> dict[str, Any]:
    pod = waiting.pod
    metadata = {"name": pod.name, "namespace": pod.namespace}
    if not pod.uid.startswith(f"{pod.namespace}/"):  # one that the API server gave: a namesake is not bound instead
        metadata["uid"] = pod.uid
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _bind(api: KubernetesApi, binding: dict[str, Any]) -> tuple[str, bool]:
    """Bind a pod; return why it is not bound, "" where it is, and whether others may be."""
    metadata = binding["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    try:
        api.send("POST", path, Deadline.after(_SECONDS), binding)
    except requests.HTTPError as refusal:
        status = None if refusal.response is None else refusal.response.status_code
        hint = ": binding needs the right to create pods/binding" if status == HTTPStatus.FORBIDDEN else ""
        return _said(refusal) + hint, status != HTTPStatus.UNAUTHORIZED
    except REQUEST_FAILURES as failure:
        return f"the Kubernetes API cannot be used: {masking.said(failure)}", False
    except KeyboardInterrupt:
        return "interrupted: whether it is bound is not known", False
    return "", True


def _said(refusal: requests.HTTPError) -> str:
    """Return what the API server says of a refusal, in one line without secrets."""
    said: Any = None
    if refusal.response is not None:
        try:
            said = refusal.response.json()
        except ValueError:
            said = None
    message = said.get("message") if isinstance(said, dict) else None
    return masking.said(message or refusal, 300)
