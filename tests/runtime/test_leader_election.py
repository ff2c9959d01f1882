"""Leader election: one holder at a time, whatever the API server answers and however long the process is stopped."""

import socket
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from support.nodes_api import NodesApi, http_error
from support.ports import nowhere

from runtime.controller.leadership import Leadership
from runtime.controller.own_lease import open_lease
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.leader_election import Lease, uptime


class Contenders:
    """Two candidates for one Lease, with one clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall = 1_800_000_000.0
        self.api = NodesApi()
        self.one, self.other = (self._lease(name) for name in ("one", "other"))

    def _lease(self, identity: str) -> Lease:
        return Lease(self.api, "trimaran", "trimaran-nodes", identity, 15, (lambda: self.now, lambda: self.wall))

    def renew(self) -> tuple[bool, bool]:
        return self.one.renew(), self.other.renew()


def test_one_of_two_holds_the_lease() -> None:
    """The first candidate keeps the Lease for as long as it renews it."""
    both = Contenders()
    for _ in range(20):
        assert both.renew() == (True, False)
        assert (both.one.is_held, both.other.is_held) == (True, False)
        both.now += 5


def test_the_lease_is_taken_over_when_it_expires() -> None:
    """The other candidate takes over an expired Lease, and the old holder has given up by then."""
    both = Contenders()
    both.one.renew()
    (lease,) = both.api.leases.values()
    lease["spec"]["acquireTime"] = acquired = "2026-01-01T00:00:00.000000Z"
    both.renew()
    (lease,) = both.api.leases.values()
    assert lease["spec"]["acquireTime"] == acquired
    for _ in range(2):
        both.now += 5
        assert not both.other.renew()
    assert not both.one.is_held
    both.now += 5
    assert both.other.renew()
    assert both.one.renew() is False
    (lease,) = both.api.leases.values()
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("other", 1)
    assert abs(datetime.fromisoformat(lease["spec"]["acquireTime"]) - datetime.now(UTC)).total_seconds() < 60


def test_a_stopped_holder_releases_the_lease() -> None:
    """A released Lease can be taken over at once."""
    both = Contenders()
    both.renew()
    both.one.release()
    assert both.other.renew()
    both.one.release()
    assert both.other.renew()


def test_a_lease_that_cannot_be_renewed_is_lost() -> None:
    """A holder gives up two thirds of the Lease's duration after the last renewal that the API server accepted."""
    both = Contenders()
    both.renew()
    both.api.down = True
    both.now = 9.9
    assert both.one.renew()
    both.now = 10.0
    assert not both.one.renew()
    both.api.down = False
    assert both.one.renew()


def test_one_of_two_simultaneous_candidates_wins() -> None:
    """Two candidates read a free Lease, and the second write is refused."""
    both = Contenders()
    send, retried = both.api.send, []

    def late(method: str, path: str, *rest: Any) -> Any:
        if method != "GET" and not retried:
            retried.append(method)
            assert both.other.renew()
        return send(method, path, *rest)

    both.api.send = late  # type: ignore[method-assign]
    assert not both.one.acquire()  # which raises after a failure
    assert retried == ["POST"]


def test_an_interrupted_hold_is_another_term() -> None:
    """A term lasts while the Lease is renewed in time, and a hold after a gap is another term."""
    both = Contenders()
    both.renew()
    term = both.one.term
    for _ in range(4):
        both.now += 5
        both.renew()
        assert both.one.term == term
    both.now += 100
    assert both.one.renew()
    assert both.one.term not in {None, term}


@pytest.mark.parametrize(("seconds", "wall_seconds"), [(100, 100), (0, 100), (100, 0), (100, -1000)])
def test_a_suspended_holder_notices_it_by_any_clock(seconds: float, wall_seconds: float) -> None:
    """A holder that was suspended does not hold the Lease, whichever of the clocks kept running."""
    both = Contenders()
    both.renew()
    both.now += seconds
    both.wall += wall_seconds
    assert not both.one.is_held
    assert both.one.term is None


def test_a_wall_clock_that_is_set_back_does_not_prolong_the_hold() -> None:
    """The hold ends in time although the wall clock was set back, and continues if it is renewed."""
    both = Contenders()
    both.renew()
    both.wall -= 1000
    assert both.one.is_held
    both.now += 10
    assert not both.one.is_held


def test_a_failure_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Attempts each second with one cause, whatever it is, leave one line in the log."""
    candidate = Lease(OddApi("POST", http_error(501)), "trimaran", "trimaran-nodes", "one", 15)
    assert not any(candidate.renew() for _ in range(20))
    assert caplog.text.count("cannot be renewed") == 1


def test_the_problem_of_a_lease_ends_with_the_next_answer() -> None:
    """A Lease that cannot be read is a problem, for the holder once its term is over; another holder is none."""
    both = Contenders()
    both.renew()
    both.api.down = True
    assert both.renew() == (True, False)
    assert both.one.problem == ""
    assert both.other.problem == "the Lease trimaran-nodes cannot be acquired: no route"
    both.now += 20
    assert both.one.problem == both.other.problem
    both.api.down = False
    assert both.renew() == (True, False)
    assert (both.one.problem, both.other.problem, both.other.holder) == ("", "", "one")


def test_the_reason_of_a_failed_renewal_is_short(caplog: pytest.LogCaptureFixture) -> None:
    """While the API server is down, the log has the operating system's reason, not the library's exceptions."""
    api = KubernetesApi(ApiServerConfig(address=nowhere()))
    lease = Lease(api, "kube-system", "trimaran", "one", 15)
    Leadership(lease, 15, lambda: None).run_once()
    assert not lease.renew()
    (record,) = caplog.records
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/trimaran"
    assert (record.__dict__["error"], record.__dict__["lease"]) == ("Connection refused", path)


def test_a_lease_from_settings_is_held_by_the_host() -> None:
    """Namespace, name and duration are those of the settings, and the holder's identity begins with the host's name."""
    api = NodesApi()
    assert open_lease(api, "kube-system", "trimaran-nodes", 9).renew()
    ((path, lease),) = api.leases.items()
    assert path.endswith("/namespaces/kube-system/leases/trimaran-nodes")
    assert lease["spec"]["holderIdentity"].startswith(f"{socket.gethostname()}_")
    assert lease["spec"]["leaseDurationSeconds"] == 9


def test_uptime_counts_suspension() -> None:
    """The default clock runs at least as far as the monotonic clock, which Linux stops during suspension."""
    monotonic = time.monotonic()
    assert uptime() >= monotonic - 0.1


def lease(**spec: Any) -> dict[str, Any]:
    """Return a Lease as the API server returns it."""
    return {"kind": "Lease", "metadata": {"name": "trimaran-nodes", "resourceVersion": "1"}, "spec": spec}


ODD_RESPONSES: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "a text": "<html>",
    "a number": 5,
    "a Status": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500},
    "another object": {**lease(), "kind": "ConfigMap"},
    "no metadata": {"kind": "Lease", "spec": {}},
    "metadata is a list": {"kind": "Lease", "metadata": [], "spec": {}},
    "no version": {"kind": "Lease", "metadata": {}, "spec": {}},
    "a version that is a number": {"kind": "Lease", "metadata": {"resourceVersion": 1}, "spec": {}},
    "spec is a text": {**lease(), "spec": "free"},
    "a holder that is a number": lease(holderIdentity=0),
    "a holder that is a list": lease(holderIdentity=["one"]),
    "HTML": requests.exceptions.JSONDecodeError("Expecting value", "<html>", 0),
}


class OddApi:
    """A fake API that answers one method with something odd, and otherwise as the API server does."""

    def __init__(self, odd_method: str, odd: Any) -> None:
        self.api = NodesApi()
        self.odd_method, self.odd = odd_method, odd
        self.sent: list[str] = []

    def send(self, method: str, *arguments: Any) -> Any:
        self.sent.append(method)
        if method != self.odd_method:
            return self.api.send(method, *arguments)
        if isinstance(self.odd, Exception):
            raise self.odd
        return self.odd


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("odd", ODD_RESPONSES.values(), ids=ODD_RESPONSES)
def test_an_odd_response_is_a_failed_renewal(method: str, odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A response that is not a Lease acquires and overwrites nothing, is logged, and the next renewal succeeds."""
    api = OddApi(method, odd)
    candidate = Lease(api, "trimaran", "trimaran-nodes", "one", 15)
    if method == "PUT":  # only an existing Lease is changed
        assert Lease(api, "trimaran", "trimaran-nodes", "one", 15).renew()
    sent_before = len(api.sent)
    assert not candidate.renew()
    assert not candidate.is_held
    assert "cannot be renewed" in caplog.text
    assert api.sent[sent_before:] in (["GET"], ["GET", method])
    api.odd_method = ""
    assert candidate.renew()
    api.odd_method = "GET"
    assert candidate.renew()  # held until its end
    candidate.release()
    assert not candidate.is_held


@pytest.mark.parametrize(
    "spec",
    [
        {"leaseDurationSeconds": -5}, {"leaseDurationSeconds": 0}, {"leaseDurationSeconds": "1"},
        {"leaseDurationSeconds": None}, {"leaseDurationSeconds": float("nan")}, {"leaseDurationSeconds": [1]},
        {"leaseDurationSeconds": 15, "renewTime": "9999-01-01T00:00:00Z"}, {"renewTime": 5, "acquireTime": {}},
        {"leaseTransitions": "many"}, {"leaseTransitions": -1}, {"leaseTransitions": None},
    ],
    ids=str,
)  # fmt: skip
def test_odd_fields_do_not_end_the_hold_of_another_holder_early(spec: dict[str, Any]) -> None:
    """Another holder's Lease with invalid fields is taken over after our own duration, neither earlier nor never."""
    both = Contenders()
    both.other.renew()
    (path,) = both.api.leases
    both.api.leases[path]["spec"] |= spec
    assert not both.one.renew()
    both.now += 14.9
    assert not both.one.renew()
    both.now += 0.1
    assert both.one.renew()
    assert both.api.leases[path]["spec"]["holderIdentity"] == "one"
    assert both.api.leases[path]["spec"]["leaseTransitions"] == 1
