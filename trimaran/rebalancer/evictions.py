"""Evictions by the Eviction API, which respects disruption budgets, and the kinds of its refusals.

429 with the cause DisruptionBudget    the budget is used up: wait, this pod only
429 otherwise                          the API server is overloaded: wait with all evictions
500 of two budgets                     permanent: the API server refuses every eviction of this pod
any status by an admission webhook     refused for this pod, even if the webhook itself moves the pod
404, 409                               the pod is gone, or another one has its name
anything else                          unknown: the eviction may have happened
"""

import contextlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.own_rights import Right
from runtime.kubernetes.paths import object_path
from runtime.kubernetes.reflector import version_number
from trimaran.cluster.target_note import REMOVED, TargetNote

_MIN_WAIT = 10.0
_DAY = 86400.0
_NOTE, _EVICT, _READ = Right("patch", "pods"), Right("create", "pods", "eviction"), Right("get", "pods")
#: Rights to pods that moves need; without the right to get pods, a late watch may end moves too early.
MOVE_RIGHTS = (_NOTE, _EVICT, _READ)


class EvictionAnswer(StrEnum):
    """Answer of the API server to a request for an eviction."""

    EVICTED = "evicted"
    BUDGET = "budget"
    OVERLOAD = "overload"
    TWO_BUDGETS = "two_budgets"
    DENIED = "denied"
    FORBIDDEN = "forbidden"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EvictionOutcome:
    """Outcome of a request for an eviction.

    Attributes:
        answer: kind of the answer.
        text: the answer as a line of text.
        wait: least time until the next request for this pod, or with ``OVERLOAD`` for any pod, seconds.
    """

    answer: EvictionAnswer
    text: str = ""
    wait: float = 0.0


class Evictor:
    """Client of the Eviction API.

    Args:
        api: Kubernetes API.
        seconds: time limit of a request.
    """

    def __init__(self, api: Sender, seconds: float) -> None:
        self._api, self._seconds = api, seconds

    def note(self, namespace: str, name: str, uid: str, note: TargetNote | None) -> str:
        """Annotate a pod with its target, or remove the annotation if ``note`` is None; return the error, or ""."""
        annotations = dict(REMOVED) if note is None else note.annotations()
        body = {"metadata": {"uid": uid, "annotations": annotations}}  # the UID guards against another pod
        try:
            object_requests.patch(self._api, object_path("Pod", name, namespace), body, Deadline.after(self._seconds))
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if note is None and failure.status in {requests.codes.not_found, requests.codes.conflict}:
                return ""  # the annotation is gone with the pod
            rule = f"; {_NOTE.needed_rule()}" if failure.status == requests.codes.forbidden else ""
            return failure.reason + rule
        return ""

    def evict(self, namespace: str, name: str, uid: str) -> EvictionOutcome:
        """Request the eviction of a pod, identified by its UID."""
        try:
            object_requests.evict(self._api, namespace, name, uid, Deadline.after(self._seconds))
        except requests.JSONDecodeError:
            pass  # the status is a success, and the body has nothing about the pod
        except REQUEST_FAILURES as error:
            return _outcome(error)
        return EvictionOutcome(EvictionAnswer.EVICTED)

    def version(self, namespace: str, name: str, uid: str) -> int:
        """Return the resource version of a pod whose eviction was requested; 0 if the pod is gone or cannot be read.

        A watch that has not reached this version may still show the pod before its eviction.
        """
        try:
            pod = object_requests.read(self._api, object_path("Pod", name, namespace), Deadline.after(self._seconds))
        except REQUEST_FAILURES:
            return 0  # without the right to get pods, the watch shows the outcome
        match pod:
            case {"metadata": {"uid": found, "resourceVersion": version}} if found == uid:
                return version_number(version)
        return 0


def _outcome(error: BaseException) -> EvictionOutcome:
    """Classify a failed request for an eviction."""
    failure, response = describe(error), getattr(error, "response", None)
    status, text = failure.status, failure.reason
    wait = max(_MIN_WAIT, _retry_after(response))
    if status and "admission webhook" in text:
        return EvictionOutcome(EvictionAnswer.DENIED, text, wait)
    if status == requests.codes.too_many_requests:
        kind = EvictionAnswer.BUDGET if "DisruptionBudget" in _causes(response) else EvictionAnswer.OVERLOAD
        return EvictionOutcome(kind, text, wait)
    if status == requests.codes.internal_server_error and "more than one PodDisruptionBudget" in text:
        return EvictionOutcome(EvictionAnswer.TWO_BUDGETS, text, _DAY)
    if status in {requests.codes.not_found, requests.codes.conflict}:
        return EvictionOutcome(EvictionAnswer.GONE, text)
    if status == requests.codes.forbidden:
        return EvictionOutcome(EvictionAnswer.FORBIDDEN, f"{text}; {_EVICT.needed_rule()}", wait)
    if status and status < 500:
        return EvictionOutcome(EvictionAnswer.DENIED, text, wait)
    return EvictionOutcome(EvictionAnswer.UNKNOWN, text, wait)


def _causes(response: Any) -> set[str]:
    """Return the reasons of the causes in the Status of a response."""
    with contextlib.suppress(KeyError, ValueError, AttributeError, TypeError):
        return {str(each.get("reason")) for each in response.json()["details"]["causes"]}
    return set()


def _retry_after(response: Any) -> float:
    """Return the seconds of a Retry-After header, at most a day; 0 without a number."""
    try:
        seconds = float(response.headers["Retry-After"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0.0
    return min(seconds, _DAY) if seconds > 0 else 0.0  # NaN is not above 0
