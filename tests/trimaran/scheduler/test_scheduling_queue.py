"""Queue of pending pods: order, backoff, events, gates."""

from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import ClusterEvent
from trimaran.scheduler.framework.extension_points import Rejection
from trimaran.scheduler.framework.priority_sort import PrioritySort
from trimaran.scheduler.framework.queue import QueueOptions, SchedulingQueue

GONE, ASSIGNED = ClusterEvent.POD_GONE, ClusterEvent.POD_ASSIGNED
REQUEUED_BY = {"Fit": {GONE}, "Affinity": {GONE, ASSIGNED}, "Name": set()}


def queue_of(*pods: Pod, gates: dict[str, str] | None = None) -> SchedulingQueue:
    closed = {} if gates is None else gates

    def gate(pod: Pod) -> Rejection | None:
        return Rejection(closed[pod.uid]) if pod.uid in closed else None

    queue = SchedulingQueue(PrioritySort().sort_key, gate, REQUEUED_BY.__getitem__, QueueOptions())
    for at, pod in enumerate(pods):
        queue.put(pod, float(at))
    return queue


def popped(queue: SchedulingQueue, now: float) -> list[str]:
    entries = []
    while (entry := queue.pop(now)) is not None:
        entries.append(entry.pod.name)
    return entries


def fail(queue: SchedulingQueue, now: float, plugin: str, **options: float) -> None:
    """Pop the next pod, which a plugin refuses at once."""
    entry = queue.pop(now)
    assert entry is not None
    queue.retry(entry, now, {plugin}, **options)


def test_order_is_by_priority_then_by_age() -> None:
    """The highest priority comes first, then the pod that waits longest."""
    queue = queue_of(Pod("old"), Pod("high", priority=5), Pod("young"), Pod("low", priority=-1))
    assert popped(queue, 10.0) == ["high", "old", "young", "low"]


def test_a_deleted_pod_is_not_popped() -> None:
    """A pod that was dropped from the queue does not come up."""
    queue = queue_of(Pod("a"), Pod("b"))
    queue.drop("default/a")
    assert queue.counts["active"] == 1
    assert popped(queue, 1.0) == ["b"]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    """Each failed attempt doubles the wait, up to ten seconds."""
    queue = queue_of(Pod("a"))
    waits, now = [], 0.0
    for number in range(6):
        entry = queue.pop(now) if number % 2 else queue.take("default/a")
        assert entry is not None
        queue.retry(entry, now)
        due = queue.next_at()
        assert due is not None
        assert queue.pop(due - 0.001) is None
        waits.append(due - now)
        now = due
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_an_unschedulable_pod_waits_for_an_event_that_may_help() -> None:
    """Only an event that a refusing plugin names requeues the pod."""
    queue = queue_of(Pod("a"))
    fail(queue, 0.0, "Fit")
    queue.move(ASSIGNED, 20.0)
    assert popped(queue, 20.0) == []
    queue.move(GONE, 30.0)
    assert popped(queue, 30.0) == ["a"]


def test_an_event_during_the_backoff_does_not_shorten_it() -> None:
    """An event moves the pod to the backoff queue, whose time stays."""
    queue = queue_of(Pod("a"))
    fail(queue, 0.0, "Fit")
    queue.move(GONE, 0.1)
    assert queue.counts == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}
    assert popped(queue, 0.9) == []
    assert popped(queue, 1.0) == ["a"]


def test_an_event_during_the_attempt_counts() -> None:
    """A pod whose room came during its attempt does not wait for another event."""
    queue = queue_of(Pod("a"))
    entry = queue.pop(0.0)
    assert entry is not None
    queue.move(GONE, 0.1)
    queue.retry(entry, 0.2, {"Fit"})
    assert queue.counts["backoff"] == 1


def test_the_pod_that_caused_an_event_is_left_out() -> None:
    """A pod is not requeued by the room that it itself gave back."""
    queue = queue_of(Pod("a"), Pod("b"))
    for _ in range(2):
        fail(queue, 5.0, "Fit")
    queue.move(GONE, 20.0, but="default/a")
    assert popped(queue, 20.0) == ["b"]
    assert queue.counts["unschedulable"] == 1


def test_an_unschedulable_pod_is_tried_again_after_five_minutes() -> None:
    """Without any event the pod is flushed after five minutes."""
    queue = queue_of(Pod("a"))
    fail(queue, 0.0, "Name")
    assert queue.next_at() == 300.0
    assert popped(queue, 299.9) == []
    assert popped(queue, 300.0) == ["a"]


def test_a_time_requeues_an_unschedulable_pod_without_an_event() -> None:
    """The first of the two counts, after the backoff, and only once."""
    queue = queue_of(Pod("a"))
    fail(queue, 0.0, "Fit", retry_at=10.0)
    assert queue.next_at() == 10.0
    assert popped(queue, 9.9) == []
    fail(queue, 10.0, "Fit", retry_at=10.5)
    assert popped(queue, 11.9) == []  # its backoff
    fail(queue, 12.0, "Fit", retry_at=22.0)
    queue.move(GONE, 20.0)
    fail(queue, 20.0, "Fit")
    assert popped(queue, 30.0) == []
    assert queue.next_at() == 320.0


def test_a_time_without_a_refusal_replaces_the_backoff() -> None:
    """It counts up to the time after which every pod is tried again."""
    for retry_at, due in ((0.5, 0.5), (20.0, 20.0), (1e9, 300.0)):
        queue = queue_of(Pod("a"))
        entry = queue.pop(0.0)
        assert entry is not None
        queue.retry(entry, 0.0, retry_at=retry_at)
        assert queue.next_at() == due


def test_a_changed_pod_is_tried_again_but_a_new_nomination_is_no_change() -> None:
    """New labels requeue a pod; the nomination that the scheduler wrote does not."""
    queue = queue_of(Pod("a"))
    fail(queue, 0.0, "Name")
    queue.put(Pod("a", nominated_node_name="n1"), 20.0)
    assert popped(queue, 20.0) == []
    queue.put(Pod("a", labels={"tier": "web"}), 21.0)
    assert popped(queue, 21.0) == ["a"]


def test_a_gated_pod_enters_when_its_gate_opens() -> None:
    """A gated pod is not popped until an update opens its gates."""
    gates = {"default/a": "waiting for scheduling gates: quota"}
    queue = queue_of(Pod("a"), gates=gates)
    assert popped(queue, 1.0) == []
    assert queue.counts["gated"] == 1
    gates.clear()
    queue.put(Pod("a"), 2.0)
    assert popped(queue, 2.0) == ["a"]


def test_a_higher_priority_moves_a_waiting_pod_up() -> None:
    """A changed priority changes the order."""
    queue = queue_of(Pod("a"), Pod("b"))
    queue.put(Pod("b", priority=7), 3.0)
    assert popped(queue, 3.0) == ["b", "a"]


def test_ten_thousand_unschedulable_pods_cost_an_event_nothing() -> None:
    """An event looks at groups of pods, not at each pod."""
    queue = queue_of(*[Pod(f"p{number}") for number in range(10_000)])
    while (entry := queue.pop(1e5)) is not None:
        queue.retry(entry, 1e5, {"Fit"})
    calls = 0

    def counted(name: str) -> set[ClusterEvent]:
        nonlocal calls
        calls += 1
        return REQUEUED_BY[name]

    queue._requeued_by = counted
    queue.move(ASSIGNED, 1e5)
    assert calls == 1
    queue.move(GONE, 1e5)
    assert queue.counts["backoff"] == 10_000
