"""The brake's reasons, and the ledger that survives a restart."""

import re
from dataclasses import fields, replace
from typing import Any

import orjson
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from support.moving_api import MovingApi
from support.rebalancing import NOW, hot_and_cold, member, pod, rfc3339

from runtime.http.session import UnexpectedResponse
from trimaran.rebalancer.brake import BrakeReason, brake_reason, pending_wait
from trimaran.rebalancer.caps import Caps
from trimaran.rebalancer.ledger import Brake, Ledger
from trimaran.rebalancer.ledger_store import UnreadableLedger
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.rules import BrakeRules, CapLimits


def landed(number: int, **fields: Any) -> MoveRecord:
    """Return a move that has landed and gained, some minutes ago."""
    at = NOW - 60 * (30 - number)
    given: dict[str, Any] = {
        "uid": f"uid-{number}", "namespace": "default", "name": f"web-{number}", "kind": "Deployment",
        "workload": "web", "revision": "a", "lineage": f"uid-{number}", "source": "node-a", "target": "node-b",
        "state": MoveState.LANDED, "gain": 0.4, "planned_at": at, "evicted_at": at, "ready_at": at + 30,
        "startup": 20.0, "measured": 0.3,
    }  # fmt: skip
    return MoveRecord(**{**given, **fields})


def reason(
    records: list[MoveRecord],
    replaced: list[tuple[MoveRecord, Member]] | None = None,
    waits: tuple[float, float] = (5.0, 5.0),
) -> BrakeReason | None:
    """Return the reason for the brake."""
    found = brake_reason(records, replaced or [], waits, BrakeRules(), NOW)
    return None if found is None else found[0]


def test_good_moves_need_no_brake() -> None:
    """Twenty moves that gained set no brake."""
    assert reason([landed(number) for number in range(20)]) is None


@pytest.mark.parametrize(("failed", "expected"), [(10, None), (11, BrakeReason.NO_GAIN)])
def test_fewer_than_half_gained(failed: int, expected: BrakeReason | None) -> None:
    """The brake is set once more than half of the last twenty measured moves gained nothing, also before twenty."""
    bad = [landed(number, measured=0.0 if number % 2 else -0.1) for number in range(failed)]
    assert reason([*bad, *(landed(number) for number in range(failed, 20))]) is expected
    assert reason(bad) is expected
    later = [landed(number) for number in range(20, 40)]
    assert reason([*bad, *later]) is None


def test_a_replacement_without_a_node() -> None:
    """The brake is set when a replacement is unschedulable for two minutes, not while its gates are closed."""
    for seconds, because, expected in (
        (60, "Unschedulable", None), (130, "Unschedulable", BrakeReason.UNSCHEDULABLE), (130, "SchedulingGated", None)
    ):  # fmt: skip
        refused = {"type": "PodScheduled", "status": "False", "reason": because}
        since = {"lastTransitionTime": rfc3339(NOW - seconds)}
        waiting = pod("web-9", ready_at=None, conditions=[{**refused, **since}])
        move = landed(20, state=MoveState.EVICTED)
        assert reason([move], [(move, member(waiting))]) is expected


def test_a_lost_replacement() -> None:
    """The brake is set when no replacement became Ready in time."""
    assert reason([landed(1, state=MoveState.LOST)]) is BrakeReason.LOST


def test_slow_start_ups_and_restarts() -> None:
    """The brake is set when replacements take longer to become Ready than the evicted pods, or restart more often."""
    slow = [landed(number, ready_at=landed(number).evicted_at + 90) for number in range(5)]
    assert reason(slow) is BrakeReason.UNREADY
    assert reason(slow[:4]) is None
    assert reason([landed(number, restarts=2) for number in range(3)]) is BrakeReason.RESTARTS
    assert reason([landed(number, restarts=2, restarts_before=2) for number in range(3)]) is None


def test_only_the_last_twenty_moves_count() -> None:
    """Lost, slow and restarted replacements no longer set the brake once twenty good moves are later by their plan."""
    good = [landed(number) for number in range(10, 30)]
    for bad, expected in (
        (landed(0, state=MoveState.LOST), BrakeReason.LOST),
        (landed(0, ready_at=NOW), BrakeReason.UNREADY),
        (landed(0, restarts=9), BrakeReason.RESTARTS),
    ):
        assert reason([*good[1:], bad]) is expected
        assert reason([*good, bad]) is None


def test_little_harm_sets_no_brake() -> None:
    """Start-ups and waits below half a minute, few restarts, and moves that were not made are no reason to stop."""
    quick = [landed(number, startup=1.0, ready_at=landed(number).evicted_at + 50) for number in range(5)]
    assert reason(quick) is None
    steady = [landed(number, startup=100.0, ready_at=landed(number).evicted_at + 150) for number in range(5)]
    assert reason(steady) is None
    assert reason([landed(1, restarts=3)]) is None
    assert reason([landed(1)], waits=(1.0, 50.0)) is None
    held = [landed(number, state=MoveState.HELD, measured=-1.0, restarts=9) for number in range(20)]
    assert reason(held) is None
    assert reason([landed(1, planned_at=NOW - 3700)], waits=(20.0, 100.0)) is None  # no move of late


def test_a_growing_wait_for_nodes() -> None:
    """The brake is set when pods wait longer for a node than before the moves, if there were moves of late."""
    assert reason([landed(1)], waits=(20.0, 100.0)) is BrakeReason.PENDING
    assert reason([], waits=(20.0, 100.0)) is None
    assert reason([landed(1)], waits=(60.0, 100.0)) is None


def test_the_brake_is_set_at_its_limits() -> None:
    """A replacement brakes once it has waited for the whole limit; start-ups and waits may grow to the whole factor."""
    move = landed(20, state=MoveState.EVICTED)
    for seconds, expected in ((119, None), (120, BrakeReason.UNSCHEDULABLE)):
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        since = {"lastTransitionTime": rfc3339(NOW - seconds)}
        waiting = pod("web-9", ready_at=None, conditions=[{**refused, **since}])
        assert reason([move], [(move, member(waiting))]) is expected
    starting = member(pod("web-9", "node-b", ready_at=None))
    for seconds, expected in ((119, None), (120, BrakeReason.FAILING)):
        failing = {starting.pod.uid: float(seconds)}
        found = brake_reason([move], [(move, starting)], (5.0, 5.0), BrakeRules(), NOW, failing)
        assert (found[0] if found else None) is expected
    twice = [landed(number, startup=40.0, ready_at=landed(number).evicted_at + 80) for number in range(5)]
    assert reason(twice) is None
    assert reason([landed(1)], waits=(20.0, 60.0)) is None


def test_one_recent_move_is_enough_for_the_wait() -> None:
    """Waits count while any move is of the past hour; a move of exactly an hour ago is not."""
    waits = (20.0, 100.0)
    assert reason([landed(1, planned_at=NOW - 7200), landed(2)], waits=waits) is BrakeReason.PENDING
    assert reason([landed(1, planned_at=NOW - 3600)], waits=waits) is None


def test_waits_are_recent_and_not_negative() -> None:
    """A pod counts for less than ten minutes after scheduling; a creation time in the future is a wait of 0."""

    def scheduled(seconds: float) -> list[Member]:
        at = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW - seconds)}]
        return [member(pod(f"web-{n}", created_at=NOW - seconds - 50, conditions=at)) for n in range(5)]

    assert pending_wait(scheduled(599), (), NOW) == 50.0
    assert pending_wait(scheduled(600), (), NOW) == 0.0
    assert pending_wait([member(pod(f"web-{n}", ready_at=None, created_at=NOW + 9)) for n in range(5)], (), NOW) == 0.0


def test_the_wait_counts_pods_that_wait_now() -> None:
    """The 95th percentile covers pods that wait, and those that got a node within ten minutes, but no replacements."""
    quick = [member(pod(f"web-{n}", "node-a", created_at=NOW - 100)) for n in range(4)]
    waiting = member(pod("web-9", ready_at=None, created_at=NOW - 400))
    assert pending_wait([*quick, waiting], (), NOW) == 400.0
    assert pending_wait([*quick, waiting], {waiting.pod.uid}, NOW) == 0.0  # too few
    assert pending_wait([*quick, quick[0], waiting], {waiting.pod.uid}, NOW) == 0.0
    long_ago = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW - 700)}]
    slow = [member(pod(f"old-{n}", created_at=NOW - 9000, conditions=long_ago)) for n in range(5)]
    assert pending_wait([*quick, waiting, *slow], (), NOW) == 400.0
    assert pending_wait(slow, (), NOW) == 0.0
    many = [member(pod(f"many-{n}", ready_at=None, created_at=NOW - 60)) for n in range(40)]
    assert pending_wait([*many, waiting], (), NOW) == 60.0
    static = pod("static", "node-a", created_at=NOW - 9000)
    static["status"]["conditions"] = []  # the kubelet runs it, and no scheduler placed it
    assert pending_wait([*quick, member(static)], (), NOW) == 0.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.sampled_from(MoveState), st.floats(-1, 1), st.none() | st.floats(-1, 1),
            st.floats(0, 2e9), st.text(max_size=5),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_the_ledger_is_read_as_it_was_written(
    rows: list[tuple[int, MoveState, float, float | None, float, str]],
) -> None:
    """Any ledger is the same after writing and reading, to four digits."""
    ledger = Ledger(wait=12.5, brake=Brake(BrakeReason.NO_GAIN, "why", NOW))
    for number, state, gain, value, at, name in rows:
        record = landed(number, state=state, gain=round(gain, 4), planned_at=round(at, 4), name=name)
        ledger = ledger.put(record.changed(measured=None if value is None else round(value, 4)))
    assert Ledger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize("reason", BrakeReason)
def test_each_reason_of_the_brake_is_kept(reason: BrakeReason) -> None:
    """A reason that version 0.1 does not know is written as one that it does, and read as what it was."""
    ledger = Ledger(brake=Brake(reason, "why", NOW))
    assert Ledger.from_json(ledger.to_json()) == ledger


def test_a_brake_for_a_reason_of_a_later_version_holds() -> None:
    """After a rollback such a brake is one that a person has to release; the ledger stays readable."""
    document = orjson.loads(Ledger(brake=Brake(BrakeReason.LOST, "why", NOW)).to_json())
    document["brake"]["reason"] = "too_windy"
    read = Ledger.from_json(orjson.dumps(document).decode())
    assert read.brake == Brake(BrakeReason.STOPPED, "why", NOW)


@pytest.mark.parametrize("text", ["{}", "[]", '{"version": 2, "moves": []}', "not JSON", '{"version":1,"moves":[{}]}'])
def test_an_unreadable_ledger_is_an_error(text: str) -> None:
    """Another document is refused, and never taken for an empty ledger, which would reset the caps."""
    with pytest.raises(ValueError):  # noqa: PT011  of orjson, too
        Ledger.from_json(text)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"planned_at": "yesterday"}, "moves[0].planned_at"), ({"planned_at": None}, "moves[0].planned_at"),
        ({"restarts": 1.5}, "moves[0].restarts"), ({"refusals": True}, "moves[0].refusals"),
        ({"uid": 7}, "moves[0].uid"), ({"state": "flying"}, "moves[0].state"), ({"measured": []}, "moves[0].measured"),
        ({"moves": {}}, "moves"), ({"moves": "none"}, "moves"), ({"moves": None}, "moves"), ({"brake": "set"}, "brake"),
        ({"brake": {"reason": "lost"}}, "brake"), ({"wait": "1"}, "wait"),
    ],
)  # fmt: skip
def test_a_field_of_another_type_makes_the_ledger_unreadable(changes: dict[str, Any], field: str) -> None:
    """The message names the field; a brake that cannot be read is not taken for one that is released."""
    document = orjson.loads(Ledger().put(landed(1)).to_json())
    (document["moves"][0] if "." in field else document).update(changes)
    with pytest.raises(ValueError, match=r"not a ledger: .*\$\." + re.escape(field)):
        Ledger.from_json(orjson.dumps(document).decode())


def test_a_config_map_without_the_ledger_is_an_error() -> None:
    """A ConfigMap that lost its key is not an empty ledger: the caps would begin again."""
    api = MovingApi(hot_and_cold())
    api.store.write(Ledger().put(landed(1)))
    (stored,) = api.maps.values()
    for data in ({}, None, {"Ledger": stored["data"]["ledger"]}):
        stored["data"] = data
        with pytest.raises(UnreadableLedger, match="'ledger'"):
            api.store.read()


def test_of_a_ledger_that_is_too_long_the_oldest_moves_go_first(caplog: pytest.LogCaptureFixture) -> None:
    """A ConfigMap has 1 MiB: open moves, the brake and the newest moves stay, and the write succeeds."""
    long = "n" * 250
    records = [
        landed(number, name=long, target=long, source=long, lineage=long, planned_at=NOW + number, uid=f"uid-{number}")
        for number in range(2000)
    ]
    records[0] = records[0].changed(state=MoveState.EVICTED)
    brake = Brake(BrakeReason.LOST, "why", NOW)
    api = MovingApi(hot_and_cold())
    api.store.write(Ledger(tuple(records), brake))
    (stored,) = api.maps.values()
    assert 990_000 < len(stored["data"]["ledger"]) <= 1_000_000
    read = api.ledger()
    assert read.brake == brake
    assert read.records == (records[0], *records[2001 - len(read.records) :])
    assert "the ledger is too long" in caplog.text


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_no_number_makes_a_ledger_unreadable(number: float) -> None:
    """Numbers that are not JSON are left out: a ledger that cannot be read stops all moves until it is deleted."""
    numbers = [each.name for each in fields(MoveRecord) if isinstance(each.default, float) or each.name == "measured"]
    for name in numbers:
        ledger = Ledger((landed(1), landed(2, uid="other", **{name: number})), Brake(BrakeReason.LOST, "why", NOW))
        read = Ledger.from_json(ledger.to_json())
        assert read.records[0] == ledger.records[0]
        assert (read.records[1].uid, read.brake) == ("other", ledger.brake)


@pytest.mark.parametrize("text", ["x" * 2_000_000, "\ud800", "a\nb\x1b[2J", "\U0010ffff" * 300_000])
def test_any_text_of_a_brake_can_be_stored(text: str) -> None:
    """The text names what others wrote; a brake that cannot be written would be released by the next restart."""
    api = MovingApi(hot_and_cold())
    api.store.write(Ledger((landed(1),)).with_brake(Brake(BrakeReason.FAILING, text, NOW)))
    read = api.ledger()
    assert read.brake is not None
    assert 0 < len(read.brake.text) <= 20_000
    assert read.brake.text.isprintable()
    assert len(read.records) == 1


def test_a_thousand_moves_fit_into_a_config_map() -> None:
    """The largest number of moves that the settings allow takes less than the 1 MiB of a ConfigMap."""
    ledger = Ledger().put_all(landed(number, name=f"web-frontend-{number:08}") for number in range(1000))
    assert len(ledger.to_json()) < 700_000


def test_caps_continue_after_a_restart() -> None:
    """Caps from a ledger that was written and read are those from the moves themselves; old moves no longer count."""
    limits, moves = CapLimits(percent_per_hour=100, per_hour=5), [landed(number) for number in range(3)]
    read = Ledger.from_json(Ledger().put_all(moves).to_json()).records
    assert Caps(limits, read, 100, NOW).left == 2
    assert Caps(limits, read, 100, NOW + 3600).left == 5
    assert Caps(limits, read, 100, NOW - 7200).left == 2  # the clock was set back


def test_no_more_moves_are_dropped_than_needed() -> None:
    """A ledger that is as long as allowed stays whole, and one that is longer loses as many moves as it must."""
    ledger = Ledger(tuple(landed(10 + number) for number in range(9)))
    length, shorter = len(ledger.to_json()), len(replace(ledger, records=ledger.records[1:]).to_json())
    assert ledger.fitting(length) is ledger
    assert ledger.fitting(length - 1).records == ledger.records[1:]
    least = ledger.fitting(length - 3 * (length - shorter))
    assert least.records == ledger.records[3:]


def test_a_day_is_kept() -> None:
    """Moves of a day ago or more are dropped, open ones are kept."""
    kept = landed(4, planned_at=NOW - 86_399)
    assert Ledger().put_all([landed(5, planned_at=NOW - 86_400), kept]).pruned(NOW).records == (kept,)
    old = landed(1, planned_at=NOW - 90_000)
    waiting = landed(2, planned_at=NOW - 90_000, state=MoveState.EVICTED)
    assert Ledger().put_all([old, waiting, landed(3)]).pruned(NOW).records == (waiting, landed(3))


def test_a_released_brake_forgives_the_earlier_moves() -> None:
    """After the release the moves before it no longer set the brake, and still count for caps and cooldowns."""
    bad = [landed(number, measured=-1.0, restarts=9) for number in range(12)] + [
        landed(12, state=MoveState.LOST, restarts=9)
    ]
    ledger = Ledger().put_all(bad).with_brake(Brake(BrakeReason.LOST, "why", NOW)).with_brake(None)
    assert reason(list(ledger.records)) is None
    ledger = Ledger.from_json(ledger.to_json())
    assert reason(list(ledger.records)) is None
    assert [record.state for record in ledger.records[-2:]] == [MoveState.LANDED, MoveState.LOST]
    slow = [landed(number, ready_at=landed(number).evicted_at + 300) for number in range(13, 20)]
    assert reason(list(ledger.put_all(slow).records)) is BrakeReason.UNREADY
    again = ledger.put(landed(13, state=MoveState.LOST))
    assert reason(list(again.records)) is BrakeReason.LOST
    assert Caps(CapLimits(percent_per_hour=100), ledger.records, 100, NOW).usage()["hour"][0] == 13


def test_a_released_brake_leaves_other_moves_as_they_are() -> None:
    """Moves whose replacement is awaited, held ones and refused ones do not count for the brake, and stay the same."""
    states = (MoveState.PLANNED, MoveState.EVICTED, MoveState.HELD, MoveState.REFUSED)
    ledger = Ledger(tuple(landed(number, state=state) for number, state in enumerate(states)))
    assert ledger.with_brake(None) == ledger
    assert ledger.open_records() == list(ledger.records[:2])
    assert ledger.find(ledger.records[1].key) is ledger.records[1]
    assert ledger.find(("another", NOW)) is None


def test_a_deleted_ledger_begins_again() -> None:
    """After a person deleted the ConfigMap the ledger is empty, and the next write creates it."""
    api = MovingApi(hot_and_cold())
    store = api.store
    store.write(store.read().put(landed(1)))
    api.maps.clear()
    assert store.read() == Ledger()
    store.write(Ledger().put(landed(2)))
    assert api.ledger().records == (landed(2),)


def test_an_answer_that_is_no_config_map_is_an_error() -> None:
    """Without a resource version the next write would create the ConfigMap, so no other answer passes for one."""
    api = MovingApi(hot_and_cold())
    api.maps["/api/v1/namespaces/trimaran/configmaps/trimaran-rebalancer"] = {"kind": "Status", "metadata": {}}
    with pytest.raises(UnexpectedResponse, match="not a ConfigMap"):
        api.store.read()


def test_only_a_missing_ledger_is_an_empty_one() -> None:
    """An API server that fails is no reason to begin with empty caps."""
    api = MovingApi(hot_and_cold())
    api.fault = lambda _method, _path: (500, {"message": "etcd is slow"}, {})
    with pytest.raises(requests.HTTPError):
        api.store.read()
