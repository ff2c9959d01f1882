"""Who may know of a pod: whoever may get pods of its namespace, as the API server itself says.

The caller sends its Kubernetes token, as to the API server. A TokenReview tells whose it is, a SubjectAccessReview what
that user may do: what kube-rbac-proxy asks, and no right of its own to read anything.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender

_SECONDS = 5.0
_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000
_TOKEN_REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  a path
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_log = logging.getLogger(__name__)


class Reading(Enum):
    """What becomes of a reader."""

    ALLOWED = "may get pods of the namespace"
    UNKNOWN = "send a Kubernetes token: Authorization: Bearer ..., as made by kubectl create token"
    FORBIDDEN = "may not get pods of the namespace"
    UNDECIDED = "the API server did not say who asks: may this service create tokenreviews and subjectaccessreviews?"


class Readers(Protocol):
    """Says who may know of pods."""

    def judge(self, authorization: str, namespace: str) -> Reading:
        """Return whether whoever sends this header may know of a namespace's pods; "" is all namespaces."""
        ...


class Everybody:
    """Whoever is admitted to the service at all may read everything."""

    def judge(self, _authorization: str, _namespace: str) -> Reading:
        """Return that they may."""
        return Reading.ALLOWED


class Reviewed:
    """Asks the API server, and believes it for ten seconds. Safe from any thread.

    Args:
        api: asked with our own credentials.
        monotonic: a clock that is never set.
    """

    def __init__(self, api: Sender, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._known: dict[tuple[bytes, str], tuple[float, Reading]] = {}

    def judge(self, authorization: str, namespace: str) -> Reading:
        """Return whether whoever sends this header may know of a namespace's pods."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Reading.UNKNOWN
        key = hashlib.sha256(token.encode("utf-8", "replace")).digest(), namespace
        known = self._known.get(key)
        if known is not None and self._monotonic() < known[0]:
            return known[1]
        try:
            found = self._review(token.strip(), namespace)
        except REQUEST_FAILURES as error:
            _log.warning("who asks for an explanation cannot be reviewed", extra={"error": str(error)})
            return Reading.UNDECIDED
        if len(self._known) >= _MOST_KEPT:
            self._known = {}
        self._known[key] = self._monotonic() + _KEPT_SECONDS, found
        return found

    def _review(self, token: str, namespace: str) -> Reading:
        deadline = Deadline.after(_SECONDS)
        asked: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        status = self._api.send("POST", _TOKEN_REVIEW, deadline, {**asked, "spec": {"token": token}}).get("status")
        if not status or not status.get("authenticated"):
            return Reading.UNKNOWN
        user = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"},
        }
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = self._api.send("POST", _ACCESS_REVIEW, deadline, asked)
        return Reading.ALLOWED if (answer.get("status") or {}).get("allowed") else Reading.FORBIDDEN
