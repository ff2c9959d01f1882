"""Plugins that fail: an exception at any extension point costs one attempt of one pod, and leaves nothing behind."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.scheduler_rooms import Room, decisions
from support.waiting import wait_until

from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from scoring import NodeResourcesFit, NodeTable, Profile
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict
from trimaran.scheduler.framework.decisions import Bind, Prepare, Unschedulable, Waiting
from trimaran.scheduler.framework.extension_points import (
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    Preemption,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    Rejection,
    ReservePlugin,
    Wait,
    Write,
)
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.service.event_queue import EventQueue
from trimaran.scheduler.service.scheduling_loop import SchedulingLoop

MILLICORES = 400
POINTS = [
    "PreEnqueue", "QueueSort", "PreFilter", "Filter", "PostFilter", "Score", "Reserve", "Unreserve", "Permit",
    "PreBind", "is_ready", "PostBind",
]  # fmt: skip


class Boom(Exception):
    """Exception of a plugin."""


class Fragile(
    FilterPlugin, QueueSortPlugin, PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin,
    PreBindPlugin, PostBindPlugin,
):  # fmt: skip
    """Plugin at each extension point, which calls a function before it answers; it counts what is reserved."""

    name = "Fragile"

    def __init__(self, before: Callable[[str, Pod], None]) -> None:
        self._before = before
        self.reserved: dict[str, str] = {}

    def pre_enqueue(self, pod: Pod) -> None:
        self._before("PreEnqueue", pod)

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[Any, ...]:
        self._before("QueueSort", pod)
        return (queued_at,)

    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> None:
        self._before("PreFilter", pod)

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> None:
        self._before("Filter", pod)

    def post_filter(self, pod: Pod, nodes: NodeTable, verdicts: object, now: float) -> Rejection:
        self._before("PostFilter", pod)
        return Rejection("nothing to preempt", needs_room=True)

    def reserve(self, pod: Pod, node_name: str) -> None:
        self.reserved[pod.uid] = node_name
        self._before("Reserve", pod)

    def unreserve(self, pod: Pod, node_name: str) -> None:
        self.reserved.pop(pod.uid, None)
        self._before("Unreserve", pod)

    def permit(self, pod: Pod, node_name: str, waiting: object, now: float) -> None:
        self._before("Permit", pod)

    def pre_bind(self, pod: Pod, node_name: str) -> Iterable[Write]:
        self._before("PreBind", pod)
        return [Write("/x", {})]

    def is_ready(self, pod: Pod, node_name: str) -> bool:
        self._before("is_ready", pod)
        return True

    def post_bind(self, pod: Pod, node_name: str) -> None:
        self._before("PostBind", pod)


class FragileScore(NodeResourcesFit):
    """Score that calls a function first."""

    def __init__(self, before: Callable[[str, Pod], None]) -> None:
        super().__init__()
        object.__setattr__(self, "before", before)

    def skips(self, pod: Pod) -> bool:
        self.before("Score", pod)  # type: ignore[attr-defined]
        return super().skips(pod)


def pod(name: str) -> Pod:
    containers = (Container(ResourceList({"cpu": MILLICORES})),)
    return Pod(name, uid=name, containers=containers, scheduler_name="ours")


def scheduler_of(before: Callable[[str, Pod], None], nodes: int, room: int) -> tuple[Scheduler, Fragile]:
    """Return a scheduler with the plugin at each point, over nodes with room for some pods each."""
    fragile = Fragile(before)
    every = (fragile,)
    profile = SchedulerProfile(
        Profile.of(FragileScore(before)), (fragile, Room()), fragile, every, every, post_filters=every, reserve=every,
        permit=every, pre_bind=every, post_bind=every,
    )  # fmt: skip
    scheduler = Scheduler(
        [replace(profile, scores=replace(profile.scores, scheduler_name="ours"))], np.random.default_rng(0)
    )
    amounts = ResourceList({"cpu": room * MILLICORES, "memory": 1 << 30, "pods": 200})
    scheduler.replace_nodes([Node(f"n{number}", amounts, amounts) for number in range(nodes)], 0.0)
    return scheduler, fragile


def run(scheduler: Scheduler, dice: random.Random, seconds: float) -> set[str]:
    """Let a cluster carry out what the scheduler decides, with a tenth of the Bindings refused; return who is bound."""
    bound: set[str] = set()
    now = 0.0
    while now < seconds:
        now += 0.5
        for decision in decisions(scheduler, now):
            uid = decision.pod.uid
            if isinstance(decision, Prepare):
                scheduler.prepared(uid, now)
            elif isinstance(decision, Bind) and dice.random() < 0.1:
                scheduler.not_bound(uid, now)
            elif isinstance(decision, Bind):
                scheduler.bound(uid)
                scheduler.put_pod(replace(decision.pod, node_name=decision.node_name), now)
                bound.add(uid)
    return bound


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", [*POINTS, ""])
def test_every_pod_is_bound_in_the_end(point: str, count: int) -> None:
    """A plugin that raises in a tenth of its calls, at one point or at all, loses no pod and no room."""
    dice = random.Random(53)

    def before(at: str, _pod: Pod) -> None:
        if (at == point or not point) and dice.random() < 0.1:
            raised.append(at)
            raise Boom(at)

    raised: list[str] = []
    scheduler, fragile = scheduler_of(before, 20, count // 20)
    for number in range(count):
        scheduler.put_pod(pod(f"p{number}"), 0.0)
    bound = run(scheduler, dice, 200.0)
    assert len(bound) == count
    assert (scheduler.in_flight, sum(scheduler.queue.counts.values())) == (0, 0)
    assert fragile.reserved.keys() == bound
    assert scheduler.state.table.pod_counts.tolist() == [count // 20] * 20  # they fit exactly, so no room is lost
    by_point = dict.fromkeys([point] if point else POINTS, "Fragile")
    names = {("FragileScore" if at == "Score" else name, at) for at, name in by_point.items()}
    named = {(name, "PreBind" if at == "is_ready" else at) for name, at in names}
    assert {(each, at) for each, at in scheduler.failures.counts} <= {
        *named, ("NodeResourcesFit", "Score"), ("Fragile", "Filter"),
    }  # fmt: skip
    assert sum(scheduler.failures.counts.values()) == len(raised)


def test_an_error_is_told_with_the_plugin() -> None:
    """The decision has kube-scheduler's reason for errors and names plugin and point; the log has the traceback."""

    def before(at: str, _pod: Pod) -> None:
        if at == "Reserve":
            raise Boom("x" * 5000)

    scheduler, fragile = scheduler_of(before, 1, 1)
    scheduler.put_pod(pod("p"), 0.0)
    (decision,) = decisions(scheduler, 0.0)
    assert isinstance(decision, Unschedulable)
    assert (decision.is_error, decision.needs_room) == (True, False)
    assert decision.message.startswith("running Reserve plugin Fragile: Boom")
    assert len(decision.message) < 1000
    assert (fragile.reserved, scheduler.state.table.pod_counts.tolist()) == ({}, [0])
    assert scheduler.next_at() == 1.0  # a backoff, and no event
    assert scheduler.failures.counts == {("Fragile", "Reserve"): 1}


@pytest.mark.parametrize(
    ("point", "answer"),
    [
        ("filter", FilterVerdict(np.ones(3, np.bool_), "shape")),
        ("filter", FilterVerdict(np.array([np.nan]), "NaN")),
        ("filter", "text"),
        ("pre_filter", True),
        ("reserve", "text"),
        ("permit", 5.0),
        ("permit", lambda: Wait(float("nan"))),
        ("pre_bind", [None]),
        ("pre_bind", None),
        ("is_ready", None),
        ("sort_key", (float("nan"),)),
        ("sort_key", None),
        ("sort_key", lambda: (each for each in ())),
        ("pre_enqueue", True),
        ("pre_enqueue", "text"),
        ("pre_filter", lambda: Rejection(None)),  # type: ignore[arg-type]
        ("pre_filter", lambda: Rejection("text", refused_by=["Fragile"])),  # type: ignore[arg-type]
        ("pre_filter", lambda: Rejection("text", retry_at="soon")),  # type: ignore[arg-type]
        ("permit", lambda: Wait("5")),  # type: ignore[arg-type]
        ("reserve", Future),
        ("filter", FilterVerdict(np.zeros(1, np.bool_), None)),  # type: ignore[arg-type]
        ("filter", FilterVerdict(np.zeros(1, np.bool_), lambda _: 5)),  # type: ignore[arg-type, return-value]
        ("filter", FilterVerdict(np.zeros(1, np.bool_), "shape", np.ones(3, np.bool_))),
        ("filter", FilterVerdict(np.zeros(1, np.bool_), lambda _: ("text",), counts=lambda _: None)),  # type: ignore[arg-type, return-value]
    ],
)
def test_an_answer_that_means_nothing_is_a_failure(point: str, answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN, a wrong shape or type is taken like an exception, once: the next answer counts."""
    scheduler, fragile = scheduler_of(lambda *_: None, 1, 1)
    right, given = getattr(fragile, point), []

    def wrong(*arguments: Any) -> object:
        given.append(arguments)
        if len(given) > 1:
            return right(*arguments)
        return answer() if callable(answer) else answer

    monkeypatch.setattr(fragile, point, wrong)
    scheduler.put_pod(pod("p"), 0.0)
    assert run(scheduler, random.Random(1), 30.0) == {"p"}
    assert [plugin for plugin, _ in scheduler.failures.counts] == ["Fragile"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda pod: Preemption("gone", ()),
        lambda pod: Preemption("n0", None),
        lambda pod: Preemption("n0", ("p",)),
        lambda pod: Preemption("n0", (), cleared=(None,)),
    ],
)
def test_a_preemption_that_nobody_can_carry_out_nominates_no_pod(answer: Callable[[Pod], Preemption]) -> None:
    """A node that does not exist, or victims that are not pods, are a failure of the PostFilter plugin."""
    scheduler, fragile = scheduler_of(lambda *_: None, 1, 0)
    fragile.post_filter = lambda pod, *_: answer(pod)  # type: ignore[method-assign]
    scheduler.put_pod(pod("p"), 0.0)
    (decision,) = decisions(scheduler, 0.0)
    assert isinstance(decision, Unschedulable)
    assert (decision.is_error, decision.preemption) == (True, None)
    assert scheduler.failures.counts == {("Fragile", "PostFilter"): 1}
    assert not scheduler.state.table.occupancy.nominated


def test_a_plugin_that_fails_for_a_pod_that_is_gone_does_not_keep_it() -> None:
    """Plugins are called for each pod that leaves; the pod no longer counts whatever they raise."""
    scheduler, fragile = scheduler_of(lambda *_: None, 1, 1)
    fragile.pod_gone = lambda uid: {}[uid]  # type: ignore[method-assign]
    scheduler.put_pod(replace(pod("p"), node_name="n0"), 0.0)
    scheduler.drop_pod("p", 1.0)
    assert scheduler.state.table.pod_counts.tolist() == [0]
    assert scheduler.failures.counts == {("Fragile", "PodGone"): 1}


@pytest.mark.parametrize("score", [float("nan"), 50.0, -1, 101, np.ones(2), "50"])
def test_an_equal_score_outside_the_range_is_a_failure(score: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that is equal on all nodes is checked like scores of single nodes."""
    scores = [score]
    monkeypatch.setattr(FragileScore, "equal_score", lambda *_: scores.pop() if scores else None)
    scheduler, _ = scheduler_of(lambda *_: None, 2, 1)
    scheduler.put_pod(pod("p"), 0.0)
    assert run(scheduler, random.Random(1), 30.0) == {"p"}
    assert scheduler.failures.counts == {("NodeResourcesFit", "Score"): 1}


def test_a_truth_value_of_numpy_is_one() -> None:
    """A plugin may answer with numpy's booleans."""
    scheduler, fragile = scheduler_of(lambda *_: None, 1, 1)
    answers = [np.True_, np.False_, np.True_]
    fragile.is_ready = lambda *_: answers.pop(0)  # type: ignore[method-assign]
    fragile.pre_bind = lambda *_: [Write("/x", {})] if answers else []  # type: ignore[method-assign]
    scheduler.put_pod(pod("p"), 0.0)
    assert run(scheduler, random.Random(1), 30.0) == {"p"}
    assert not scheduler.failures.counts


@pytest.mark.parametrize("retry_at", [float("-inf"), -1.0, 0.0, float("inf")])
def test_no_time_of_a_plugin_keeps_back_others(retry_at: float) -> None:
    """A past time takes no pod's turn from others, and an infinite one does not lose its own pod."""
    scheduler, fragile = scheduler_of(lambda *_: None, 2, 1)
    refused: list[str] = []

    def pre_filter(each: Pod, *_: object) -> Rejection | None:
        if each.name == "p" and len(refused) < 3:
            refused.append(each.name)
            return Rejection("later", retry_at=retry_at)
        return None

    fragile.pre_filter = pre_filter  # type: ignore[method-assign, assignment]
    scheduler.put_pod(replace(pod("p"), priority=5), 0.0)
    scheduler.put_pod(pod("q"), 0.0)
    assert len(list(decisions(scheduler, 0.0))) == 2
    assert len(refused) == 1
    assert "p" in run(scheduler, random.Random(1), 1000.0)


def test_keys_without_an_order_give_way_to_priority() -> None:
    """From the first exception of a comparison on, the queue is sorted by priority and time, with all its pods."""
    scheduler, fragile = scheduler_of(lambda *_: None, 4, 4)
    fragile.sort_key = lambda pod, _at: (pod.name,) if pod.name < "p3" else (7,)  # type: ignore[method-assign]
    for number in range(6):
        scheduler.put_pod(replace(pod(f"p{number}"), priority=number % 3), float(number))
    made = [each.pod.name for each in decisions(scheduler, 10.0) if isinstance(each, Prepare)]
    assert made == ["p2", "p5", "p1", "p4", "p0", "p3"]
    assert set(scheduler.failures.counts.values()) == {1}


def test_a_plugin_that_does_not_return_is_named() -> None:
    """The place is in the reason while the thread hangs; the thread itself counts as alive."""
    entered, leave = threading.Event(), threading.Event()

    def before(at: str, _pod: Pod) -> None:
        if at == "Filter":
            entered.set()
            leave.wait(60)

    scheduler, _ = scheduler_of(before, 1, 1)
    event_queue = EventQueue()
    handler = SimpleNamespace(handle=lambda *_: None, is_busy=lambda: False)
    loop = SchedulingLoop(scheduler, event_queue, handler, lambda: True, lambda: None)
    loop.start()
    try:
        event_queue.post(lambda machine, now: machine.put_pod(pod("p"), now))
        assert entered.wait(60)
        assert loop.why_stuck() == ""
        loop._ticked_at -= 130  # as if it hung for two minutes
        wait_until(lambda: "wait" in loop.why_stuck(), "the place is known")
        assert loop.why_stuck().startswith("the scheduling thread has hung for 130 s in ")
        assert loop.is_alive()
        leave.set()
        wait_until(lambda: not loop.why_stuck(), "scheduling goes on")
    finally:
        leave.set()
        loop.stop()


def test_a_waiting_pod_is_a_decision_too() -> None:
    """A Permit plugin that lets a pod wait and then fails for the next one leaves the first one waiting."""
    answers = iter([Wait(5.0), None])

    scheduler, fragile = scheduler_of(lambda *_: None, 2, 1)
    fragile.permit = lambda *_: next(answers)  # type: ignore[method-assign]
    for name in ("p", "q", "r"):
        scheduler.put_pod(pod(name), 0.0)
    made = decisions(scheduler, 0.0)
    assert [type(each) for each in made] == [Waiting, Prepare, Unschedulable]


def test_a_decision_that_nobody_carries_out_is_taken_back() -> None:
    """If the handler fails, the pod gives its room back, and is decided again after its backoff."""
    scheduler, fragile = scheduler_of(lambda *_: None, 1, 1)
    fragile.pre_bind = lambda *_: []  # type: ignore[method-assign, return-value]
    handled: list[object] = []

    def handle(decision: object, _seconds: float) -> None:
        handled.append(decision)
        if len(handled) == 1:
            raise MemoryError

    event_queue, now = EventQueue(), [0.0]
    handler = SimpleNamespace(handle=handle, is_busy=lambda: False)
    loop = SchedulingLoop(scheduler, event_queue, handler, lambda: True, lambda: None, clock=lambda: now[0])
    event_queue.post(lambda machine, at: machine.put_pod(pod("p"), at))
    with pytest.raises(MemoryError):
        loop.run_once()
    assert (scheduler.in_flight, fragile.reserved) == (0, {})
    now[0] = 60.0
    assert loop.run_once()
    assert [type(each) for each in handled] == [Bind, Bind]


def test_one_pod_of_a_list_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of a full list that cannot be applied is reported, and those that come after it are applied."""
    scheduler, _ = scheduler_of(lambda *_: None, 2, 1)
    put = scheduler.put_pod

    def put_but_one(each: Pod, now: float) -> None:
        if each.name == "b":
            raise Boom("odd")
        put(each, now)

    monkeypatch.setattr(scheduler, "put_pod", put_but_one)
    with pytest.raises(ExceptionGroup, match="pods"):
        scheduler.replace_pods([replace(pod(name), node_name="n0") for name in "abc"], 0.0)
    assert {placed.pod.name for _, placed in scheduler.state.table.placed_pods()} == {"a", "c"}


class Silent(Exception):
    """Exception that has no text, and takes no further attribute."""

    def __str__(self) -> str:
        raise ValueError

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError


@pytest.mark.parametrize(
    "kind",
    [Silent, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, RecursionError, StopIteration],
)
@pytest.mark.parametrize("point", POINTS)
def test_an_exception_of_any_kind_costs_one_attempt(point: str, kind: type[BaseException]) -> None:
    """Exceptions without a text, and those that would end the thread, lose no pod either."""
    raised: list[str] = []

    def before(at: str, _pod: Pod) -> None:
        if at == point and not raised:
            raised.append(at)
            raise kind

    scheduler, fragile = scheduler_of(before, 2, 3)

    def work() -> set[str]:
        for number in range(6):
            scheduler.put_pod(pod(f"p{number}"), 0.0)
        return run(scheduler, random.Random(1), 100.0)

    # Not in the main thread, where a KeyboardInterrupt is the user's.
    with ThreadPoolExecutor(1) as threads:
        bound = threads.submit(work).result()
    assert len(bound) == 6
    assert fragile.reserved.keys() == bound
    assert sum(scheduler.failures.counts.values()) == len(raised)
