"""Authorizers of requests for decisions about pods: reviews by the API server, or everybody."""

from typing import Protocol

from runtime.kubernetes.access_reviews import AccessRefusal, AccessVerdict


class PodReadAuthorizer(Protocol):
    """Authorizer of HTTP requests for recorded decisions about pods."""

    def judge(self, authorization: str, namespace: str) -> AccessVerdict:
        """Authorize a caller to read about a namespace's pods.

        Args:
            authorization: Authorization header of the caller.
            namespace: namespace of the pods; "" for all namespaces.
        """
        ...

    def refusal(self, verdict: AccessVerdict, namespace: str) -> AccessRefusal | None:
        """Return the HTTP error for a verdict; None if the caller is allowed."""
        ...


class AllowAll:
    """Authorizer that allows every caller of the extender to read all decisions."""

    def judge(self, _authorization: str, _namespace: str) -> AccessVerdict:
        """Allow the request."""
        return AccessVerdict.ALLOWED

    def refusal(self, _verdict: AccessVerdict, _namespace: str) -> None:
        """Return None: everybody is allowed."""
