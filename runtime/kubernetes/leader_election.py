"""Leader election with a Lease of coordination.k8s.io, compatible with client-go's.

Another holder counts as gone when its Lease did not change for the Lease's duration, measured by a local clock. Clocks
of other machines do not matter. Source: k8s.io/client-go/tools/leaderelection.
"""

import logging
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import requests

from runtime.http.failures import Failure, describe
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.paths import list_path, object_path
from runtime.outage_log import OutageLog

_log = logging.getLogger(__name__)

#: Time after which another replica takes over a Lease that is not renewed, seconds: kube-scheduler's own default.
LEASE_SECONDS: Final = 15.0


def uptime() -> float:
    """Return the seconds of a clock that never jumps, and on Linux also runs while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """Period in which a process holds a Lease without interruption.

    Attributes:
        number: number of the period, counted by this process.
        ends: end of the period on each clock; a renewal moves the end.
    """

    number: int
    ends: tuple[float, ...]


class Lease:
    """Lease that this process may hold. One thread renews and releases it; any thread may read whether it is held.

    Args:
        api: client of the API server.
        namespace: namespace of the Lease.
        name: name of the Lease.
        identity: name of the holder, unique per process.
        seconds: duration of the Lease after each renewal. Renew it three times within that duration.
        clocks: clocks in seconds; the Lease has expired once it has expired by any clock. The first clock never jumps.
            The second clock also counts the time for which a hypervisor paused the machine.
        setting: name of the setting with the namespace, for messages.

    Attributes:
        holder: identity of the process that held the Lease at the last request; empty if no process did.
    """

    def __init__(
        self,
        api: Sender,
        namespace: str,
        name: str,
        identity: str,
        seconds: float = LEASE_SECONDS,
        clocks: tuple[Callable[[], float], ...] = (uptime, time.time),
        setting: str = "lease_namespace",
    ) -> None:
        self._api, self._identity, self._seconds, self._clocks = api, identity, seconds, clocks
        self._leases, self._path = list_path("Lease", namespace), object_path("Lease", name, namespace)
        self._metadata = {"name": name, "namespace": namespace}
        self._namespace, self._setting = namespace, setting
        self._failure = ""
        self._outage = OutageLog(_log, "the Lease cannot be renewed", "the Lease can be requested again")
        self._seen: tuple[object, float] = (None, 0.0)  # version of another holder's Lease, and when it was first seen
        self._term: LeaseTerm | None = None
        self._terms = 0
        self.holder = ""

    @property
    def term(self) -> int | None:
        """Number of the current term, None while this process does not hold the Lease.

        A term ends two thirds of the Lease's duration after the last renewal; other processes wait for the whole
        duration. A later term has another number, even if the process was suspended while the Lease expired.
        """
        term = self._term
        return term.number if term is not None and all(map(operator.lt, self._now(), term.ends)) else None

    @property
    def is_taken_over(self) -> bool:
        """Return whether the last holder let the Lease expire, rather than releasing it."""
        return self.holder not in {"", self._identity}

    @property
    def is_held(self) -> bool:
        """Return whether this process holds the Lease."""
        return self.term is not None

    @property
    def problem(self) -> str:
        """Reason why the last request for the Lease failed, with its remedy; empty if this process holds the Lease."""
        return "" if self.is_held else self._failure

    def renew(self) -> bool:
        """Acquire or renew the Lease; return whether this process holds it, also after a failed request."""
        try:
            return self.acquire()
        except REQUEST_FAILURES:
            return self.is_held

    def acquire(self) -> bool:
        """Acquire or renew the Lease; return whether this process holds it. Failures are logged.

        Raises:
            requests.RequestException, OSError, InvalidApiServerConfig, UnusableToken: see ``REQUEST_FAILURES``.
        """
        asked_at = self._now()
        try:
            is_renewed = self._renewed()
        except REQUEST_FAILURES as error:
            self._record(describe(error))
            raise
        self._failure = ""
        self._outage.worked()
        if not is_renewed:
            self._term = None
            return False
        if not self.is_held:
            _log.info("acquired the Lease", extra={"lease": self._path, "identity": self._identity})
            self._terms += 1
        self._term = LeaseTerm(self._terms, tuple(at + self._seconds * 2 / 3 for at in asked_at))
        return self.is_held

    def release(self) -> None:
        """Release the Lease, so that another process can acquire it at once."""
        if not self.is_held:
            return
        self._term = None
        try:
            lease, spec = self._checked(object_requests.read(self._api, self._path, self._deadline()))
            if spec.get("holderIdentity") == self._identity:
                self._put(lease, {**spec, "holderIdentity": "", "leaseDurationSeconds": 1})
        except REQUEST_FAILURES as error:
            _log.info("the Lease cannot be released; it will expire", extra={"error": describe(error).reason})

    def _record(self, failure: Failure) -> None:
        """Record why a request failed; log it once per outage, because a missing namespace or right may persist."""
        remedies = {
            requests.codes.not_found: f"create the namespace {self._namespace}",
            requests.codes.forbidden: f"grant the right to get, create and update leases in {self._namespace}",
        }
        reason = failure.reason
        if failure.status in remedies:
            reason += f"; {remedies[failure.status]}, or set {self._setting}"
        self._failure = f"the Lease {self._metadata['name']} cannot be acquired: {reason}"
        self._outage.failed(reason, lease=self._path)

    def _renewed(self) -> bool:
        """Acquire or renew the Lease; return False if another process holds it."""
        try:
            lease, spec = self._checked(object_requests.read(self._api, self._path, self._deadline()))
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != requests.codes.not_found:
                raise
            return self._posted()
        # Another holder keeps the Lease until it expires; otherwise it is taken, or renewed if this process holds it.
        holder = self.holder = spec.get("holderIdentity") or ""
        if holder not in {"", self._identity} and not self._is_over(lease, spec):
            return False
        mine = holder == self._identity
        transitions = _count(spec.get("leaseTransitions")) + (not mine)
        acquired = spec.get("acquireTime") if mine else _timestamp()
        return self._put(lease, {**self._spec(), "acquireTime": acquired, "leaseTransitions": transitions})

    def _is_over(self, lease: dict[str, Any], spec: dict[str, Any]) -> bool:
        """Return whether another holder's Lease has not changed for its duration."""
        version, now = lease["metadata"]["resourceVersion"], self._clocks[0]()
        if self._seen[0] != version:
            self._seen = version, now
        return now - self._seen[1] >= (_count(spec.get("leaseDurationSeconds")) or self._seconds)

    def _posted(self) -> bool:
        spec = {**self._spec(), "acquireTime": _timestamp(), "leaseTransitions": 0}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._metadata, "spec": spec}
        return self._won(object_requests.create, self._leases, body)

    def _put(self, lease: dict[str, Any], spec: dict[str, Any]) -> bool:
        # The body has the resource version that was read, so that only one of two concurrent writes succeeds.
        return self._won(object_requests.replace, self._path, {**lease, "spec": spec})

    def _won(self, write: Callable[..., Any], path: str, body: dict[str, Any]) -> bool:
        """Send a change of the Lease; return False if another process changed it first."""
        try:
            _, spec = self._checked(write(self._api, path, body, self._deadline()))
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == requests.codes.conflict:
                return False
            raise
        return bool(spec.get("holderIdentity") == body["spec"]["holderIdentity"])

    @staticmethod
    def _checked(response: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the Lease of a response, and its spec.

        Raises:
            UnexpectedResponse: the response is not a Lease, for example that of a proxy.
        """
        match response:
            case {"kind": "Lease", "metadata": {"resourceVersion": str()}} as lease:  # a PUT needs the version
                spec = lease.get("spec") or {}
                if isinstance(spec, dict) and isinstance(spec.get("holderIdentity"), str | None):
                    return lease, spec
        raise UnexpectedResponse("the API server's response is not a Lease")

    def _now(self) -> tuple[float, ...]:
        return tuple(clock() for clock in self._clocks)

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "renewTime": _timestamp(),
        }

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds / 3)


def _count(value: object) -> int:
    """Return a positive integer of a Lease; 0 for anything else."""
    return value if type(value) is int and value > 0 else 0


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
