"""Authorization of requests for decisions: a caller may read about the pods that it may get from the API server.

The caller sends its Kubernetes token. A TokenReview returns the user, a SubjectAccessReview the user's rights, as in
kube-rbac-proxy. The extender itself needs no right to read pods for this.

Every new token costs a request to the API server, even a made-up one. So the number of reviews at a time and per second
is limited. A caller above the limits waits for a moment, and is then asked to retry.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender

_SECONDS = 5.0
_CACHE_SECONDS = 10.0
_MAX_REVIEWS = 3  # at a time, fewer than the threads that answer such requests
_REVIEWS_PER_SECOND = 10.0
_MAX_BURST = 20.0
_WAIT_SECONDS = 1.0  # for a review
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
    BUSY = "too many tokens are being reviewed; retry in a few seconds"


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

    Thread-safe. A call takes at most a second more than a review.

    Args:
        api: Kubernetes API, with the extender's credentials.
        monotonic: monotonic clock.
    """

    def __init__(self, api: Sender, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._cache: dict[tuple[bytes, str], tuple[float, ReadVerdict]] = {}  # oldest first; bounded by the reviews
        self._reviews = threading.BoundedSemaphore(_MAX_REVIEWS)
        self._lock = threading.Lock()  # guards the cache and the token bucket
        self._tokens, self._refilled_at = _MAX_BURST, monotonic()

    def judge(self, authorization: str, namespace: str) -> ReadVerdict:
        """Authorize a caller, identified by its Authorization header, to read about a namespace's pods."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ReadVerdict.UNKNOWN
        key = hashlib.sha256(token.encode("utf-8", "replace")).digest(), namespace
        if cached := self._cached(key):
            return cached
        if not self._reviews.acquire(timeout=_WAIT_SECONDS):
            return ReadVerdict.BUSY
        try:
            cached = self._cached(key)  # by another request meanwhile
            if cached or not self._take_token():
                return cached or ReadVerdict.BUSY
            verdict = self._review(token.strip(), namespace)
        except REQUEST_FAILURES as error:
            _log.warning("the token of a request for decisions could not be reviewed", extra={"error": str(error)})
            verdict = ReadVerdict.UNDECIDED
        finally:
            self._reviews.release()
        self._cache_verdict(key, verdict)
        return verdict

    def _cached(self, key: tuple[bytes, str]) -> ReadVerdict | None:
        with self._lock:
            ends_at, verdict = self._cache.get(key, (0.0, None))
            return verdict if self._monotonic() < ends_at else None

    def _cache_verdict(self, key: tuple[bytes, str], verdict: ReadVerdict) -> None:
        """Cache a verdict for ten seconds, an undecided one for a second; drop those that have expired."""
        now = self._monotonic()
        seconds = _WAIT_SECONDS if verdict is ReadVerdict.UNDECIDED else _CACHE_SECONDS
        with self._lock:
            self._cache = {old: cached for old, cached in self._cache.items() if now < cached[0]}
            self._cache[key] = now + seconds, verdict

    def _take_token(self) -> bool:
        """Take a token from the token bucket of reviews; return False if it is empty."""
        with self._lock:
            now = self._monotonic()
            self._tokens = min(_MAX_BURST, self._tokens + (now - self._refilled_at) * _REVIEWS_PER_SECOND)
            self._refilled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

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
