"""Planned targets: notes of evicted pods, remembered for their replacements."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rebalancing import NOW, pod, rfc3339

from runtime.kubernetes.objects import Pod
from trimaran.cluster.planned_targets import PlannedTargets
from trimaran.cluster.target_note import TargetNote

NOTE = TargetNote("node-7", "node-3", NOW + 300)
OTHER = TargetNote("node-8", "node-3", NOW + 300)


class Followed:
    """Planned targets, with a clock that stands, and the objects of a watch."""

    def __init__(self) -> None:
        self.now = NOW
        self.targets = PlannedTargets(lambda: self.now)

    def put(self, manifest: dict[str, Any], **metadata: Any) -> Pod:
        """Apply the event of a pod, with some fields of its metadata replaced."""
        changed = {**manifest, "metadata": {**manifest["metadata"], **metadata}}
        read = Pod.from_k8s(changed)
        self.targets.put(changed, read)
        return read

    def evict(self, name: str, note: TargetNote = NOTE, *, grace: float = 30.0, **options: Any) -> dict[str, Any]:
        """Apply the events of a pod that is noted and then evicted; return its manifest."""
        old = pod(name, "node-3", **options)
        self.put(old, annotations=note.annotations())
        self.terminate(old, note, grace=grace)
        return old

    def terminate(self, manifest: dict[str, Any], note: TargetNote = NOTE, *, grace: float = 30.0) -> None:
        """Apply the event of a noted pod's deletion."""
        self.put(
            manifest, annotations=note.annotations(), deletionTimestamp=rfc3339(self.now + grace),
            deletionGracePeriodSeconds=int(grace),
        )  # fmt: skip

    def claim(self, name: str, **options: Any) -> TargetNote | None:
        """Return the note that a new pending pod gets."""
        return self.targets.claim(self.put(pod(name, created_at=self.now, ready_at=None, **options)))


@pytest.fixture
def followed() -> Followed:
    """Planned targets without a pod."""
    return Followed()


def test_the_replacement_gets_the_note_once(followed: Followed) -> None:
    """One new pod of the workload gets the note, whenever it is asked for; the next one gets none."""
    followed.evict("web-old")
    first = followed.put(pod("web-1", created_at=NOW, ready_at=None))
    assert [followed.targets.claim(first) for _ in range(3)] == [NOTE] * 3
    assert followed.claim("web-2") is None


def test_a_note_counts_from_the_deletion_on(followed: Followed) -> None:
    """A note on a pod that still runs is for nobody; one that is removed before the deletion, neither."""
    old = pod("web-old", "node-3")
    followed.put(old, annotations=NOTE.annotations())
    assert followed.claim("web-1") is None
    followed.put(old)  # the eviction was refused
    followed.put(old, deletionTimestamp=rfc3339(NOW + 30), deletionGracePeriodSeconds=30)
    assert followed.claim("web-1") is None


@pytest.mark.parametrize(
    "options", [{"of": "api"}, {"namespace": "other"}, {"metadata": {"labels": {"pod-template-hash": "changed"}}}]
)
def test_only_a_pod_of_the_workload_and_revision_gets_the_note(followed: Followed, options: dict[str, Any]) -> None:
    """A pod of another workload, namespace or template is no replacement."""
    followed.evict("web-old")
    assert followed.claim("web-1", **options) is None
    assert followed.claim("web-2") == NOTE


def test_a_replacement_of_a_stateful_set_has_the_same_name(followed: Followed) -> None:
    """Of a StatefulSet only the pod with the ordinal of the evicted one gets the note."""
    old = followed.evict("db-1", of="db", kind="StatefulSet")
    followed.targets.drop(old["metadata"]["uid"])
    assert followed.claim("db-2", of="db", kind="StatefulSet") is None
    assert followed.claim("db-1", of="db", kind="StatefulSet", metadata={"uid": "another"}) == NOTE


def test_a_pod_that_vanishes_leaves_its_note(followed: Followed) -> None:
    """A pod without a grace period, or one that went during a gap of the watch, has a replacement as well."""
    old = pod("web-old", "node-3")
    followed.put(old, annotations=NOTE.annotations())
    followed.targets.drop(old["metadata"]["uid"])
    assert followed.claim("web-1") == NOTE
    older = pod("api-old", "node-3", of="api")
    followed.put(older, annotations=OTHER.annotations())
    followed.targets.keep_only({"uid-of-default-web-1"})
    assert followed.claim("api-1", of="api") == OTHER


def test_a_replacement_that_another_replica_placed_closes_the_note(followed: Followed) -> None:
    """Every replica of the extender sees the binding; each later update of the bound pod closes no further note."""
    followed.evict("web-a")
    followed.evict("web-b", OTHER)
    for _ in range(3):
        followed.put(pod("web-1", "node-7", created_at=NOW))
    followed.put(pod("web-old", "node-5", created_at=NOW - 3600))  # ran before
    assert followed.claim("web-2") == OTHER
    assert followed.claim("web-3") is None


def test_a_replacement_that_is_deleted_returns_the_note(followed: Followed) -> None:
    """A replacement that was deleted before it was bound is replaced itself."""
    followed.evict("web-old")
    assert followed.claim("web-1") == NOTE
    followed.targets.drop("uid-of-default-web-1")
    assert followed.claim("web-2") == NOTE


def test_a_note_expires(followed: Followed) -> None:
    """After its time a note counts neither for a new pod nor for one that has it already, and nothing is kept."""
    followed.evict("web-old")
    followed.evict("api-old", of="api")
    assert followed.claim("web-1") == NOTE
    followed.now = NOTE.until + 1
    assert followed.claim("web-1") is None
    assert followed.claim("api-1", of="api") is None
    held = vars(followed.targets)
    assert not any(held[name] for name in ("_noted", "_vacancies", "_claimed", "_settled"))


def sizes(followed: Followed) -> dict[str, int]:
    """Return the number of entries of each collection."""
    return {name: len(held) for name, held in vars(followed.targets).items() if hasattr(held, "__len__")}


def test_a_note_counts_for_an_hour_at_most(followed: Followed) -> None:
    """A forged note until the year 9999 is forgotten an hour after it was seen, whatever events follow."""
    old = pod("web-old", "node-3")
    forged = {**NOTE.annotations(), "rebalancer.trimaran.io/target-until": "9999-01-01T00:00:00Z"}
    for _ in range(3):
        followed.put(old, annotations=forged)
    followed.put(old, annotations=forged, deletionTimestamp=rfc3339(NOW + 30), deletionGracePeriodSeconds=30)
    followed.now = NOW + 3599
    assert followed.claim("web-1") is not None
    followed.now = NOW + 3601
    assert followed.claim("web-1") is None
    assert set(sizes(followed).values()) == {0}


@pytest.mark.parametrize("are_deleted", [False, True])
def test_forged_notes_push_out_their_own(followed: Followed, *, are_deleted: bool) -> None:
    """Any number of notes in one namespace leaves those of others, and only the newest 100 of its own."""
    followed.evict("web-old")
    for number in range(1000):
        forged = pod(f"forged-{number}", "node-3", of=f"of-{number}", namespace="tenant")
        followed.put(forged, annotations=OTHER.annotations())
        if are_deleted:
            followed.targets.drop(forged["metadata"]["uid"])
    assert max(sizes(followed).values()) <= 101 + 101 + 100  # the heap may hold some that are outdated
    assert followed.claim("web-1") == NOTE
    if are_deleted:
        claimed = [followed.claim(f"n-{each}", of=f"of-{each}", namespace="tenant") for each in (0, 899, 900, 999)]
        assert claimed == [None, None, OTHER, OTHER]


def test_the_oldest_notes_of_all_are_pushed_out(followed: Followed) -> None:
    """With notes in very many namespaces the newest 10,000 stay."""
    for number in range(10_050):
        old = pod("web-old", "node-3", namespace=f"n-{number // 100}", metadata={"uid": f"uid-{number}"})
        followed.put(old, annotations=NOTE.annotations())
        followed.targets.drop(f"uid-{number}")
    assert max(sizes(followed).values()) <= 2 * 10_000 + 100
    assert followed.claim("web-first", namespace="n-0") == NOTE
    assert sum(followed.claim(f"web-{number}", namespace="n-0") is not None for number in range(100)) == 49


def test_a_note_that_changes_again_and_again_is_one_note(followed: Followed) -> None:
    """A pod that is annotated 1,000 times leaves no trace of its former notes."""
    old = pod("web-old", "node-3")
    for number in range(1000):
        followed.put(old, annotations=TargetNote(f"node-{number}", "node-3", NOW + 300).annotations())
    followed.targets.drop(old["metadata"]["uid"])
    assert max(sizes(followed).values()) <= 102
    note = followed.claim("web-1")
    assert note is not None
    assert note.target == "node-999"


def test_a_moved_replacement_leaves_its_own_note(followed: Followed) -> None:
    """A bound replacement may be moved again before the first note ends."""
    followed.evict("web-old")
    followed.put(pod("web-1", "node-7", created_at=NOW))
    followed.evict("web-1", OTHER, created_at=NOW)
    assert followed.claim("web-2") == OTHER


@pytest.mark.parametrize("name", ["", "n" * 254, "n" * 200_000])
def test_a_name_that_no_node_has_is_no_note(name: str) -> None:
    """A text of 256 KiB, which an annotation may have, is not kept as the name of a node."""
    assert TargetNote.read(TargetNote(name, "node-3", NOW).annotations()) is None
    assert TargetNote.read(TargetNote("node-7", name, NOW).annotations()) is None


@given(events=st.lists(st.tuples(st.sampled_from("ndcbx"), st.integers(0, 3)), max_size=40))
def test_no_note_is_used_twice(events: list[tuple[str, int]]) -> None:
    """In any order of notes, deletions, claims, bindings and drops there are at most as many users as notes."""
    followed, used = Followed(), set()
    old = [pod(f"old-{index}", "node-3") for index in range(4)]
    new = [pod(f"new-{index}", created_at=NOW, ready_at=None) for index in range(4)]
    bound: set[str] = set()
    noted = set()
    for kind, index in events:
        uid = new[index]["metadata"]["uid"]
        if kind == "n":
            followed.put(old[index], annotations=NOTE.annotations())
            noted.add(index)
        elif kind == "d":
            followed.terminate(old[index])
            noted.add(index)
        elif kind == "c" and uid not in bound and followed.targets.claim(Pod.from_k8s(new[index])):
            used.add(uid)
        elif kind == "b":
            followed.put(pod(f"new-{index}", "node-7", created_at=NOW))
            bound.add(uid)
        elif kind == "x" and uid not in bound:
            followed.targets.drop(uid)
            used.discard(uid)
    assert len(used) <= len(noted)
