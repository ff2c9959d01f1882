"""DefaultPreemption: who may preempt, which pods are victims, and which node is chosen."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from runtime.kubernetes.constraints import Taint, Toleration
from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from runtime.kubernetes.scheduling_rules import SchedulingRules
from runtime.kubernetes.workloads import Owner
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.feasibility import fitting
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import Preemption, Rejection
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions
from trimaran.scheduler.plugins.preemption.toleration import PreemptionToleration, PriorityClass

FULL = "Insufficient cpu"


class Room(FilterPlugin):
    """Free resources: a filter that depends on the sums over each node's own pods."""

    name = "Room"
    counts_nominated = True
    depends_on = Dependence.REQUESTS

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
        return FilterVerdict(fitting(pod, nodes.occupancy)[rows], FULL)


class RoomOfPods(Room):
    """The same filter, which does not promise to depend on sums only."""

    depends_on = Dependence.PODS


class Zone(FilterPlugin):
    """Nodes with the pod's node selector: a filter that depends on nodes only."""

    name = "Zone"
    depends_on = Dependence.NODES

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        if not pod.node_selector:
            return None
        allowed = [pod.node_selector.items() <= node.labels.items() for node in nodes.nodes]
        return unresolvable_everywhere(np.array(allowed)[rows], "other zone")


class Apart(FilterPlugin):
    """At most one pod of each color on a node: a filter that depends on the pods themselves."""

    name = "Apart"

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        color = pod.labels.get("color")
        if color is None:
            return None
        chosen = np.arange(len(nodes))[rows]
        colors = [{placed.pod.labels.get("color") for placed in nodes.placed_on(row)} for row in chosen.tolist()]
        return FilterVerdict(np.array([color not in each for each in colors]), "same color")


def node(name: str, cpu: int = 1000, **labels: str) -> Node:
    amounts = ResourceList({"cpu": cpu, "memory": 2**40, "pods": 20})
    return Node(name, amounts, amounts, labels=labels)


def pod(name: str, cpu: int, priority: int = 0, on: str = "", started: float | None = None, **fields: object) -> Pod:
    container = Container(requests=ResourceList({"cpu": cpu}))
    return Pod(name, containers=(container,), priority=priority, node_name=on, started_at=started, **fields)


@dataclass
class Case:
    """A cluster, and the attempt to make room in it."""

    table: NodeTable
    budgets: Sequence[DisruptionBudget] = ()
    filters: Sequence[FilterPlugin] = field(default_factory=lambda: [Zone(), Room(), Apart()])
    options: PreemptionOptions = field(default_factory=PreemptionOptions)

    def preempt(self, pending: Pod, seed: int = 0) -> Preemption | Rejection:
        result = run_filters(self.filters, pending, self.table)
        assert not result.feasible.any()
        plugin = DefaultPreemption(self.filters, lambda: self.budgets, random.Random(seed), self.options)
        version = self.table.version
        answer = plugin.post_filter(pending, self.table, result.verdicts, now=0.0)
        assert self.table.version == version
        return answer

    def victims(self, pending: Pod) -> tuple[str, list[str]]:
        answer = self.preempt(pending)
        assert isinstance(answer, Preemption), answer
        return answer.node_name, [victim.name for victim in answer.victims]


@pytest.mark.parametrize(
    ("pods", "cpu", "victims"),
    [
        ([pod("a", 400, 3, "n"), pod("b", 300, 2, "n"), pod("c", 300, 1, "n")], 200, ["c"]),
        ([pod("a", 400, 3, "n"), pod("b", 300, 2, "n"), pod("c", 300, 1, "n")], 500, ["b", "c"]),
        ([pod("big", 900, 3, "n"), pod("small", 100, 1, "n")], 800, ["big"]),  # the small one is too small
        ([pod("old", 500, 1, "n", 10.0), pod("young", 500, 1, "n", 20.0)], 500, ["young"]),  # the start decides
    ],
)
def test_the_fewest_and_least_important_pods_of_a_node_leave(pods: list[Pod], cpu: int, victims: list[str]) -> None:
    """Pods come back by priority, and then by start, as long as the pending pod fits."""
    assert Case(NodeTable([node("n")], pods)).victims(pod("p", cpu, 9)) == ("n", victims)


def test_pods_of_the_same_or_a_higher_priority_stay() -> None:
    """Without pods of lower priority the message says so."""
    answer = Case(NodeTable([node("n")], [pod("a", 1000, 9, "n")])).preempt(pod("p", 500, 9))
    text = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    assert answer == Rejection(text, needs_room=True, ends_nomination=True)


def test_nodes_where_preemption_cannot_help_are_no_candidates() -> None:
    """Nodes with an unresolvable refusal are not searched."""
    table = NodeTable([node("a", zone="x"), node("b", zone="y")], [pod("v", 1000, 0, "a"), pod("w", 1000, 0, "b")])
    assert Case(table).victims(pod("p", 500, 9, node_selector={"zone": "y"})) == ("b", ["w"])
    answer = Case(table).preempt(pod("p", 2000, 9, node_selector={"zone": "y"}))
    text = f"preemption: 0/2 nodes are available: 1 {FULL}, 1 Preemption is not helpful for scheduling."
    assert answer == Rejection(text, needs_room=True, ends_nomination=True)


def test_a_static_filter_after_the_first_refusal_still_excludes_a_node() -> None:
    """All filters must pass after the removal, not only the one that refused."""
    table = NodeTable([node("a", zone="x")], [pod("v", 1000, 0, "a")])
    answer = Case(table, filters=[Room(), Zone()]).preempt(pod("p", 500, 9, node_selector={"zone": "y"}))
    assert isinstance(answer, Rejection)
    assert "1 other zone" in answer.message


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([pod("a", 1000, 2, "left")], [pod("b", 1000, 1, "right")]),  # lowest highest priority
        ([pod("a", 500, 1, "left"), pod("a2", 500, 1, "left")], [pod("b", 1000, 1, "right")]),  # lowest sum, few pods
        ([pod("a", 500, -5, "left"), pod("a2", 500, -5, "left")], [pod("b", 1000, -5, "right")]),
        ([pod("a", 1000, 1, "left", 10.0)], [pod("b", 1000, 1, "right", 20.0)]),  # latest start
        ([pod("a", 1000, 1, "left", 10.0)], [pod("b", 1000, 1, "right")]),  # not started yet
    ],
)
def test_the_node_with_the_cheapest_victims_is_chosen(left: list[Pod], right: list[Pod]) -> None:
    """Highest priority, sum, number and start decide in this order."""
    case = Case(NodeTable([node("left"), node("right")], [*left, *right]))
    assert case.victims(pod("p", 1000, 9)) == ("right", [each.name for each in right])


def budget(allowed: int, **labels: str) -> DisruptionBudget:
    manifest = {
        "metadata": {"namespace": "default", "name": "budget"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return DisruptionBudget.from_k8s(manifest)


def test_a_node_without_violated_budgets_is_preferred() -> None:
    """Violated budgets count before priorities; disrupted pods are counted already."""
    pods = [pod("a", 1000, 1, "left", labels={"app": "x"}), pod("b", 1000, 5, "right")]
    case = Case(NodeTable([node("left"), node("right")], pods), [budget(0, app="x")])
    assert case.victims(pod("p", 1000, 9)) == ("right", ["b"])
    assert replace(case, budgets=[budget(1, app="x")]).victims(pod("p", 1000, 9)) == ("left", ["a"])
    assert replace(case, budgets=[replace(budget(0, app="x"), disrupted=frozenset({"a"}))]).victims(
        pod("p", 1000, 9)
    ) == ("left", ["a"])


def test_pods_whose_deletion_violates_a_budget_come_back_first() -> None:
    """Budgets decide between the pods of a node."""
    pods = [pod("guarded", 500, 1, "n", labels={"app": "x"}), pod("free", 500, 5, "n")]
    case = Case(NodeTable([node("n")], pods))
    assert case.victims(pod("p", 500, 9)) == ("n", ["guarded"])
    assert replace(case, budgets=[budget(0, app="x")]).victims(pod("p", 500, 9)) == ("n", ["free"])
    assert replace(case, budgets=[budget(0)]).victims(pod("p", 500, 9)) == ("n", ["guarded"])  # selects no pod here


def test_a_pod_that_must_not_preempt_does_not() -> None:
    """A pod with preemptionPolicy Never only waits."""
    pending = pod("p", 500, 9, scheduling=SchedulingRules(preempts=False))
    answer = Case(NodeTable([node("n")], [pod("a", 1000, 1, "n")])).preempt(pending)
    assert answer == Rejection("preemption: not eligible due to preemptionPolicy=Never.", needs_room=True)


def test_a_pod_waits_for_the_victims_on_its_nominated_node() -> None:
    """Only terminating pods that a scheduler preempted, of lower priority, make a pod wait."""
    leaving = pod("a", 900, 1, "n", terminating=True, preempted=True)
    pending = pod("p", 500, 9, nominated_node_name="n")
    case = Case(NodeTable([node("n"), node("m")], [leaving, pod("stays", 100, 1, "n"), pod("b", 1000, 1, "m")]))
    message = "preemption: not eligible due to a terminating pod on the nominated node."
    assert case.preempt(pending) == Rejection(message, needs_room=True)
    for other in (replace(leaving, preempted=False), replace(leaving, priority=9)):
        table = NodeTable([node("n"), node("m")], [other, pod("b", 1000, 0, "m")])
        assert Case(table).victims(pending) == ("m", ["b"])


def test_nominated_pods_of_at_least_the_same_priority_keep_their_room() -> None:
    """Nominated pods count by priority, and lower ones lose their nomination."""
    nominated = pod("first", 800, 9, nominated_node_name="n")
    case = Case(NodeTable([node("n"), node("m", 100)], [pod("a", 1000, 1, "n"), nominated]))
    assert isinstance(case.preempt(pod("p", 500, 9)), Rejection)
    assert case.victims(pod("p", 500, 10)) == ("n", ["a"])
    answer = case.preempt(pod("p", 500, 10))
    assert isinstance(answer, Preemption)
    assert [each.name for each in answer.cleared] == ["first"]


def test_pods_and_nominated_nodes_of_other_schedulers_are_spared_unless_a_setting_allows_it() -> None:
    """only_own covers victims and nominated nodes."""
    foreign = pod("a", 1000, 1, "n", scheduler_name="other")
    case = Case(NodeTable([node("n")], [foreign]))
    everything = PreemptionOptions(only_own=False)
    assert isinstance(case.preempt(pod("p", 500, 9)), Rejection)
    assert replace(case, options=everything).victims(pod("p", 500, 9)) == ("n", ["a"])
    nominated = pod("b", 100, 0, nominated_node_name="n", scheduler_name="other")
    case = Case(NodeTable([node("n")], [pod("a", 1000, 1, "n"), nominated]))
    assert isinstance(case.preempt(pod("p", 500, 9)), Rejection)
    assert replace(case, options=everything).victims(pod("p", 500, 9)) == ("n", ["a"])


def test_shared_nodes_are_spared_by_an_option() -> None:
    """A node is shared if nothing keeps other schedulers' pods away, or if one of them is there."""
    dedicated, condition = Taint("dedicated", "ours"), Taint("node.kubernetes.io/not-ready")
    nodes = [replace(node(name), taints=(taint,)) for name, taint in (("n", dedicated), ("m", condition))]
    tolerations = (Toleration(operator="Exists"),)
    pending = replace(pod("p", 500, 9), tolerations=tolerations)
    table = NodeTable(nodes, [pod("a", 1000, 1, "n"), pod("b", 1000, 0, "m")])
    case = Case(table, options=PreemptionOptions(on_shared_nodes=False))
    assert Case(table).victims(pending) == ("m", ["b"])
    assert case.victims(pending) == ("n", ["a"])
    plugin = DefaultPreemption(case.filters, lambda: (), random.Random(0), case.options)
    foreign = pod("c", 0, 9, "n", scheduler_name="other")
    for other, has_room in ((foreign, False), (replace(foreign, owner=Owner("DaemonSet", "d")), True)):
        table.add(other)
        answer = plugin.post_filter(pending, table, run_filters(case.filters, pending, table).verdicts, 0.0)
        assert isinstance(answer, Preemption) == has_room
        if isinstance(answer, Rejection):
            assert "2 node(s) are shared with other schedulers, where preemption is off" in answer.message


@pytest.mark.parametrize(("percent", "least"), [(20, 1), (0, 2)])
def test_the_search_ends_after_enough_candidates(percent: int, least: int) -> None:
    """The search begins at a drawn node and ends after the wanted number of candidates."""
    pods = [pod(f"v{number}", 1000, number, f"n{number}") for number in range(10)]
    arguments = FieldReader("args", {"minCandidateNodesPercentage": percent, "minCandidateNodesAbsolute": least})
    options = PreemptionOptions.from_config(arguments, on_shared_nodes=True)
    case = Case(NodeTable([node(f"n{number}") for number in range(10)], pods), options=options)
    chosen = {case.preempt(pod("p", 500, 99), seed).node_name for seed in range(40)}
    # Two neighbors are looked at, the cheaper one is taken; the last of the circle has the first as its neighbor.
    assert chosen == {f"n{number}" for number in range(9)}


def test_a_plugin_sees_the_changes_between_two_attempts() -> None:
    """The remembered lowest priorities follow pods and nodes."""
    table = NodeTable([node("a"), node("b")], [pod("v", 1000, 9, "a"), pod("w", 1000, 9, "b")])
    case, pending = Case(table), pod("p", 500, 9)
    plugin = DefaultPreemption(case.filters, lambda: (), random.Random(0))

    def attempt() -> object:
        answer = plugin.post_filter(pending, table, run_filters(case.filters, pending, table).verdicts, 0.0)
        return answer.node_name if isinstance(answer, Preemption) else answer.message

    assert attempt() == "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    table.add(pod("w", 1000, 8, "b"))
    assert attempt() == "b"
    table.add(pod("w", 1000, 9, "b"))
    assert isinstance(attempt(), str)
    table.remove_nodes(["a"])
    table.add_nodes([node("c")])
    table.add(pod("u", 1000, 1, "c"))
    assert attempt() == "c"


@pytest.mark.parametrize(
    "options",
    [{"min_candidate_percent": 101}, {"min_candidates": -1}, {"min_candidate_percent": 0, "min_candidates": 0}],
)
def test_wrong_options_name_the_argument(options: Mapping[str, int]) -> None:
    """An invalid argument is named as in the configuration file."""
    with pytest.raises(ValueError, match="minCandidateNodes"):
        PreemptionOptions(**options)


@pytest.mark.parametrize(
    ("annotations", "priority", "now", "may_leave"),
    [
        ({}, 5, 100.0, True),  # without annotations, no time
        ({"toleration-seconds": "10"}, 5, 109.0, False),
        ({"toleration-seconds": "10"}, 5, 110.0, True),
        ({"toleration-seconds": "-1"}, 5, 1e9, False),
        ({"toleration-seconds": "-1"}, 6, 1e9, True),
        ({"toleration-seconds": "-1", "minimum-preemptable-priority": "3"}, 3, 1e9, True),
    ],
)
def test_a_priority_class_protects_its_pods_for_a_time(
    annotations: Mapping[str, str], priority: int, now: float, may_leave: bool
) -> None:
    """Pods are spared by preemptors up to the value of the class, or below the annotated priority."""
    prefixed = {f"preemption-toleration.scheduling.x-k8s.io/{key}": text for key, text in annotations.items()}
    found = PriorityClass.from_k8s({"metadata": {"annotations": prefixed}, "value": 5})
    plugin = PreemptionToleration((), list, random.Random(0), PreemptionOptions(), {"c": found}.get, lambda: now)
    other = pod("a", 100, 1, "n", priority_class="c", scheduled_at=100.0)
    assert plugin.may_be_victim(other, pod("p", 100, priority)) == may_leave


def draw(dice: random.Random) -> tuple[Case, Pod]:
    """Return a small cluster with full nodes, budgets and nominations, and a pending pod that fits nowhere."""
    nodes = [node(f"n{number}", dice.choice([1000, 2000])) for number in range(dice.randint(1, 6))]
    pods: list[Pod] = []
    for each in nodes:
        for _ in range(dice.randint(0, 8)):
            labels = {"app": dice.choice("xyz"), "color": dice.choice("rgb")} if dice.random() < 0.8 else {}
            started = dice.choice([None, *(float(second) for second in range(30))])
            priority, name = dice.randint(-2, 6), f"v{len(pods)}"
            scheduler = "other" if dice.random() < 0.05 else "default-scheduler"
            one = pod(name, dice.randint(1, 7) * 100, priority, each.name, started, labels=labels)
            pods.append(replace(one, scheduler_name=scheduler))
    nominated = [
        pod(f"w{number}", 200, dice.randint(0, 6), nominated_node_name=dice.choice(nodes).name)
        for number in range(dice.randint(0, 2))
    ]
    budgets = [budget(dice.randint(0, 2), app=app) for app in "xy"]
    color = {"color": dice.choice("rgb")} if dice.random() < 0.5 else {}
    pending = pod("p", dice.randint(5, 20) * 100, dice.randint(0, 6), labels=color)
    return Case(NodeTable(nodes, [*pods, *nominated]), budgets), pending


def fits(each: Node, pending: Pod, present: list[Pod], guests: list[Pod]) -> bool:
    """Return whether a pod fits a node, with the pods that are nominated to it and without."""
    for others in (present, [*present, *guests]):
        cpu = sum(one.containers[0].requests["cpu"] for one in [*others, pending])
        color = pending.labels.get("color")
        same = color is not None and any(one.labels.get("color") == color for one in others)
        if cpu > each.allocatable["cpu"] or same or len(others) >= 20:
            return False
    return True


def violating(movable: list[Pod], budgets: Sequence[DisruptionBudget]) -> list[Pod]:
    """Return the pods beyond the budgets; each budget selects one app, so no pod has two."""
    found = []
    for each in budgets:
        covered = [one for one in movable if one.labels.get("app") == each.selector.requirements[0].values[0]]
        found += covered[each.disruptions_allowed :]
    return [one for one in movable if one in found]


def slowly(case: Case, pending: Pod) -> dict[str, tuple[list[Pod], int]]:
    """Return victims and violations by node, by the definition, over plain lists."""
    result = {}
    nominations = case.table.occupancy.nominated.values()
    for each in case.table.nodes:
        guests = [other for name, other in nominations if name == each.name and other.priority >= pending.priority]
        pods = case.table.pods(each.name)
        movable = [one for one in pods if one.priority < pending.priority and one.scheduler_name != "other"]
        movable.sort(key=lambda one: (-one.priority, 1e9 if one.started_at is None else one.started_at))
        beyond = violating(movable, case.budgets)
        present, victims = [one for one in pods if one not in movable], []
        if not fits(each, pending, present, guests):
            continue
        for one in [*beyond, *(one for one in movable if one not in beyond)]:
            (present if fits(each, pending, [*present, one], guests) else victims).append(one)
        if victims:
            victims.sort(key=movable.index)
            result[each.name] = victims, sum(one in beyond for one in victims)
    return result


def cost(victims: list[Pod], number_violating: int) -> tuple[float, ...]:
    """Return what kube-scheduler compares, in its order."""
    most = max(one.priority for one in victims)
    earliest = min(1e9 if one.started_at is None else one.started_at for one in victims if one.priority == most)
    return number_violating, most, sum(one.priority + 2**31 for one in victims), len(victims), -earliest


@pytest.mark.parametrize("room", [Room, RoomOfPods])
def test_drawn_clusters_have_the_victims_of_the_definition(room: type[Room]) -> None:
    """Victims and choice equal those of a slow implementation over plain lists."""
    drawn = preempted = 0
    for seed in range(200):
        dice = random.Random(seed)
        case, pending = draw(dice)
        case.filters = [Zone(), room(), Apart()]
        if run_filters(case.filters, pending, case.table).feasible.any():
            continue
        drawn += 1
        expected, answer = slowly(case, pending), case.preempt(pending)
        if isinstance(answer, Rejection):
            assert not expected, seed
            continue
        preempted += 1
        assert list(answer.victims) == expected[answer.node_name][0], seed
        costs = {name: cost(*found) for name, found in expected.items()}
        assert costs[answer.node_name] == min(costs.values()), seed
    assert drawn > 50
    assert preempted > 25


def test_a_late_watch_costs_no_further_victims() -> None:
    """For a minute, while the victims look as before, the answer stays the same, even if others are cheaper by then."""
    table = NodeTable([node("n"), node("m")], [pod("a", 900, 1, "n"), pod("b", 900, 1, "m")])
    filters = [Room()]
    plugin = DefaultPreemption(filters, lambda: (), random.Random(0), PreemptionOptions())

    def attempt(pending: Pod, now: float) -> Preemption | Rejection:
        return plugin.post_filter(pending, table, run_filters(filters, pending, table).verdicts, now)

    first = attempt(pod("p", 500, 9), 0.0)
    assert isinstance(first, Preemption)
    nominated = replace(pod("p", 500, 9), nominated_node_name=first.node_name)
    table.add_nodes([node("cheaper")])
    table.add(pod("c", 900, 0, "cheaper"))
    for now in (10.0, 20.0, 30.0, 40.0, 50.0, 59.0):
        assert attempt(nominated, now) == first
    assert attempt(nominated, 60.0).node_name == "cheaper"
    (victim,) = first.victims
    table.assume(replace(victim, terminating=True, preempted=True), first.node_name)
    assert isinstance(attempt(nominated, 61.0), Rejection)  # it waits for its victim
