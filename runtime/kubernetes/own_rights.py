"""Check of this process's own rights by SelfSubjectAccessReviews, which every account of a cluster may create."""

from collections.abc import Iterable
from typing import NamedTuple

from runtime.http.gather import Deadline
from runtime.kubernetes.api import Sender
from runtime.kubernetes.object_requests import review
from runtime.kubernetes.paths import CORE
from runtime.kubernetes.rbac import needed_rule


class Right(NamedTuple):
    """Right to objects of the core group.

    Attributes:
        verb: verb of the requests, such as ``get``.
        resource: plural name, such as ``pods``.
        subresource: such as ``eviction``; empty: the object itself.
        namespace: namespace of the objects; empty: all namespaces.
    """

    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self._path()}{f' in the namespace {self.namespace}' if self.namespace else ''}"

    def needed_rule(self) -> str:
        """Return the remedy if this right is missing: the rule that grants it."""
        place = f"namespaces/{self.namespace}/" if self.namespace else ""
        return needed_rule(f"{CORE}/{place}{self._path()}", self.verb)

    def _path(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def missing_rights(api: Sender, rights: Iterable[Right], deadline: Deadline) -> list[Right]:
    """Return the rights that this account lacks.

    Raises:
        Exception: one of ``REQUEST_FAILURES``: the API server did not review.
    """
    return [right for right in rights if not _is_granted(api, right, deadline)]


def _is_granted(api: Sender, right: Right, deadline: Deadline) -> bool:
    spec = {"resourceAttributes": right._asdict()}
    return bool(review(api, "SelfSubjectAccessReview", spec, deadline).get("allowed"))
