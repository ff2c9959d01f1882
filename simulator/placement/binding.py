"""Carrying a plan out: a v1 Binding for each pod, which is what a scheduler sends too."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests

from scoring.arrays import Int64s
from simulator.placement.cluster import Batch, Waiting
from watcher import masking
from watcher.transport.credentials import UnusableAccess, UnusableToken
from watcher.transport.gather import Deadline
from watcher.transport.kubernetes import KubernetesApi

_SECONDS = 30.0
_UNUSABLE = (requests.RequestException, UnusableAccess, UnusableToken, TimeoutError)


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
    API server cannot be reached, or knows us no more, the pods that are left are not tried.
    """
    stopped = ""
    for binding in wanted:
        metadata = binding["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        error = stopped
        if not stopped:
            try:
                path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
                api.send("POST", path, Deadline.after(_SECONDS), binding)
            except requests.HTTPError as refusal:
                error = _said(refusal)
                status = None if refusal.response is None else refusal.response.status_code
                if status == HTTPStatus.FORBIDDEN:
                    error = f"{error}: binding needs the right to create pods/binding"
                elif status == HTTPStatus.UNAUTHORIZED:
                    stopped = f"not tried: {error}"
            except _UNUSABLE as failure:
                error = f"the Kubernetes API cannot be used: {masking.said(failure)}"
                stopped = f"not tried: {error}"
        yield Bound(f"{namespace}/{name}", binding["target"]["name"], error)


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
