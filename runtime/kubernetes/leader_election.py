"""Leader election with a Lease of coordination.k8s.io, compatible with client-go's.

Another holder counts as gone when its Lease did not change for the Lease's duration, measured by the local monotonic
clock. Clocks of other machines do not matter. Source: k8s.io/client-go/tools/leaderelection.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import requests

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender

_log = logging.getLogger(__name__)


class Lease:
    """Lease that this process may hold. Not thread-safe.

    Args:
        api: client of the API server.
        namespace: namespace of the Lease.
        name: name of the Lease.
        identity: name of the holder, unique per process.
        seconds: duration of the Lease after each renewal. Renew it three times within that duration.
        monotonic: monotonic clock in seconds.
    """

    def __init__(
        self,
        api: Sender,
        namespace: str,
        name: str,
        identity: str,
        seconds: float = 15.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._identity, self._seconds, self._monotonic = api, identity, seconds, monotonic
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path, self._metadata = f"{self._leases}/{name}", {"name": name, "namespace": namespace}
        self._seen: tuple[object, float] = (None, 0.0)  # version of another holder's Lease, and when it was first seen
        self._held_until = float("-inf")

    @property
    def is_held(self) -> bool:
        """Return whether this process holds the Lease: for two thirds of its duration after the last renewal.

        Other processes wait for the whole duration.
        """
        return self._monotonic() < self._held_until

    def renew(self) -> bool:
        """Acquire or renew the Lease; return whether this process holds it. A failed request counts as no renewal."""
        asked_at = self._monotonic()
        try:
            renewed = self._renewed()
        except REQUEST_FAILURES as error:
            _log.warning("the Lease cannot be renewed", extra={"lease": self._path, "error": str(error)})
            return self.is_held
        if renewed and not self.is_held:
            _log.info("acquired the Lease", extra={"lease": self._path, "identity": self._identity})
        self._held_until = asked_at + self._seconds * 2 / 3 if renewed else float("-inf")
        return renewed

    def release(self) -> None:
        """Release the Lease, so that another process can acquire it at once."""
        if not self.is_held:
            return
        self._held_until = float("-inf")
        try:
            lease = self._api.send("GET", self._path, self._deadline())
            if lease["spec"].get("holderIdentity") == self._identity:
                self._put(lease, {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})
        except REQUEST_FAILURES as error:
            _log.info("the Lease cannot be released; it will expire", extra={"error": str(error)})

    def _renewed(self) -> bool:
        """Acquire or renew the Lease; return False if another process holds it."""
        try:
            lease = self._api.send("GET", self._path, self._deadline())
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != requests.codes.not_found:
                raise
            return self._posted()
        # Another holder keeps the Lease until it expires; otherwise it is taken, or renewed if this process holds it.
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", self._identity} and not self._is_over(lease, spec):
            return False
        mine = holder == self._identity
        transitions = (spec.get("leaseTransitions") or 0) + (not mine)
        acquired = spec.get("acquireTime") if mine else _now()
        return self._put(lease, {**self._spec(), "acquireTime": acquired, "leaseTransitions": transitions})

    def _is_over(self, lease: dict[str, Any], spec: dict[str, Any]) -> bool:
        """Return whether another holder's Lease has not changed for its duration."""
        version, now = lease["metadata"].get("resourceVersion"), self._monotonic()
        if self._seen[0] != version:
            self._seen = version, now
        return now - self._seen[1] >= (spec.get("leaseDurationSeconds") or self._seconds)

    def _posted(self) -> bool:
        spec = {**self._spec(), "acquireTime": _now(), "leaseTransitions": 0}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._metadata, "spec": spec}
        return self._won("POST", self._leases, body)

    def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> bool:
        return self._won("PUT", self._path, {**lease, "spec": spec})  # with the version read before: only one PUT wins

    def _won(self, method: str, path: str, body: dict[str, Any]) -> bool:
        """Send a change of the Lease; return False if another process changed it first."""
        try:
            self._api.send(method, path, self._deadline(), body)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == requests.codes.conflict:
                return False
            raise
        return True

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "renewTime": _now(),
        }

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds / 3)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
