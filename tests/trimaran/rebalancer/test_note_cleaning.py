"""Removal of notes that no open move is about: after the search, within a budget, and with backoff by namespace."""

from collections import Counter

from support.controlling import Controlled
from support.moving_api import MovingApi
from support.rebalancing import hot_and_cold, pod

from trimaran.cluster.target_note import TargetNote

FORGED = TargetNote("node-idle", "node-cold", 4e9).annotations()


def forge(controlled: Controlled, number: int = 50, namespace: str = "tenant") -> None:
    """Write notes on a tenant's pods, which are created first."""
    pods = controlled.world.pods
    known = [each for each in pods if each["metadata"]["namespace"] == namespace]
    for index in range(number - len(known)):
        pods.append(pod(f"web-{namespace}-{index}", "node-idle", namespace=namespace))
        controlled.world.cores[f"web-{namespace}-{index}"] = 0.0
    for each in pods:
        if each["metadata"]["namespace"] == namespace:
            each["metadata"]["annotations"] = dict(FORGED)


def patches(api: MovingApi) -> Counter[str]:
    """Return the number of changed pods by namespace."""
    return Counter(each.split("/")[1] for each in api.sent if each.startswith("PATCH "))


def test_forged_notes_do_not_delay_the_search() -> None:
    """The evictions of a cycle come before the removal of notes that a tenant has written."""
    controlled = Controlled(hot_and_cold())
    forge(controlled)
    controlled.run()
    tenant = [index for index, each in enumerate(controlled.api.sent) if "/tenant/" in each]
    evictions = [index for index, each in enumerate(controlled.api.sent) if each.endswith("/eviction")]
    assert evictions
    assert len(tenant) == 10
    assert max(evictions) < min(tenant)


def test_a_tenant_that_goes_on_costs_ever_less() -> None:
    """With new notes in each of ten minutes' cycles, few send requests, ten each; every search takes place."""
    controlled = Controlled(hot_and_cold())
    for _ in range(120):
        forge(controlled, 12)
        controlled.run(seconds=5)
    assert patches(controlled.api)["tenant"] == 10 * len([0, 5, 15, 35, 75, 155, 315])
    assert controlled.rebalancer.counts.searches >= 600 // 60


def test_a_quiet_namespace_begins_again() -> None:
    """Five quiet minutes after a pause the notes in a namespace are removed at once again."""
    controlled = Controlled(hot_and_cold())
    forge(controlled, 1)
    controlled.run(seconds=20, cycles=20)
    forge(controlled, 10)
    controlled.run(seconds=1)
    controlled.run(seconds=5)
    assert patches(controlled.api)["tenant"] == 11
    forge(controlled, 10)
    controlled.run(seconds=1)
    assert patches(controlled.api)["tenant"] == 11


def test_a_note_after_a_kill_is_removed_among_forged_ones() -> None:
    """Namespaces that had no requests lately come first, so forged notes cannot keep a real one in place."""
    controlled = Controlled(hot_and_cold())
    for number in range(12):
        forge(controlled, 12, f"tenant-{number % 3}")
        controlled.run(seconds=1)
    left = controlled.world.pod("app-b-idle")["metadata"]
    left["annotations"] = dict(FORGED)
    controlled.run(seconds=1)
    assert left["annotations"] == {}


def test_the_first_failure_ends_the_cycle() -> None:
    """An API server that does not answer costs one request, and then a pause."""
    controlled = Controlled(hot_and_cold())
    controlled.api.fault = lambda method, path: (
        (503, {"message": "busy"}, {}) if method == "PATCH" and "/tenant/" in path else None
    )
    forge(controlled)
    controlled.run(cycles=2, seconds=2)
    assert patches(controlled.api)["tenant"] == 1


def test_a_process_without_the_lease_removes_nothing() -> None:
    """A Lease that is lost during the search ends the clean-up: the next leader may have written the notes."""
    controlled = Controlled(hot_and_cold())
    forge(controlled)
    original = controlled.rebalancer._search_if_due

    def lose(*arguments: object) -> None:
        original(*arguments)  # type: ignore[arg-type]
        controlled.term = 2

    controlled.rebalancer._search_if_due = lose  # type: ignore[method-assign]
    controlled.run()
    assert patches(controlled.api)["tenant"] == 0


def test_an_outdated_view_removes_nothing() -> None:
    """While the watch is silent, or the clock has jumped, a note may be one that a move needs: it stays."""
    controlled = Controlled(hot_and_cold())
    forge(controlled, 5)
    controlled.watch.age_seconds = 70.0
    controlled.run()
    controlled.watch.age_seconds, controlled.jump = 0.0, 7200.0
    controlled.run(seconds=599, cycles=7)
    assert patches(controlled.api)["tenant"] == 0
    controlled.run()
    assert patches(controlled.api)["tenant"] == 5
