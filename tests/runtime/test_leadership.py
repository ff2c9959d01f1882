"""Leadership: writes only while the Lease is held, a wait after a take-over, and an end when it is lost."""

from support.nodes_api import NodesApi

from runtime.controller.leadership import Leadership
from runtime.kubernetes.leader_election import Lease


class Replicas:
    """Two replicas with one clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.api = NodesApi()
        self.lost: list[str] = []
        self.one, self.other = self._replica("one"), self._replica("other")

    def _replica(self, identity: str) -> Leadership:
        lease = Lease(self.api, "trimaran", "trimaran-scheduler", identity, 15, (lambda: self.now, lambda: self.now))
        return Leadership(lease, 15, lambda: self.lost.append(identity), lambda: self.now)

    def pass_time(self, seconds: float, *renewing: Leadership) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            for each in renewing:
                each.run_once()


def test_the_first_leader_writes_at_once() -> None:
    """Nobody's late write can arrive; the other replica never may write."""
    replicas = Replicas()
    assert not replicas.one.may_write()
    replicas.one.run_once()
    replicas.other.run_once()
    assert replicas.one.may_write()
    assert not replicas.other.may_write()


def test_a_new_leader_waits_for_late_writes() -> None:
    """After a kill the Lease expires, and the new leader waits for its duration once more."""
    replicas = Replicas()
    replicas.one.run_once()
    replicas.pass_time(15, replicas.other)
    assert not replicas.other.has_lease
    replicas.pass_time(2, replicas.other)
    assert replicas.other.has_lease
    assert not replicas.other.may_write()
    replicas.pass_time(15, replicas.other)
    assert replicas.other.may_write()
    assert replicas.lost == []


def test_a_released_lease_is_taken_over_at_once() -> None:
    """A process that stops has ended its writes."""
    replicas = Replicas()
    replicas.one.run_once()
    replicas.one.stop()
    assert not replicas.one.may_write()
    replicas.other.run_once()
    assert replicas.other.may_write()


def test_a_lease_with_writes_that_may_be_late_is_not_released() -> None:
    """It expires instead."""
    replicas = Replicas()
    replicas.one.run_once()
    replicas.one.stop(release=False)
    replicas.other.run_once()
    assert not replicas.other.has_lease


def test_a_stopped_process_may_not_write_when_it_goes_on() -> None:
    """Two thirds of the duration after the last renewal it may not write, before any thread has looked."""
    replicas = Replicas()
    replicas.one.run_once()
    replicas.now += 9.9
    assert replicas.one.may_write()
    replicas.now += 0.2
    assert not replicas.one.may_write()
    assert replicas.lost == []
    replicas.one.run_once()
    assert replicas.lost == ["one"]
    assert not replicas.one.may_write()


def test_a_leader_that_cannot_renew_ends() -> None:
    """It tries again in short intervals, and ends when two thirds of the duration have passed."""
    replicas = Replicas()
    replicas.one.run_once()
    send = replicas.api.send

    def fail(*_arguments: object) -> None:
        raise ConnectionError("the API server is gone")

    replicas.api.send = fail  # type: ignore[method-assign,assignment]
    assert replicas.one.run_once() == 1
    replicas.pass_time(9, replicas.one)
    assert replicas.lost == []
    replicas.pass_time(1, replicas.one)
    assert replicas.lost == ["one"]
    replicas.api.send = send  # type: ignore[method-assign]
