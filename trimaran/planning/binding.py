"""Binding of planned pods to their nodes, by a v1 Binding for each pod, as kube-scheduler does."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from runtime import masking
from runtime.http.failures import status_line
from runtime.http.gather import Deadline
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from scoring.arrays import Int64s
from trimaran.planning.cluster import Batch

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class BindResult:
    """Result of binding one pod.

    Attributes:
        pod: namespace and name of the pod.
        node: name of the planned node.
        error: reason why the pod is not bound; "" on success.
    """

    pod: str
    node: str
    error: str


def as_bindings(batch: Batch, plan: Int64s) -> list[dict[str, Any]]:
    """Return a v1 Binding for each placed pod, with the pods of a gang next to each other.

    ``kubectl create`` accepts the Bindings too.

    Args:
        batch: pods and node names.
        plan: row of the node of each pod; -1 without a node.
    """
    placed = [(pending, int(row)) for pending, row in zip(batch.pending, plan, strict=True) if row >= 0]
    placed.sort(key=lambda pair: pair[0].gang)
    return [object_requests.binding(pending.pod, batch.names[row]) for pending, row in placed]


def bind(api: KubernetesApi, bindings: Sequence[dict[str, Any]]) -> Iterator[BindResult]:
    """Bind one pod after another, and yield the result for each.

    If the API server rejects a Binding, for example because the pod was deleted or is bound already, the other pods are
    still tried. Once the API server cannot be reached or answers 401, or Ctrl-C is pressed, the remaining pods are
    reported as not tried.
    """
    stop_reason = ""
    for each in bindings:
        if stop_reason:
            error = f"not tried: {stop_reason}"
        else:
            error, may_continue = _bind(api, each)
            stop_reason = "" if may_continue else error
        metadata = each["metadata"]
        yield BindResult(f"{metadata['namespace']}/{metadata['name']}", each["target"]["name"], error)


def partly_bound_gangs(batch: Batch, results: Iterable[BindResult]) -> list[str]:
    """Return the names of the gangs with pods that were bound and pods that failed to bind."""
    gang_of = {pending.name: pending.gang for pending in batch.pending if pending.gang}
    outcomes: dict[str, set[bool]] = {}
    for result in results:
        if result.pod in gang_of:
            outcomes.setdefault(gang_of[result.pod], set()).add(not result.error)
    return sorted(gang for gang, seen in outcomes.items() if len(seen) > 1)


def _bind(api: KubernetesApi, body: dict[str, Any]) -> tuple[str, bool]:
    """Bind a pod; return the error ("" on success), and whether other pods should still be tried."""
    try:
        object_requests.bind(api, body, Deadline.after(_TIMEOUT_SECONDS))
    except REQUEST_FAILURES as failure:
        response = getattr(failure, "response", None)
        if response is None:
            return f"the Kubernetes API cannot be used: {masking.to_line(failure)}", False
        status = response.status_code
        hint = ": binding needs the right to create pods/binding" if status == HTTPStatus.FORBIDDEN else ""
        return status_line(response) + hint, status != HTTPStatus.UNAUTHORIZED
    except KeyboardInterrupt:
        return "interrupted: the pod may or may not be bound", False
    return "", True
