"""State machine of the scheduler: cycles, outcomes, waiting, preparation, and random sequences of events."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.scheduler_rooms import Room, decisions

from runtime.kubernetes.objects import Container as PodContainer
from runtime.kubernetes.objects import Node, Pod, ResourceList
from scoring import FallbackPolicy, MetricsTable, NodeResourcesFit, NodeTable, Profile
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict
from scoring.plugins.taint_toleration import TaintToleration
from trimaran.scheduler.framework.decisions import Bind, Decision, Prepare, Unschedulable, Waiting
from trimaran.scheduler.framework.extension_points import (
    PermitPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    Preemption,
    Rejection,
    ReservePlugin,
    Wait,
    WaitingPods,
    Write,
)
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.scheduler import Scheduler


def node(name: str, millicores: int = 1000) -> Node:
    amounts = ResourceList({"cpu": millicores, "memory": 1 << 30, "pods": 10})
    return Node(name, amounts, amounts)


def pod(name: str, millicores: int = 400, **fields: object) -> Pod:
    container = PodContainer(ResourceList({"cpu": millicores}))
    return Pod(name, containers=(container,), scheduler_name="ours", **fields)  # type: ignore[arg-type]


def machine(*nodes: Node, **plugins: object) -> Scheduler:
    plugins = {"filters": (Room(),), **plugins}
    profile = SchedulerProfile(Profile.of(NodeResourcesFit()), **plugins)  # type: ignore[arg-type]
    profile = replace(profile, scores=replace(profile.scores, scheduler_name="ours"))
    scheduler = Scheduler([profile], np.random.default_rng(0))
    scheduler.replace_nodes(nodes, 0.0)
    return scheduler


def test_decided_pods_count_at_once_and_the_rest_gets_a_reason() -> None:
    """Each decision counts for the next one, and a pod without room gets a message."""
    scheduler = machine(node("a"), node("b"))
    for number in range(5):
        scheduler.put_pod(pod(f"p{number}"), 0.0)
    made = decisions(scheduler, 1.0)
    assert [type(decision) for decision in made] == [Bind] * 4 + [Unschedulable]
    assert sorted(decision.node_name for decision in made if isinstance(decision, Bind)) == ["a", "a", "b", "b"]
    assert isinstance(made[-1], Unschedulable)
    assert made[-1].message == "0/2 nodes are available: 2 Insufficient cpu."
    assert scheduler.in_flight == 4


def test_pods_of_other_schedulers_are_left_alone_but_their_requests_count() -> None:
    """Pods of other schedulers are not placed, and use their node's room."""
    scheduler = machine(node("a"))
    scheduler.put_pod(replace(pod("theirs"), scheduler_name="default-scheduler"), 0.0)
    assert decisions(scheduler, 0.0) == []
    scheduler.put_pod(replace(pod("theirs", 800), scheduler_name="default-scheduler", node_name="a"), 0.0)
    scheduler.put_pod(pod("ours"), 1.0)
    assert isinstance(scheduler.next(1.0), Unschedulable)


def test_a_failed_binding_frees_the_room_and_is_retried_after_a_backoff() -> None:
    """A pod that could not be bound no longer counts, and is tried again."""
    scheduler = machine(node("a"))
    scheduler.put_pod(pod("p", 900), 0.0)
    first = scheduler.next(0.0)
    assert isinstance(first, Bind)
    scheduler.not_bound(first.pod.uid, 0.5)
    assert scheduler.state.table.pod_counts.tolist() == [0]
    assert scheduler.next(1.4) is None
    assert scheduler.next_at() == 1.5
    assert isinstance(scheduler.next(1.5), Bind)


def test_a_bound_pod_counts_until_it_is_deleted() -> None:
    """Between the Binding and the watch the pod counts; its deletion requeues others."""
    scheduler = machine(node("a"))
    scheduler.put_pod(pod("p", 900), 0.0)
    scheduler.put_pod(pod("q", 900), 0.1)
    decision = scheduler.next(0.2)
    assert isinstance(decision, Bind)
    assert isinstance(scheduler.next(0.2), Unschedulable)
    scheduler.bound(decision.pod.uid)
    assert scheduler.in_flight == 0
    assert scheduler.state.table.pod_counts.tolist() == [1]  # before the watch shows it
    scheduler.put_pod(replace(decision.pod, node_name="a"), 1.0)
    scheduler.drop_pod(decision.pod.uid, 5.0)
    second = scheduler.next(5.0)
    assert isinstance(second, Bind)
    assert second.pod.name == "q"


def test_a_seen_binding_requeues_no_pod_that_lacks_room() -> None:
    """The watch event of our own Binding and a new status make no room; smaller requests do."""
    scheduler = machine(node("a"))
    scheduler.put_pod(pod("p", 900), 0.0)
    scheduler.put_pod(pod("q", 900), 0.1)
    assert [type(decision) for decision in decisions(scheduler, 0.2)] == [Bind, Unschedulable]
    bound = replace(pod("p", 900), node_name="a", scheduled_at=1.0)
    scheduler.bound(bound.uid)
    for seen in (bound, replace(bound, started_at=2.0)):
        scheduler.put_pod(seen, 20.0)
        assert decisions(scheduler, 20.0) == []
    scheduler.put_pod(replace(pod("p", 100), node_name="a", scheduled_at=1.0, started_at=2.0), 20.0)
    assert [type(decision) for decision in decisions(scheduler, 20.0)] == [Bind]


def test_a_pod_that_somebody_else_bound_is_not_bound_again() -> None:
    """A pod that another scheduler bound leaves the queue and our account."""
    scheduler = machine(node("a"), node("b", 2000))
    scheduler.put_pod(pod("p"), 0.0)
    scheduler.put_pod(replace(pod("p"), node_name="a"), 0.5)
    assert decisions(scheduler, 1.0) == []
    scheduler.put_pod(pod("q"), 1.0)
    decision = scheduler.next(1.0)
    assert isinstance(decision, Bind)
    other = {"a": "b", "b": "a"}[decision.node_name]
    scheduler.put_pod(replace(decision.pod, node_name=other), 2.0)
    scheduler.not_bound(decision.pod.uid, 2.1)  # our Binding gets a conflict
    assert scheduler.state.table.find(decision.pod)[0] == other  # type: ignore[index]
    assert decisions(scheduler, 100.0) == []


class Two(PermitPlugin):
    """Lets pods wait until there are two, and rejects those of negative priority."""

    name = "Two"

    def permit(self, pod: Pod, node_name: str, waiting: WaitingPods, now: float) -> Wait | Rejection | None:
        if pod.priority < 0:
            return Rejection("never")
        if not waiting.by_uid:
            return Wait(30.0)
        for uid in waiting.by_uid:
            waiting.allow(uid, self.name)
        return None


def test_pods_wait_for_each_other_or_time_out() -> None:
    """Waiting pods are prepared together, or rejected at their time-out, which may come before that of the others."""
    scheduler = machine(node("a"), permit=(Two(),), pre_bind=(OneVolume(),))
    scheduler.put_pod(pod("p"), 0.0)
    assert isinstance(scheduler.next(0.0), Waiting)
    assert scheduler.in_flight == 0
    assert scheduler.next(1.0) is None
    assert scheduler.next_at() == 30.0
    scheduler.put_pod(pod("q"), 2.0)
    assert [decision.pod.name for decision in decisions(scheduler, 2.0)] == ["q", "p"]
    scheduler.prepared("default/q", 2.0)

    scheduler.put_pod(pod("r", 100), 3.0)
    assert isinstance(scheduler.next(3.0), Waiting)
    assert scheduler.next_at() == 33.0
    late = scheduler.next(33.0)
    assert isinstance(late, Unschedulable)
    assert late.message == "Two did not permit the pod in time"
    assert not late.needs_room
    assert scheduler.state.table.pod_counts.tolist() == [2]


@pytest.mark.parametrize("bound", [False, True])
def test_a_waiting_pod_that_is_deleted_or_bound_waits_no_longer(*, bound: bool) -> None:
    """A pod that is deleted while it waits no longer counts; one that somebody binds to its node counts there."""
    scheduler = machine(node("a"), permit=(Two(),))
    scheduler.put_pod(pod("p"), 0.0)
    decision = scheduler.next(0.0)
    assert isinstance(decision, Waiting)
    if bound:
        scheduler.put_pod(replace(decision.pod, node_name="a"), 1.0)
    else:
        scheduler.drop_pod(decision.pod.uid, 1.0)
    assert scheduler.state.table.pod_counts.tolist() == [bound]
    assert not scheduler.waiting.by_uid
    assert scheduler.in_flight == 0
    assert scheduler.next_at() is None


def test_a_pod_that_permit_rejects_frees_its_room() -> None:
    """The decision has the plugin's reason, and says as the plugin does that no new node would help."""
    scheduler = machine(node("a"), permit=(Two(),))
    scheduler.put_pod(pod("p", priority=-1), 0.0)
    assert scheduler.next(0.0) == Unschedulable(pod("p", priority=-1), "never", needs_room=False)
    assert scheduler.state.table.pod_counts.tolist() == [0]


class OneVolume(ReservePlugin, PreBindPlugin):
    """A single volume, which is written to before binding."""

    name = "OneVolume"

    def __init__(self) -> None:
        self.held: str | None = None
        self.ready: bool | Rejection = False

    def reserve(self, pod: Pod, node_name: str) -> Rejection | None:
        if self.held is not None:
            return Rejection("the volume is taken")
        self.held = pod.uid
        return None

    def unreserve(self, pod: Pod, node_name: str) -> None:
        if self.held == pod.uid:
            self.held = None

    def pre_bind(self, pod: Pod, node_name: str) -> Sequence[Write]:
        return [Write("/volume", {"node": node_name})]

    def is_ready(self, pod: Pod, node_name: str) -> bool | Rejection:
        return self.ready


def test_a_pod_is_bound_once_the_effect_of_its_writes_is_visible() -> None:
    """The Binding follows the writes of PreBind plugins once they are ready."""
    volume = OneVolume()
    scheduler = machine(node("a"), reserve=(volume,), pre_bind=(volume,))
    scheduler.put_pod(pod("p"), 0.0)
    scheduler.put_pod(pod("q"), 0.0)
    prepare, refused = decisions(scheduler, 0.0)
    assert isinstance(prepare, Prepare)
    assert prepare.writes[0].body == {"node": "a"}
    assert isinstance(refused, Unschedulable)
    assert refused.message == "the volume is taken"
    assert scheduler.state.table.pod_counts.tolist() == [1]
    scheduler.prepared(prepare.pod.uid, 1.0)
    volume.ready = True
    bind = scheduler.next(1.1)
    assert isinstance(bind, Bind)
    assert bind.pod.name == "p"
    scheduler.put_pod(replace(bind.pod, node_name="a"), 1.2)  # the watch may be faster than the answer
    assert volume.held == bind.pod.uid


@pytest.mark.parametrize("answer", [Rejection("the volume failed"), False])
def test_a_preparation_that_fails_or_takes_too_long_frees_everything(answer: bool | Rejection) -> None:
    """A failed preparation gives back the reservation and the room."""
    volume = OneVolume()
    scheduler = machine(node("a"), reserve=(volume,), pre_bind=(volume,))
    scheduler.put_pod(pod("p"), 0.0)
    prepare = scheduler.next(0.0)
    assert isinstance(prepare, Prepare)
    scheduler.prepared(prepare.pod.uid, 1.0)
    volume.ready = answer
    failed = scheduler.next(601.0)
    assert isinstance(failed, Unschedulable)
    assert volume.held is None
    assert scheduler.state.table.pod_counts.tolist() == [0]


class Evict(PostFilterPlugin):
    """Preempts all pods of the first node."""

    name = "Evict"

    def post_filter(
        self,
        pod: Pod,
        nodes: NodeTable,
        verdicts: Mapping[str, FilterVerdict],
        now: float,
    ) -> Preemption | Rejection:
        return Preemption(nodes.names[0], nodes.pods(nodes.names[0]))


def test_the_room_of_preemption_is_kept_for_the_pod() -> None:
    """The nominated pod gets the room of its victims, not a pod of lower priority."""
    scheduler = machine(node("a"), post_filters=(Evict(),))
    victim = replace(pod("victim", 900), node_name="a")
    scheduler.put_pod(victim, 0.0)
    scheduler.put_pod(pod("high", 900, priority=10), 0.0)
    decision = scheduler.next(0.0)
    assert isinstance(decision, Unschedulable)
    assert decision.preemption == Preemption("a", (victim,))
    scheduler.put_pod(pod("high", 900, priority=10), 0.1)  # an update that does not show the nomination yet
    scheduler.put_pod(pod("low", 900), 0.2)
    assert isinstance(scheduler.next(0.2), Unschedulable)
    scheduler.drop_pod(victim.uid, 5.0)
    bound = [decision for decision in decisions(scheduler, 5.0) if isinstance(decision, Bind)]
    assert [decision.pod.name for decision in bound] == ["high"]


def test_a_pod_is_tried_again_in_case_its_victims_stay() -> None:
    """After ten seconds without an event: the requests that delete victims may have failed."""
    scheduler = machine(node("a"), post_filters=(Evict(),))
    victim = replace(pod("victim", 900), node_name="a")
    scheduler.put_pod(victim, 0.0)
    scheduler.put_pod(pod("high", 900, priority=10), 0.0)
    assert isinstance(scheduler.next(0.0), Unschedulable)
    assert scheduler.next(9.9) is None
    decision = scheduler.next(10.0)
    assert isinstance(decision, Unschedulable)
    assert decision.preemption == Preemption("a", (victim,))


class NotYet(PostFilterPlugin):
    """Cannot help; the answer says whether the pod's nomination ends."""

    name = "NotYet"

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends

    def post_filter(
        self,
        pod: Pod,
        nodes: NodeTable,
        verdicts: Mapping[str, FilterVerdict],
        now: float,
    ) -> Preemption | Rejection:
        return Rejection("no", ends_nomination=self.ends)


@pytest.mark.parametrize("ends", [True, False])
def test_a_nomination_lasts_until_preemption_cannot_help(*, ends: bool) -> None:
    """A pod that waits for its victims keeps the room; one that no preemption can help gives it up."""
    scheduler = machine(node("a"), post_filters=(NotYet(ends=ends),))
    scheduler.put_pod(replace(pod("victim", 900, terminating=True), node_name="a"), 0.0)
    scheduler.put_pod(pod("high", 900, priority=10, nominated_node_name="a"), 0.0)
    decision = scheduler.next(0.0)
    assert isinstance(decision, Unschedulable)
    assert decision.ends_nomination == ends
    assert scheduler.state.table.nominated_counts.tolist() == [0 if ends else 1]


def test_the_end_of_a_nomination_requeues_pods() -> None:
    """Room that is no longer kept for a pod is an event for the others."""
    post_filter = NotYet(ends=False)
    scheduler = machine(node("a"), post_filters=(post_filter,))
    large = pod("large", 1200, priority=10, nominated_node_name="a")
    scheduler.put_pod(large, 0.0)
    scheduler.put_pod(pod("small", 400), 0.0)
    assert [type(decision) for decision in decisions(scheduler, 0.0)] == [Unschedulable] * 2
    post_filter.ends = True
    scheduler.put_pod(replace(large, labels={"tier": "web"}), 20.0)
    refused = scheduler.next(20.0)
    assert isinstance(refused, Unschedulable)
    assert refused.pod.name == "large"
    assert scheduler.queue.counts == {"active": 1, "backoff": 0, "unschedulable": 1, "gated": 0}  # not large itself
    assert [each.pod.name for each in decisions(scheduler, 20.0)] == ["small"]
    assert scheduler.in_flight == 1


class Cool(FilterPlugin):
    """Refuses all nodes while they are hot."""

    name = "Cool"
    reads_metrics = True
    requeued_by = frozenset()

    def __init__(self) -> None:
        self.is_hot = True

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
        return FilterVerdict(np.full(len(nodes), not self.is_hot)[rows], "hot")


def test_metrics_requeue_only_the_pods_that_a_filter_refused_by_metrics() -> None:
    """A pod waits for the events of the filters that refused it, not for those of the profile's other filters."""
    cool = Cool()
    scheduler = machine(node("a"), filters=(Room(), cool))
    for name, millicores in (("large", 2000), ("small", 400)):
        scheduler.put_pod(pod(name, millicores), 0.0)
    assert len(decisions(scheduler, 0.0)) == 2
    cool.is_hot = False
    scheduler.use_load(MetricsTable.empty(scheduler.state.table))
    assert scheduler.queue.counts == {"active": 0, "backoff": 1, "unschedulable": 1, "gated": 0}
    assert isinstance(scheduler.next(20.0), Bind)


def test_a_pod_waits_for_the_first_node_and_for_known_requests() -> None:
    """Without any node, or only with nodes whose free room is not known, a pod is not tried again and again."""
    scheduler = machine(filters=(Room(), TaintToleration()))
    scheduler.put_pod(pod("p"), 0.0)
    assert isinstance(scheduler.next(0.0), Unschedulable)
    assert scheduler.next(20.0) is None
    scheduler.mark_unknown("a", 20.0, is_unknown=True)
    scheduler.put_node(node("a"), 20.0)
    refused = scheduler.next(20.0)
    assert isinstance(refused, Unschedulable)
    assert "1 nodes get no pods, because they have a pod whose requests are not known: a." in refused.message
    scheduler.mark_unknown("a", 40.0, is_unknown=False)
    assert isinstance(scheduler.next(40.0), Bind)


def test_nothing_is_placed_twice_or_lost_in_random_sequences() -> None:
    """Each pending pod is in exactly one state, and no node exceeds its room."""
    dice = random.Random(7)
    scheduler = machine(*[node(f"n{number}", 2000) for number in range(4)], permit=(Two(),))
    alive: dict[str, Pod] = {}  # as the API server has them
    asked: dict[str, Decision] = {}  # decisions without an outcome
    now = 0.0
    for step in range(1500):
        now += dice.random()
        action = dice.randrange(7)
        if action <= 1:
            new = pod(f"p{step}", dice.choice([100, 300, 700]), priority=dice.randrange(3))
            alive[new.uid] = new
            scheduler.put_pod(new, now)
        elif action == 2 and alive:
            uid = dice.choice(list(alive))
            del alive[uid]
            asked.pop(uid, None)
            scheduler.drop_pod(uid, now)
        elif action == 3 and asked:
            uid = dice.choice(list(asked))
            decision = asked.pop(uid)
            assert isinstance(decision, Bind)
            if dice.random() < 0.7:
                alive[uid] = replace(alive[uid], node_name=decision.node_name)
                if dice.random() < 0.5:
                    scheduler.put_pod(alive[uid], now)  # the watch may be faster than the answer
                scheduler.bound(uid)
                scheduler.put_pod(alive[uid], now)
            else:
                scheduler.not_bound(uid, now)
        elif action == 4 and dice.random() < 0.05:
            scheduler.replace_pods(alive.values(), now)
        else:
            for decision in decisions(scheduler, now):
                if isinstance(decision, Bind):
                    assert decision.pod.uid not in asked
                    assert not alive[decision.pod.uid].node_name
                    asked[decision.pod.uid] = decision
        table = scheduler.state.table
        assert (table.in_tree_requests("cpu") <= table.allocatable("cpu")).all()
        pending = {uid for uid, each in alive.items() if not each.node_name}
        waiting = set(scheduler.waiting.by_uid)
        queued = {uid for uid in pending if uid in scheduler.queue}
        assert pending == queued | (set(asked) & pending) | waiting
        assert len(queued) + len(asked) + len(waiting) == len(pending)
    assert sum(bool(each.node_name) for each in alive.values()) > 5


def test_nodes_may_join_after_the_metrics_came() -> None:
    """Metrics are aligned to the nodes of the moment of scoring."""
    scheduler = machine(node("a", 100))
    policy = FallbackPolicy()
    scheduler.use_load(policy.judge(scheduler.state.table, None, 0.0))
    for name in ("b", "c"):
        scheduler.put_node(node(name), 1.0)
    scheduler.put_pod(pod("p"), 1.0)
    decision = scheduler.next(1.0)
    assert isinstance(decision, Bind)
    assert decision.total is not None
