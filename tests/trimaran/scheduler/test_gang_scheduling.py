"""Gangs in the scheduler: all of their pods get a node or none, and no gang keeps room from another for long."""

import random
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from support.scheduler_rooms import Room, decisions

from runtime.kubernetes.gangs import MIN_AVAILABLE_LABEL, NAME_LABEL, POD_GROUP_LABEL
from runtime.kubernetes.objects import Container as PodContainer
from runtime.kubernetes.objects import Node, Pod, ResourceList
from runtime.kubernetes.scheduling_rules import SchedulingRules
from scoring import NodeResourcesFit, Profile
from trimaran.scheduler.framework.decisions import Bind, Decision, Unschedulable, Waiting
from trimaran.scheduler.framework.extension_points import Rejection, ReservePlugin
from trimaran.scheduler.framework.gang_directory import GangDirectory
from trimaran.scheduler.framework.priority_sort import PrioritySort
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.plugins.gangs.coscheduling import Coscheduling, CoschedulingArgs
from trimaran.scheduler.plugins.scheduling_gates import SchedulingGates
from trimaran.scheduler.profiles.configuration import read_setup

COSCHEDULING, IN_TREE = "PodGroup.scheduling.x-k8s.io", "PodGroup"


def node(name: str, millicores: int) -> Node:
    amounts = ResourceList({"cpu": millicores, "memory": 1 << 30, "pods": 20})
    return Node(name, amounts, amounts)


def pod(name: str, gang: str = "", millicores: int = 1000, **fields: object) -> Pod:
    fields = {"labels": {POD_GROUP_LABEL: gang}, **fields} if gang else fields
    container = PodContainer(ResourceList({"cpu": millicores}))
    return Pod(name, containers=(container,), scheduler_name="ours", **fields)  # type: ignore[arg-type]


def member(name: str, gang: str, **fields: object) -> Pod:
    """Return a pod of an in-tree PodGroup."""
    return pod(name, scheduling=SchedulingRules(pod_group=gang), **fields)


def group(name: str, least: int, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": least, **spec}}


def in_tree_group(name: str, least: int) -> dict[str, object]:
    policy = {"gang": {"minCount": least}} if least else {"basic": {}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"schedulingPolicy": policy}}


def machine(cores: Iterable[int], *, in_order_of_pods: bool = False, **arguments: int) -> Scheduler:
    """Return a scheduler with nodes of some cores; each pod requests one core."""
    gangs = GangDirectory()
    plugin = Coscheduling(gangs, CoschedulingArgs(**arguments))
    profile = SchedulerProfile(
        replace(Profile.of(NodeResourcesFit()), scheduler_name="ours"), (Room(),),
        PrioritySort() if in_order_of_pods else plugin, (SchedulingGates(),), pre_filters=(plugin,), places_groups=True,
        post_filters=(plugin,), reserve=(plugin,), permit=(plugin,),
    )  # fmt: skip
    scheduler = Scheduler([profile], np.random.default_rng(0), gangs=gangs)
    scheduler.replace_nodes([node(f"n{number}", 1000 * each) for number, each in enumerate(cores)], 0.0)
    return scheduler


def bound(made: Iterable[Decision]) -> list[str]:
    return sorted(each.pod.name for each in made if isinstance(each, Bind))


def refusals(made: Iterable[Decision]) -> dict[str, Unschedulable]:
    return {each.pod.name: each for each in made if isinstance(each, Unschedulable)}


def put_gang(scheduler: Scheduler, least: int, pods: int, *, shrink: int = 0, **spec: object) -> None:
    """Add the gang a, and pods that request a core, each less than the one before if they shall not be alike."""
    scheduler.put_other(COSCHEDULING, group("a", least, **spec), 0.0)
    for number in range(pods):
        scheduler.put_pod(pod(f"a{number}", "a", 1000 - shrink * number), 0.0)


def test_a_gang_waits_until_it_is_complete() -> None:
    """Pods of an incomplete gang are held, not Unschedulable: no node would help. The last pod releases all."""
    scheduler = machine([4])
    put_gang(scheduler, 3, 2)
    held = refusals(decisions(scheduler, 0.0))
    assert held["a0"].message == "2 of 3 pods of gang default/a exist"
    assert not held["a0"].needs_room
    assert scheduler.next(100.0) is None
    scheduler.put_pod(pod("a2", "a"), 100.0)
    made = decisions(scheduler, 100.0)
    assert [type(each) for each in made[:2]] == [Waiting, Waiting]
    assert bound(made) == ["a0", "a1", "a2"]


def test_no_event_of_the_cluster_requeues_an_incomplete_gang() -> None:
    """Only what completes a gang wakes its pods; upstream tries them after every event of any pod."""
    scheduler = machine([4])
    put_gang(scheduler, 3, 1)
    scheduler.put_pod(pod("other", node_name="n0"), 0.0)
    assert len(decisions(scheduler, 0.0)) == 1
    scheduler.drop_pod("default/other", 20.0)
    scheduler.put_node(node("n0", 8000), 20.0)
    assert scheduler.queue.counts["unschedulable"] == 1
    scheduler.put_other(COSCHEDULING, group("a", 1), 21.0)
    assert bound(decisions(scheduler, 21.0)) == ["a0"]


def test_a_label_without_a_group_holds_the_pod_until_the_group_exists() -> None:
    """A missing PodGroup is a message, and its creation releases the pod at once."""
    scheduler = machine([4])
    scheduler.put_pod(pod("a0", "a"), 0.0)
    held = refusals(decisions(scheduler, 0.0))["a0"]
    assert (held.message, held.needs_room) == ("PodGroup default/a does not exist", False)
    scheduler.put_other(COSCHEDULING, group("a", 1, minResources={"cpu": "1e1.5"}), 0.5)
    assert "spec.minResources.cpu: not a quantity" in refusals(decisions(scheduler, 0.5))["a0"].message
    scheduler.put_other(COSCHEDULING, group("a", 1), 1.0)
    assert bound(decisions(scheduler, 1.0)) == ["a0"]


def test_a_gang_of_labels_needs_no_object() -> None:
    """The oldest labels state the least number of pods; a pod with an invalid number is held with the reason."""
    scheduler = machine([4])
    for number, least in enumerate(["2", "2"]):
        scheduler.put_pod(pod(f"b{number}", labels={NAME_LABEL: "b", MIN_AVAILABLE_LABEL: least}), 0.0)
    scheduler.put_pod(pod("c0", labels={NAME_LABEL: "c", MIN_AVAILABLE_LABEL: "x"}), 0.0)
    made = decisions(scheduler, 0.0)
    assert bound(made) == ["b0", "b1"]
    assert "must be a number of at least 1, got 'x'" in refusals(made)["c0"].message


def test_a_gang_that_does_not_fit_gives_its_room_to_the_next() -> None:
    """All its pods are Unschedulable, so that an autoscaler buys room for all, and the smaller gang runs at once."""
    scheduler = machine([2, 1])
    scheduler.put_other(COSCHEDULING, group("large", 4), 0.0)
    scheduler.put_other(COSCHEDULING, group("small", 3), 0.0)
    for number in range(4):
        scheduler.put_pod(pod(f"l{number}", "large", 1000 - number), 0.0)  # not alike, so that they are tried
    for number in range(3):
        scheduler.put_pod(pod(f"s{number}", "small"), 0.1)
    made = decisions(scheduler, 1.0)
    assert bound(made) == ["s0", "s1", "s2"]
    refused = refusals(made)
    assert refused.keys() == {"l0", "l1", "l2", "l3"}
    assert all(each.needs_room for each in refused.values())
    assert "Gang default/large gives up the nodes of 3 pods." in refused["l3"].message


def test_pods_share_the_failure_of_one_of_their_gang() -> None:
    """Once a pod of a gang has no node, the others are not tried one by one, and wait for the same events."""
    scheduler = machine([1])
    put_gang(scheduler, 4, 4, shrink=1)
    made = decisions(scheduler, 0.0)
    assert [type(each) for each in made] == [Waiting] + [Unschedulable] * 4
    shared = "gang default/a does not fit as a whole: default/a1 has no node"
    assert [refusals(made)[name].message for name in ("a0", "a2", "a3")] == [shared] * 3
    scheduler.put_node(node("n1", 3000), 20.0)
    assert bound(decisions(scheduler, 20.0)) == ["a0", "a1", "a2", "a3"]


def test_a_time_out_rejects_the_whole_gang() -> None:
    """All pods of a gang lose their nodes once the first has waited too long, and are held, not Unschedulable."""
    scheduler = machine([2], pod_group_reject_percentage=100)
    put_gang(scheduler, 3, 3, shrink=1, scheduleTimeoutSeconds=7)
    assert [type(each) for each in decisions(scheduler, 0.0)] == [Waiting, Waiting, Unschedulable]
    assert scheduler.next_at() == 7.0
    late = refusals(decisions(scheduler, 7.0))
    assert not late["a0"].needs_room
    assert not late["a1"].needs_room
    assert late["a2"].message == "gang default/a failed and is tried again in 1 s"
    assert scheduler.state.table.pod_counts.tolist() == [0]


def run_until_done(scheduler: Scheduler, seconds: float, step: float = 0.5) -> dict[str, float]:
    """Run a scheduler whose pods end 5 s after they are bound; return the time of each Binding by pod."""
    started: dict[str, float] = {}
    running: list[tuple[float, str]] = []
    for now in np.arange(0.0, seconds, step).tolist():
        for end, uid in [each for each in running if each[0] <= now]:
            running.remove((end, uid))
            scheduler.drop_pod(uid, now)
        for decision in decisions(scheduler, now):
            if isinstance(decision, Bind):
                scheduler.bound(decision.pod.uid)
                scheduler.put_pod(replace(decision.pod, node_name=decision.node_name), now)
                running.append((now + 5.0, decision.pod.uid))
                started[decision.pod.name] = now
        table = scheduler.state.table
        assert (table.in_tree_requests("cpu") <= table.allocatable("cpu")).all()
    return started


@pytest.mark.parametrize(
    ("timeout", "arguments"),
    [(20, {}), (3600, {"max_hold_seconds": 15})],
    ids=["time-out", "limit of holding"],
)
def test_two_gangs_that_fit_only_singly_are_both_done(timeout: int, arguments: dict[str, int]) -> None:
    """Gangs that have taken half of the room each do not wait for each other forever, whatever their time-out says."""
    scheduler = machine([4], in_order_of_pods=True, pod_group_reject_percentage=100, **arguments)
    for name in "ab":
        scheduler.put_other(COSCHEDULING, group(name, 4, scheduleTimeoutSeconds=timeout), 0.0)
    for number in range(4):
        for name in "ab":
            scheduler.put_pod(pod(f"{name}{number}", name), 0.01 * number)
    started = run_until_done(scheduler, 60.0)
    assert len(started) == 8
    times = {name: {at for pod_name, at in started.items() if pod_name[0] == name} for name in "ab"}
    assert all(len(each) == 1 for each in times.values())  # each gang starts as a whole
    assert times["a"] != times["b"]
    assert max(started.values()) <= 40.0


def test_a_gang_keeps_its_nodes_for_a_quarter_of_an_hour_at_most() -> None:
    """Whatever time a PodGroup states: its pods lose their nodes after 900 seconds, as in kube-scheduler."""
    scheduler = machine([1, 1, 1], pod_group_reject_percentage=50)
    scheduler.put_other(COSCHEDULING, group("a", 4, scheduleTimeoutSeconds=2**31 - 1), 0.0)
    for number, millicores in enumerate((1000, 1000, 1000, 2000)):
        scheduler.put_pod(pod(f"a{number}", "a", millicores), 0.0)
    waiting = [decision for decision in decisions(scheduler, 0.0) if isinstance(decision, Waiting)]
    assert len(waiting) == 3
    assert scheduler.waiting.next_at() == 900.0


def test_a_gang_that_failed_lets_the_others_go_first() -> None:
    """The queue orders gangs by the time of their last failure, so a large gang cannot block the rest."""
    scheduler = machine([3])
    key = scheduler.profiles["ours"].queue_sort.sort_key
    scheduler.put_other(COSCHEDULING, group("b", 4), 0.0)
    put_gang(scheduler, 4, 4)
    scheduler.put_pod(pod("b0", "b"), 1.0)
    assert key(pod("a0", "a"), 0.0) < key(pod("b0", "b"), 1.0)
    decisions(scheduler, 2.0)
    assert key(pod("a0", "a"), 0.0) > key(pod("b0", "b"), 1.0)


def test_the_backoff_holds_all_pods_of_a_gang_and_ends_by_itself() -> None:
    """After a failure the pods wait podGroupBackoffSeconds; upstream leaves them to the next flush of the queue."""
    scheduler = machine([3], pod_group_backoff_seconds=20)
    put_gang(scheduler, 4, 4)
    assert refusals(decisions(scheduler, 0.0)).keys() == {"a0", "a1", "a2", "a3"}
    scheduler.put_node(node("n0", 4000), 5.0)
    assert bound(decisions(scheduler, 19.9)) == []
    assert bound(decisions(scheduler, 20.0)) == ["a0", "a1", "a2", "a3"]


def test_min_resources_are_checked_before_any_pod_takes_room() -> None:
    """A gang whose minResources are not free takes no node, and its pods are Unschedulable."""
    scheduler = machine([2, 2])
    put_gang(scheduler, 2, 2, minResources={"cpu": "5"})
    made = decisions(scheduler, 0.0)
    assert [type(each) for each in made] == [Unschedulable] * 2
    assert refusals(made)["a0"].message == "gang default/a needs more cpu than is free"
    scheduler.put_node(node("n2", 1000), 30.0)
    assert bound(decisions(scheduler, 30.0)) == ["a0", "a1"]


@pytest.mark.parametrize(
    "fields",
    [{"node_name": "n0", "terminating": True}, {"scheduling": SchedulingRules(gates=("wait",))}],
    ids=["ending", "gated"],
)
def test_pods_that_end_or_are_gated_do_not_complete_a_gang(fields: dict[str, object]) -> None:
    """Upstream counts them: it starts a part of the new run, or lets pods take nodes that they must give up again."""
    scheduler = machine([8])
    put_gang(scheduler, 2, 1)
    scheduler.put_pod(pod("other", "a", **fields), 0.0)
    assert refusals(decisions(scheduler, 0.0))["a0"].message == "1 of 2 pods of gang default/a exist"


def test_a_gang_of_equal_pods_without_room_takes_no_node() -> None:
    """None of its pods is tried, all are Unschedulable with the room that there is, and more room lets it in."""
    scheduler = machine([2, 1])
    put_gang(scheduler, 4, 4)
    made = decisions(scheduler, 0.0)
    assert [type(each) for each in made] == [Unschedulable] * 4
    message = "gang default/a needs room for 4 pods, and there is room for 3"
    assert {each.message for each in refusals(made).values()} == {message}
    assert all(each.needs_room for each in refusals(made).values())
    assert not decisions(scheduler, 10.0)
    scheduler.put_node(node("n2", 1000), 20.0)
    assert bound(decisions(scheduler, 20.0)) == ["a0", "a1", "a2", "a3"]


def test_a_gang_that_may_preempt_is_tried() -> None:
    """A pod of lower priority may leave for it, so the room by requests alone does not decide."""
    scheduler = machine([2])
    scheduler.put_pod(pod("low", priority=-1, node_name="n0"), 0.0)
    put_gang(scheduler, 2, 2)
    assert Waiting in [type(each) for each in decisions(scheduler, 0.0)]


def test_an_approved_pod_is_due_at_once() -> None:
    """A replay, which asks for the next time, binds the whole gang in the minute in which its last pod gets a node."""
    scheduler = machine([3])
    put_gang(scheduler, 3, 3)
    made = []
    while (due_at := scheduler.next_at()) is not None and due_at < 1.0:
        made.append(scheduler.next(0.0))
    assert bound(filter(None, made)) == ["a0", "a1", "a2"]


def test_groups_of_kubernetes_are_placed_in_one_cycle_or_not_at_all() -> None:
    """No pod of a gang that does not fit counts afterwards, and a gang that fits is decided without a wait.

    Once too few pods are left to complete the gang, they are not tried.
    """
    scheduler = machine([2, 1])
    scheduler.put_other(IN_TREE, in_tree_group("g", 4), 0.0)
    for number, millicores in enumerate((1000, 1000, 3000, 1000)):
        scheduler.put_pod(member(f"g{number}", "g", millicores=millicores), 0.0)
    first = scheduler.next(0.0)
    assert isinstance(first, Unschedulable)
    assert first.needs_room
    expected = "gang default/g does not fit as a whole: 2 of the 4 pods it needs fit; default/g2 has no node: "
    assert first.message == f"{expected}2 Insufficient cpu"
    assert scheduler.state.table.pod_counts.tolist() == [0, 0]
    assert refusals(decisions(scheduler, 0.0)).keys() == {"g1", "g2", "g3"}
    scheduler.put_node(node("n2", 5000), 20.0)
    assert [type(each) for each in decisions(scheduler, 20.0)] == [Bind] * 4


class OnlyOne(ReservePlugin):
    """Has one of what pods need."""

    name = "OnlyOne"

    def __init__(self) -> None:
        self.taken = False

    def reserve(self, pod: Pod, node_name: str) -> Rejection | None:
        taken, self.taken = self.taken, True
        return Rejection("none is left") if taken else None

    def unreserve(self, pod: Pod, node_name: str) -> None:
        pass


def test_a_pod_beyond_the_least_number_may_be_refused() -> None:
    """The pods of a gang that got a node are bound, and another one is Unschedulable for its own reason."""
    scheduler = machine([4])
    scheduler.profiles["ours"] = replace(scheduler.profiles["ours"], reserve=(OnlyOne(),))
    scheduler.put_other(IN_TREE, in_tree_group("g", 1), 0.0)
    for number in range(2):
        scheduler.put_pod(member(f"g{number}", "g"), 0.0)
    made = decisions(scheduler, 0.0)
    assert bound(made) == ["g0"]
    assert refusals(made) == {"g1": Unschedulable(member("g1", "g"), "none is left")}
    assert scheduler.state.table.pod_counts.tolist() == [1]


def test_an_incomplete_group_of_kubernetes_is_held_and_a_basic_one_is_not() -> None:
    """As many pods as minCount says have to exist; pods of a group with the policy basic are placed one by one."""
    scheduler = machine([8])
    scheduler.put_other(IN_TREE, in_tree_group("g", 2), 0.0)
    scheduler.put_other(IN_TREE, in_tree_group("basic", 0), 0.0)
    for name in ("g", "basic", "missing"):
        scheduler.put_pod(member(f"{name}-0", name), 0.0)
    made = decisions(scheduler, 0.0)
    assert bound(made) == ["basic-0"]
    held = refusals(made)
    assert held["g-0"].message == "1 of 2 pods of gang default/g exist"
    assert held["missing-0"].message == "PodGroup default/missing does not exist"
    assert not any(each.needs_room for each in held.values())
    assert scheduler.next(100.0) is None
    scheduler.put_pod(member("g-1", "g"), 100.0)
    assert bound(decisions(scheduler, 100.0)) == ["g-0", "g-1"]


def test_a_gang_of_two_schedulers_is_left_alone() -> None:
    """A group with pods that another scheduler places is not ours to place in part."""
    scheduler = machine([8])
    scheduler.put_other(IN_TREE, in_tree_group("g", 2), 0.0)
    scheduler.put_pod(replace(member("theirs", "g"), scheduler_name="default-scheduler"), 0.0)
    scheduler.put_pod(member("ours", "g"), 0.0)
    made = decisions(scheduler, 0.0)
    assert refusals(made).keys() == {"ours"}
    assert refusals(made)["ours"].message == "default/theirs, of gang default/g, has another schedulerName"
    assert scheduler.state.table.pod_counts.tolist() == [0]


@pytest.mark.parametrize("in_tree", [False, True])
def test_no_gang_is_placed_in_part_in_random_sequences(*, in_tree: bool) -> None:
    """With pods that come, end and fail to be bound, a gang that starts does so with its least number of pods."""
    dice = random.Random(11)
    scheduler = machine([3, 3, 2], pod_group_reject_percentage=50, permit_waiting_time_seconds=4)
    kind, create = (IN_TREE, member) if in_tree else (COSCHEDULING, pod)
    alive: dict[str, Pod] = {}
    now, whole = 0.0, 0
    for step in range(400):
        now += dice.random()
        action = dice.randrange(6)
        if action == 0:
            least, name = dice.randrange(1, 5), f"g{step}"
            scheduler.put_other(kind, in_tree_group(name, least) if in_tree else group(name, least), now)
            for number in range(least + dice.randrange(2)):
                alive[f"default/{name}-{number}"] = create(f"{name}-{number}", name)
                scheduler.put_pod(alive[f"default/{name}-{number}"], now)
        elif action == 1 and alive:
            first = next(iter(alive)).rpartition("-")[0]
            for uid in [uid for uid in alive if uid.rpartition("-")[0] == first]:
                del alive[uid]
                scheduler.drop_pod(uid, now)
        else:
            made = [each for each in decisions(scheduler, now) if isinstance(each, Bind)]
            table = scheduler.state.table
            assert (table.in_tree_requests("cpu") <= table.allocatable("cpu")).all()
            for name in {each.pod.name.rpartition("-")[0] for each in made}:
                gang = scheduler._gangs.of(next(each.pod for each in made if each.pod.name.startswith(f"{name}-")))
                assert gang is not None
                running = sum(bool(alive[uid].node_name) for uid in gang.pods)
                new = sum(each.pod.name.startswith(f"{name}-") for each in made)
                assert running + new >= gang.min_members
                whole += 1
            for each in made:
                if dice.random() < 0.9:
                    scheduler.bound(each.pod.uid)
                    alive[each.pod.uid] = replace(each.pod, node_name=each.node_name)
                    scheduler.put_pod(alive[each.pod.uid], now)
                else:
                    scheduler.not_bound(each.pod.uid, now)
    assert whole > 20


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"podGroupRejectPercentage": 101}, "podGroupRejectPercentage: "),
        ({"permitWaitingTimeSeconds": -1}, "permitWaitingTimeSeconds: "),
        ({"kubeMaster": "x"}, "kubeMaster: "),
        ({"maxHoldSecond": 1}, r"maxHoldSecond: .* maxHoldSeconds\?"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], problem: str) -> None:
    """Arguments are checked as upstream checks them, and the message begins with the argument's path."""
    with pytest.raises(ValueError, match=rf"^args\.{problem}"):
        CoschedulingArgs.from_config(arguments, "args")


def test_arguments_have_upstream_names_and_defaults() -> None:
    """The arguments of upstream are read by their names."""
    read = CoschedulingArgs.from_config({"kind": "CoschedulingArgs", "podGroupBackoffSeconds": 5}, "profiles[0]")
    assert read == CoschedulingArgs(60, 5, 10, 60)


def configuration(**plugins: object) -> dict[str, object]:
    arguments = {"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 5}}
    profile = {"schedulerName": "ours", "plugins": plugins, "pluginConfig": [arguments]}
    version = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**version, "profiles": [profile]}


MULTI_POINT = {"enabled": [{"name": "Coscheduling"}, {"name": "GangScheduling"}]}


def test_upstreams_configuration_enables_both_plugins() -> None:
    """The configuration of upstream's documentation works, and both kinds of PodGroups are watched only then."""
    sort = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    setup = read_setup(configuration(multiPoint=MULTI_POINT, queueSort=sort))
    (profile,) = setup.profiles
    points = (profile.pre_filters, profile.permit, (profile.post_filters[-1],), (profile.reserve[-1],))
    assert all(plugins == (profile.queue_sort,) for plugins in points)
    assert profile.places_groups
    assert {IN_TREE, COSCHEDULING} <= setup.kinds
    assert not {IN_TREE, COSCHEDULING} & read_setup(configuration()).kinds

    scheduler = setup.scheduler(0)
    scheduler.put_node(node("n0", 4000), 0.0)
    put_gang(scheduler, 2, 2)
    assert bound(decisions(scheduler, 0.0)) == ["a0", "a1"]
