"""Access to information about pods, by namespace: a caller sees the workloads whose pods the caller may list.

With ``workloads.access = "review"`` the API server reviews the caller's Kubernetes token. Callers with a token of the
watcher's own (``server.tokens_file``) see everything. With ``closed`` nobody sees a workload; ``auto`` means ``closed``
on a port that everyone can reach. The cluster's totals contain no names, so callers need no permission to see them.
"""

from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from runtime.kubernetes.access_reviews import ALL_NAMESPACES, AccessRefusal, AccessReviews, AccessVerdict
from runtime.server.access import AccessCheck
from watcher.usage.sources.sources import open_cluster_api

if TYPE_CHECKING:
    from watcher.settings import Settings

TOTALS = "/workloads/totals"
POD_ROUTES = ("/workloads", TOTALS, "/workloads/<namespace>/<kind>/<name>", "/pods/history")
"""Routes with information about pods, which accept Kubernetes tokens instead of the watcher's own."""
_VERB = "list"
CLOSED = AccessRefusal(
    403,
    "forbidden",
    "workloads are not served, as everyone who can reach this port could read them; set workloads.access to review, or "
    "server.tokens_file, and send a token; workloads.access = open serves them to everyone",
    {},
)
"""Refusal of every request about workloads where ``workloads.access`` is ``closed``."""


class AccessRefused(Exception):
    """The caller may not read about the pods of a namespace.

    Attributes:
        refusal: HTTP error, with the remedy.
    """

    def __init__(self, refusal: AccessRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class PodCaller:
    """Caller of a route about pods.

    Args:
        reviews: reviews that decide; None for a caller that sees everything.
        authorization: Authorization header of the caller.
    """

    def __init__(self, reviews: AccessReviews | None, authorization: str) -> None:
        self._reviews, self._authorization = reviews, authorization

    def may_see(self, namespace: str) -> bool:
        """Return whether the caller may list the pods of a namespace, or of ``ALL_NAMESPACES``.

        Raises:
            AccessRefused: the caller has no valid token, or the API server did not decide.
        """
        if self._reviews is None:
            return True
        verdict = self._reviews.judge(self._authorization, namespace)
        if verdict not in {AccessVerdict.ALLOWED, AccessVerdict.FORBIDDEN}:
            raise AccessRefused(self._refusal(verdict, namespace))
        return verdict is AccessVerdict.ALLOWED

    def require(self, namespace: str) -> None:
        """Check that the caller may list the pods of a namespace, or of ``ALL_NAMESPACES``.

        Raises:
            AccessRefused: the caller may not, or the API server did not decide.
        """
        if not self.may_see(namespace):
            raise AccessRefused(self._refusal(AccessVerdict.FORBIDDEN, namespace))

    def _refusal(self, verdict: AccessVerdict, namespace: str) -> AccessRefusal:
        assert self._reviews is not None  # noqa: S101  checked by the callers
        refusal = self._reviews.refusal(verdict, namespace)
        assert refusal is not None  # noqa: S101  the caller is not allowed
        return refusal


class PodAccess:
    """Access check of the routes about pods, in addition to the access check of all routes.

    Args:
        access: access check of all routes.
        reviews: reviews of Kubernetes tokens; None to show everything to each caller that the watcher admits.
        is_closed: whether nobody sees a workload.

    Attributes:
        is_reviewed: whether reviews decide what callers see.
    """

    def __init__(self, access: AccessCheck, reviews: AccessReviews | None = None, *, is_closed: bool = False) -> None:
        self._requires_token, self._reviews, self._is_closed = access.requires_token, reviews, is_closed
        self.is_reviewed = reviews is not None

    def caller(self, authorization: str, *, is_admitted: bool) -> PodCaller:
        """Return the caller of a request.

        Args:
            authorization: Authorization header of the request.
            is_admitted: whether the watcher's own access check admits the caller, without an exception for this route.

        Raises:
            AccessRefused: nobody sees a workload.
        """
        if self._is_closed:
            raise AccessRefused(CLOSED)
        has_own_token = self._requires_token and is_admitted
        return PodCaller(None if has_own_token else self._reviews, authorization)

    def check_totals(self, authorization: str, *, is_admitted: bool) -> None:
        """Check that a caller may see totals: an admitted caller, or one with a valid Kubernetes token.

        Raises:
            AccessRefused: the caller may not see the totals.
        """
        if not is_admitted:
            self.caller(authorization, is_admitted=False).may_see(ALL_NAMESPACES)


def open_reviews(settings: "Settings") -> AccessReviews:
    """Return the client with which the API server reviews callers' tokens.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
    """
    try:
        api = open_cluster_api(settings)
    except SettingsError as error:
        raise SettingsError([f"workloads.access = 'review': {problem}" for problem in error.problems]) from error
    return AccessReviews(api, _VERB, "the watcher")
