"""Authorization of requests for decisions: a caller may read about the pods that it may get from the API server.

The caller sends its Kubernetes token. A TokenReview returns the user, a SubjectAccessReview the user's rights, as in
kube-rbac-proxy. The extender itself needs no right to read pods for this.
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
_CACHE_SECONDS = 10.0
_MAX_CACHED = 1000
_TOKEN_REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  a path
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_log = logging.getLogger(__name__)


class ReadVerdict(Enum):
    """Result of an authorization, with its explanation."""

    ALLOWED = "may get pods of the namespace"
    UNKNOWN = "send a Kubernetes token: Authorization: Bearer ..., as made by kubectl create token"
    FORBIDDEN = "may not get pods of the namespace"
    UNDECIDED = (
        "the API server did not review the token: may the extender create tokenreviews and subjectaccessreviews?"
    )


class PodReadAuthorizer(Protocol):
    """Authorizer of HTTP requests for recorded decisions about pods."""

    def judge(self, authorization: str, namespace: str) -> ReadVerdict:
        """Authorize a caller to read about a namespace's pods.

        Args:
            authorization: Authorization header of the caller.
            namespace: namespace of the pods; "" for all namespaces.
        """
        ...


class AllowAll:
    """Authorizer that allows every caller of the extender to read all decisions."""

    def judge(self, _authorization: str, _namespace: str) -> ReadVerdict:
        """Allow the request."""
        return ReadVerdict.ALLOWED


class AccessReviewAuthorizer:
    """Authorizer that asks the API server to review the caller's token, and caches verdicts for ten seconds.

    Thread-safe.

    Args:
        api: Kubernetes API, with the extender's credentials.
        monotonic: monotonic clock.
    """

    def __init__(self, api: Sender, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._cache: dict[tuple[bytes, str], tuple[float, ReadVerdict]] = {}

    def judge(self, authorization: str, namespace: str) -> ReadVerdict:
        """Authorize a caller, identified by its Authorization header, to read about a namespace's pods."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ReadVerdict.UNKNOWN
        key = hashlib.sha256(token.encode("utf-8", "replace")).digest(), namespace
        cached = self._cache.get(key)
        if cached is not None and self._monotonic() < cached[0]:
            return cached[1]
        try:
            verdict = self._review(token.strip(), namespace)
        except REQUEST_FAILURES as error:
            _log.warning("the token of a request for decisions could not be reviewed", extra={"error": str(error)})
            return ReadVerdict.UNDECIDED
        if len(self._cache) >= _MAX_CACHED:
            self._cache = {}
        self._cache[key] = self._monotonic() + _CACHE_SECONDS, verdict
        return verdict

    def _review(self, token: str, namespace: str) -> ReadVerdict:
        deadline = Deadline.after(_SECONDS)
        review: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        status = self._api.send("POST", _TOKEN_REVIEW, deadline, {**review, "spec": {"token": token}}).get("status")
        if not status or not status.get("authenticated"):
            return ReadVerdict.UNKNOWN
        user = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = self._api.send("POST", _ACCESS_REVIEW, deadline, review)
        return ReadVerdict.ALLOWED if (answer.get("status") or {}).get("allowed") else ReadVerdict.FORBIDDEN
