"""Authorization of HTTP callers by the API server: a caller may read about the pods that it may get from there.

The caller sends its Kubernetes token. A TokenReview returns the user, and a SubjectAccessReview whether the user has a
right in a namespace, as in kube-rbac-proxy. The service itself needs no right to read pods for this.

Every new token costs a request to the API server, even if the token is invalid. So the number of reviews at a time and
per second is limited. A call above the limits fails at once, with the advice to retry: if it waited, it would hold one
of few threads, and callers with cached verdicts would wait as well. Verdicts are cached for 10 seconds.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import review
from runtime.kubernetes.paths import list_path
from runtime.kubernetes.rbac import needed_rule

ALL_NAMESPACES = ""
CACHE_SECONDS = 10.0
_REVIEW_SECONDS = 5.0
_RETRY_SECONDS = 1.0  # until the next try of a review that failed
_MAX_REVIEWS = 3  # at a time; must be fewer than the threads that answer these requests
_TOKENS_PER_SECOND, _MAX_TOKENS = 10.0, 20.0  # TokenReviews: anybody can cause them
_RIGHTS_PER_SECOND, _MAX_RIGHTS = 100.0, 1000.0  # SubjectAccessReviews: by known users only, one per namespace
_MAX_CACHED = 20_000
_log = logging.getLogger(__name__)
_Cached = TypeVar("_Cached")

TOKEN_NEEDED = "send a Kubernetes token: Authorization: Bearer ..., as made by kubectl create token"  # noqa: S105  a message


class AccessVerdict(Enum):
    """Result of an authorization. UNKNOWN: invalid token; UNDECIDED: the review failed; BUSY: too many reviews."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    UNDECIDED = "undecided"
    BUSY = "busy"


class AccessRefusal(NamedTuple):
    """HTTP error for a caller that is not admitted.

    Attributes:
        status: HTTP status.
        code: code of the error body.
        message: reason and remedy.
        headers: header fields of the response.
    """

    status: int
    code: str
    message: str
    headers: Mapping[str, str]


class AccessReviews:
    """Authorizer that asks the API server to review callers' tokens and rights to pods. Thread-safe.

    A call waits for its own reviews only, never for those of other calls.

    Args:
        api: Kubernetes API, with the service's own credentials.
        verb: verb on pods that a caller needs, such as ``get``.
        service: name of the service in messages, such as ``the extender``.
        monotonic: monotonic clock.
    """

    def __init__(self, api: Sender, verb: str, service: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api, self._verb, self._service = api, verb, service
        self._users: _ShortCache[Mapping[str, Any] | None] = _ShortCache(monotonic)  # by token; None: not valid
        self._verdicts: _ShortCache[AccessVerdict] = _ShortCache(monotonic)  # by token and namespace
        self._slots = threading.BoundedSemaphore(_MAX_REVIEWS)
        self._token_bucket = _TokenBucket(_TOKENS_PER_SECOND, _MAX_TOKENS, monotonic)
        self._right_bucket = _TokenBucket(_RIGHTS_PER_SECOND, _MAX_RIGHTS, monotonic)

    def judge(self, authorization: str, namespace: str) -> AccessVerdict:
        """Return the verdict on a caller that wants to read about a namespace's pods.

        Args:
            authorization: Authorization header of the caller.
            namespace: namespace of the pods; ``ALL_NAMESPACES`` for all.
        """
        token = bearer_token(authorization)
        if not token:
            return AccessVerdict.UNKNOWN
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        if cached := self._cached(digest, namespace):
            return cached
        if not self._slots.acquire(blocking=False):
            return AccessVerdict.BUSY
        try:
            # Another request may have cached the same verdict meanwhile.
            return self._cached(digest, namespace) or self._review(token, digest, namespace)
        except REQUEST_FAILURES as error:
            _log.warning("the access of a caller could not be reviewed", extra={"error": describe(error).reason})
            self._verdicts.put((digest, namespace), AccessVerdict.UNDECIDED, _RETRY_SECONDS)
            return AccessVerdict.UNDECIDED
        finally:
            self._slots.release()

    def refusal(self, verdict: AccessVerdict, namespace: str) -> AccessRefusal | None:
        """Return the HTTP error for a verdict on a namespace, with the remedy; None if the caller is allowed."""
        match verdict:
            case AccessVerdict.ALLOWED:
                return None
            case AccessVerdict.UNKNOWN:
                challenge = {"WWW-Authenticate": 'Bearer realm="kubernetes"'}
                return AccessRefusal(401, "unauthorized", TOKEN_NEEDED, challenge)
            case AccessVerdict.FORBIDDEN:
                where = f"in the namespace {namespace}" if namespace else "in all namespaces"
                remedy = needed_rule(list_path("Pod", namespace), self._verb)
                return AccessRefusal(403, "forbidden", f"you may not {self._verb} pods {where}: {remedy}", {})
            case AccessVerdict.UNDECIDED:
                rights = f"may {self._service} create tokenreviews and subjectaccessreviews?"
                return AccessRefusal(503, "no_review", f"the API server did not review the token: {rights}", {})
            case AccessVerdict.BUSY:
                reason = "too many tokens are being reviewed; retry in a few seconds"
                return AccessRefusal(503, "too_many_reviews", reason, {"Retry-After": "1"})

    def _cached(self, digest: bytes, namespace: str) -> AccessVerdict | None:
        is_cached, user = self._users.get(digest)
        if is_cached and user is None:
            return AccessVerdict.UNKNOWN
        return self._verdicts.get((digest, namespace))[1]

    def _review(self, token: str, digest: bytes, namespace: str) -> AccessVerdict:
        """Return the verdict after at most two requests: a review of the token, and one of the user's right.

        Raises:
            Exception: one of ``REQUEST_FAILURES``: the API server did not review.
        """
        deadline = Deadline.after(_REVIEW_SECONDS)
        is_cached, user = self._users.get(digest)
        if not is_cached:
            if not self._token_bucket.take():
                return AccessVerdict.BUSY
            user = self._review_token(token, deadline)
            self._users.put(digest, user)
        if user is None:
            return AccessVerdict.UNKNOWN
        if not self._right_bucket.take():
            return AccessVerdict.BUSY
        verdict = AccessVerdict.ALLOWED if self._has_right(user, namespace, deadline) else AccessVerdict.FORBIDDEN
        self._verdicts.put((digest, namespace), verdict)
        return verdict

    def _review_token(self, token: str, deadline: Deadline) -> Mapping[str, Any] | None:
        """Return the user of a token as a SubjectAccessReview names it; None for an unknown token."""
        status = review(self._api, "TokenReview", {"token": token}, deadline)
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }

    def _has_right(self, user: Mapping[str, Any], namespace: str, deadline: Deadline) -> bool:
        right = {"namespace": namespace, "verb": self._verb, "resource": "pods"}
        spec = {**user, "resourceAttributes": right}
        return bool(review(self._api, "SubjectAccessReview", spec, deadline).get("allowed"))


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header; "" without one."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class _ShortCache(Generic[_Cached]):
    """Bounded cache whose entries expire after a few seconds. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._entries: dict[Hashable, tuple[float, _Cached]] = {}  # oldest first

    def get(self, key: Hashable) -> tuple[bool, _Cached | None]:
        """Return whether there is an entry that has not expired, and its value."""
        with self._lock:
            ends_at, value = self._entries.get(key, (float("-inf"), None))
            return (True, value) if self._monotonic() < ends_at else (False, None)

    def put(self, key: Hashable, value: _Cached, seconds: float = CACHE_SECONDS) -> None:
        """Add an entry; drop the oldest entries if they have expired or there are too many."""
        with self._lock:
            now = self._monotonic()
            self._entries.pop(key, None)
            while self._entries:
                oldest = next(iter(self._entries))
                if len(self._entries) < _MAX_CACHED and now < self._entries[oldest][0]:
                    break
                del self._entries[oldest]
            self._entries[key] = now + seconds, value

    def __len__(self) -> int:
        return len(self._entries)


class _TokenBucket:
    """Token bucket that limits reviews. Thread-safe."""

    def __init__(self, per_second: float, most: float, monotonic: Callable[[], float]) -> None:
        self._per_second, self._most, self._monotonic = per_second, most, monotonic
        self._left, self._refilled_at = most, monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token; return False if the bucket is empty."""
        with self._lock:
            now = self._monotonic()
            self._left = min(self._most, self._left + (now - self._refilled_at) * self._per_second)
            self._refilled_at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True
