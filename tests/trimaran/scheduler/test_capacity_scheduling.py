"""CapacityScheduling: quotas of namespaces that lend each other what they do not use, and take it back."""

import copy
import random

import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, outcomes, pod, profile

from trimaran.scheduler.framework.decisions import Decision, Unschedulable

PROFILE = profile("CapacityScheduling", "preFilter", "postFilter", "reserve", without={"postFilter": ["*"]})


def quota(namespace: str, least: str, most: str = "", name: str = "quota", gpus: str = "") -> tuple[str, Object]:
    """Return an ElasticQuota over CPU, and GPUs if they are given, with plenty of memory."""
    spec = {"min": {"cpu": least, "memory": "1Ti", **({"example.com/gpu": gpus} if gpus else {})}}
    if most:
        spec["max"] = {"cpu": most}
    return "ElasticQuota", {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def cluster(*quotas: tuple[str, Object], cores: int = 8) -> Configured:
    return Configured(PROFILE, [node("n", str(cores))], quotas)


def asks(name: str, namespace: str, cpu: str = "1", priority: int = 0) -> Object:
    return pod(name, {"cpu": cpu}, priority, namespace=namespace)


def test_a_namespace_borrows_what_others_do_not_use() -> None:
    """Beyond its min, up to its max, and up to the sum of all min; the pod is held, since no node would help."""
    machine = cluster(quota("a", "1", "3"), quota("b", "3"))
    made = machine.place(*(asks(f"a{number}", "a", priority=-number) for number in range(4)))
    assert [made[f"a{number}"] for number in range(3)] == ["n"] * 3
    assert "elastic quota a/quota would exceed its max of cpu" in made["a3"]
    machine.put(asks("b0", "b", "2"))
    (refused,) = (each for each in machine.decide() if isinstance(each, Unschedulable) and each.pod.name == "b0")
    assert refused.preemption is not None  # takes back what a has borrowed


def test_the_sum_of_all_guarantees_is_never_exceeded() -> None:
    """Nobody borrows more than others leave; a pod without a quota is not counted."""
    machine = cluster(quota("a", "1"), quota("b", "2"))
    machine.put(asks("a0", "a", "3"), asks("a1", "a", priority=-1), asks("free", "other", "4", priority=-2))
    made = machine.decide()
    texts = outcomes(made)
    assert texts["a0"] == texts["free"] == "n"
    assert "the elastic quotas would exceed the sum of their min of cpu" in texts["a1"]
    (held,) = (each for each in made if isinstance(each, Unschedulable))
    assert not held.needs_room


def test_what_was_borrowed_is_taken_back_whatever_its_priority() -> None:
    """The victims are the least important pods of the borrower, no more than needed, and never one within its min."""
    machine = cluster(quota("a", "2"), quota("b", "2"))
    for number, priority in enumerate([9, 1, 5]):
        machine.put(asks(f"a{number}", "a", priority=priority), node="n")
    machine.put(asks("b0", "b", "2"))
    assert victims_of(machine.decide(), "b0") == ["a1"]
    machine.scheduler.drop_pod("a1", machine.now)
    assert outcomes(machine.decide(2.0)) == {"b0": "n"}


@pytest.mark.parametrize(("priority", "victims"), [(1, ["a0"]), (7, [])])
def test_beyond_its_guarantee_a_pod_preempts_only_in_its_own_namespace(priority: int, victims: list[str]) -> None:
    """Pods of lower priority of the same namespace leave for it, and none of other namespaces."""
    machine = cluster(quota("a", "1"), quota("b", "2"), cores=3)
    machine.put(asks("a0", "a", priority=priority), asks("b0", "b", "2"), node="n")
    machine.put(asks("a1", "a", priority=5))
    assert victims_of(machine.decide(), "a1") == victims


def test_pods_without_a_quota_preempt_only_each_other() -> None:
    """A pod of a namespace without a quota never takes from one with a quota, whatever the priorities."""
    machine = cluster(quota("a", "2"), cores=2)
    machine.put(asks("a0", "a", priority=-5), node="n")
    machine.put(asks("free", "other", priority=1), node="n")
    machine.put(asks("new", "more", priority=5))
    assert victims_of(machine.decide(), "new") == ["free"]


def test_a_resource_that_a_pod_does_not_request_never_keeps_it_back() -> None:
    """Upstream refuses all pods while the sum of any resource, such as GPUs, is above all guarantees."""
    machine = Configured(PROFILE, [node("n", resources={"example.com/gpu": "4"})], [quota("a", "4", gpus="1")])
    machine.put(pod("old", {"example.com/gpu": "2"}, namespace="a"), node="n")
    made = machine.place(asks("cpu", "a"), pod("gpu", {"example.com/gpu": "1"}, namespace="a"))
    assert made["cpu"] == "n"
    assert "example.com/gpu" in made["gpu"]


def test_a_resource_that_no_quota_guarantees_is_not_bounded() -> None:
    """Quotas of GPUs alone leave CPU, memory and ephemeral storage to all; a GPU beyond all of them is refused."""
    gpus = {"min": {"example.com/gpu": "1"}}
    quotas = [("ElasticQuota", {"metadata": {"namespace": name, "name": "quota"}, "spec": gpus}) for name in "ab"]
    machine = Configured(
        PROFILE, [node("n", "8", resources={"example.com/gpu": "4", "ephemeral-storage": "10Gi"})], quotas
    )
    requests = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "example.com/gpu": "1"}
    made = machine.place(*(pod(f"a{number}", requests, -number, namespace="a") for number in range(3)))
    assert (made["a0"], made["a1"]) == ("n", "n")
    assert "min of example.com/gpu" in made["a2"]


def test_only_what_a_pod_requests_is_taken_back() -> None:
    """A borrower of GPUs keeps CPUs within its min; else two such namespaces would preempt each other for ever."""
    machine = Configured(
        PROFILE,
        [node("n", "4", resources={"example.com/gpu": "4"})],
        [quota("a", "4", gpus="0"), quota("b", "4", gpus="4")],
    )
    requests = {"cpu": "1", "example.com/gpu": "1"}
    machine.put(*(pod(f"a{number}", requests, namespace="a") for number in range(4)), node="n")
    machine.put(asks("b-cpu", "b"))
    assert victims_of(machine.decide(), "b-cpu") == []
    machine.put(pod("b-gpu", requests, namespace="b"))
    assert len(victims_of(machine.decide(), "b-gpu")) == 1


def test_a_raised_quota_lets_the_pod_in() -> None:
    """A change of a quota tries the pods that it held, without a wait for the queue's own times."""
    machine = cluster(quota("a", "1"))
    assert "min of cpu" in machine.place(asks("big", "a", "2"))["big"]
    assert not machine.decide(1.0)
    machine.scheduler.put_other(*quota("a", "3"), machine.now)
    assert outcomes(machine.decide(10.0)) == {"big": "n"}


def test_assumed_pods_count() -> None:
    """A pod whose Binding has no answer yet counts; if the Binding fails, it does not."""
    machine = cluster(quota("a", "1"))
    assert machine.place(asks("first", "a"), asks("second", "a", priority=-1))["first"] == "n"
    machine.scheduler.not_bound("first", machine.now)
    machine.scheduler.drop_pod("first", machine.now)
    assert outcomes(machine.decide(10.0)) == {"second": "n"}


def victims_of(made: list[Decision], name: str) -> list[str]:
    """Return the victims of the preemption that was decided for a pod; none if there was no preemption."""
    (decision,) = (each for each in made if isinstance(each, Unschedulable) and each.pod.name == name)
    return [] if decision.preemption is None else [each.name for each in decision.preemption.victims]


def swapping(cores: int) -> Configured:
    """Return a cluster where a pod of ``a``, beyond its min, is about to replace another one."""
    machine = cluster(quota("a", "4"), quota("b", "4"), cores=cores)
    machine.put(*(asks(f"a{number}", "a", priority=number) for number in range(5)), node="n")
    machine.put(*(asks(f"b{number}", "b") for number in range(3)), node="n")
    machine.put(asks("a-urgent", "a", priority=9))
    assert victims_of(machine.decide(), "a-urgent") == ["a0"]
    machine.scheduler.drop_pod("a0", machine.now)
    return machine


def test_a_nominated_pod_that_borrows_keeps_no_guarantee_back() -> None:
    """Others may take what it will use beyond the min of its namespace."""
    machine = swapping(cores=9)
    assert machine.place(asks("b-last", "b"))["b-last"] == "n"


def test_a_pod_within_its_guarantee_takes_back_what_is_borrowed_while_it_waits() -> None:
    """The node has no room for it as long as a more important pod is nominated to it, and that one then borrows."""
    machine = swapping(cores=8)
    assert "preemption: 0/1 nodes are available" in machine.place(asks("b-last", "b"))["b-last"]
    made = machine.decide(1.0)
    assert outcomes(made)["a-urgent"] == "n"
    assert victims_of(made, "b-last") == ["a1"]


def test_pods_that_preempt_at_the_same_moment_choose_different_victims() -> None:
    """Also on different nodes, and only as many as were borrowed; a more important pod takes over a victim."""
    machine = Configured(PROFILE, [node("n", "2"), node("m", "2")], [quota("a", "2"), quota("b", "2")])
    for name in "nm":
        machine.put(*(asks(f"a-{name}{number}", "a") for number in range(2)), node=name)
    machine.put(*(asks(name, "b") for name in ("first", "second", "third")))
    made = machine.decide()
    first, second = victims_of(made, "first"), victims_of(made, "second")
    assert len(first) == len(second) == 1
    assert first != second
    assert victims_of(made, "third") == []
    machine.put(asks("urgent", "b", priority=5))
    assert victims_of(machine.decide(), "urgent") in (first, second)


def test_a_pod_whose_victims_are_leaving_chooses_no_others() -> None:
    """For ten seconds; if they are still there then, their deletion has failed, and they are chosen again."""
    machine = cluster(quota("a", "2"), quota("b", "2"), cores=4)
    machine.put(*(asks(f"a{number}", "a", priority=number) for number in range(4)), node="n")
    machine.put(asks("b0", "b"))
    assert victims_of(machine.decide(), "b0") == ["a0"]
    machine.scheduler.drop_pod("a1", machine.now)
    machine.put(asks("a4", "a", priority=9), node="n")
    message = outcomes(made := machine.decide(2.0))["b0"]
    assert message.endswith("preemption: not eligible due to victims that are being deleted.")
    assert victims_of(made, "b0") == []
    machine.put(asks("other", "other"))
    machine.scheduler.drop_pod("other", machine.now)
    machine.put(asks("a5", "a", priority=9), node="n")
    assert victims_of(machine.decide(20.0), "b0") == ["a2", "a0"]


def test_a_pod_whose_room_another_took_chooses_again_without_an_event() -> None:
    """The other one needs its victims no longer, so they may stay: ten seconds later they are chosen again."""
    machine = cluster(quota("a", "2"), quota("b", "2"), cores=4)
    machine.put(*(asks(f"a{number}", "a", priority=number) for number in range(4)), node="n")
    machine.put(asks("b0", "b"), asks("b1", "b"))
    made = machine.decide()
    assert victims_of(made, "b0") == ["a0"]
    assert victims_of(made, "b1") == ["a1", "a0"]
    machine.scheduler.drop_pod("a1", machine.now)  # and a0 stays: b0 gets the room of b1
    machine.put(asks("b0", "b"), node="n")
    assert outcomes(machine.decide(9.0)).keys() <= {"b1"}
    made = machine.decide(5.0)
    assert victims_of(made, "b1") == ["a0"]


@pytest.mark.parametrize("seed", [2, 3, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17])
def test_nodes_that_are_searched_together_have_the_same_victims_as_one_by_one(seed: int) -> None:
    """A pod with a host port depends on more than requests, so that its nodes are tried one after the other."""
    dice = random.Random(seed)
    least, names = dice.randint(6, 12), [f"n{number}" for number in range(4)]
    nodes = [node(name, "8") for name in names]
    running = [
        (asks(f"{namespace}{number}", namespace, dice.choice("123"), dice.randrange(3)), dice.choice(names))
        for namespace in "ac"
        for number in range(8)
    ]
    pending = asks("b0", "b", dice.choice("1234"), dice.randrange(3))
    with_port = copy.deepcopy(pending)
    with_port["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
    found = []
    for each in (pending, with_port):
        machine = Configured(PROFILE, nodes, [quota("a", "4"), quota("b", str(least)), quota("c", "12")])
        for pod_, name in running:
            machine.put(pod_, node=name)
        machine.put(each)
        found.append(victims_of(machine.decide(), "b0"))
    assert found[0] == found[1] != []


def test_terminating_pods_do_not_borrow() -> None:
    """Their namespace is within its min without them, so that no other pod of it leaves."""
    machine = cluster(quota("a", "2"), quota("b", "2"), cores=4)
    leaving = asks("a0", "a", priority=9)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    machine.put(leaving, *(asks(f"a{number}", "a") for number in range(1, 3)), node="n")
    machine.put(asks("b0", "b", "2"))
    assert victims_of(machine.decide(), "b0") == ["a0"]


def test_of_several_quotas_of_a_namespace_the_first_by_name_counts(caplog: pytest.LogCaptureFixture) -> None:
    """The others have no effect, and the log says so once for each."""
    machine = cluster(quota("a", "4", "1", "one"), quota("a", "4", "2", "two"))
    made = machine.place(asks("first", "a"), asks("second", "a", priority=-1))
    assert made["first"] == "n"
    assert "elastic quota a/one" in made["second"]
    machine.scheduler.put_other(*quota("b", "4"), machine.now)
    machine.place(asks("third", "b"))
    warned = [vars(record) for record in caplog.records if "has no effect" in record.message]
    assert [(each["quota"], each["counts"]) for each in warned] == [("a/two", "a/one")]


def test_sidecars_count() -> None:
    """A pod uses what its containers and its sidecars request together."""
    machine = cluster(quota("a", "3"))
    first = asks("first", "a")
    requests = {"requests": {"cpu": "2"}}
    first["spec"]["initContainers"] = [{"name": "sidecar", "restartPolicy": "Always", "resources": requests}]
    made = machine.place(first, asks("second", "a", priority=-1))
    assert made["first"] == "n"
    assert "min of cpu" in made["second"]


@pytest.mark.parametrize("bound", ["min", "max"])
def test_a_bound_that_is_no_amount_refuses_pods_that_request_it(bound: str) -> None:
    """The message names the bound; pods without such requests, and pods of other namespaces, pass."""
    kind, odd = quota("a", "4", "4")
    odd["spec"][bound]["cpu"] = "1e1.5"  # valid by the schema of the custom resource
    machine = cluster((kind, odd), quota("b", "1"))
    made = machine.place(asks("a", "a"), asks("b", "b"), pod("none", {"memory": "1Mi"}, namespace="a"))
    assert f"a/quota: spec.{bound}.cpu: " in made["a"]
    assert made["b"] == made["none"] == "n"
    assert machine.scheduler.unreadable_quotas.keys() == {"a/quota"}


@pytest.mark.parametrize(("most", "placed"), [("9E", 3), ("1e30", 3), ("0", 0), ("-1", 0)])
def test_any_amount_is_a_bound(most: str, placed: int) -> None:
    """Bounds saturate and may be negative, as the schema of the custom resource allows."""
    machine = cluster(quota("a", "9E", most))
    made = machine.place(*(asks(f"a{number}", "a") for number in range(3)))
    assert sum(each == "n" for each in made.values()) == placed


def test_a_bound_of_another_resource_does_not_end_a_quota() -> None:
    """A memory bound of 9E is a bound, so the CPU bound next to it holds."""
    kind, each = quota("a", "1", "1")
    each["spec"]["max"]["memory"] = "9E"
    made = cluster((kind, each)).place(asks("a0", "a"), asks("a1", "a", priority=-1))
    assert made["a0"] == "n"
    assert "max of cpu" in made["a1"]


def test_preemption_for_a_quota_survives_huge_amounts() -> None:
    """Victims whose requests exceed 64 bits together are found, and nothing wraps."""
    huge = pod("huge", {"example.com/x": "9E"}, -1, namespace="a")
    kind, each = quota("a", "8", "8")
    each["spec"]["max"]["example.com/x"] = "1"
    each["spec"]["min"]["example.com/x"] = "1"
    machine = Configured(PROFILE, [node("n", "8", resources={"example.com/x": "9E"})], [(kind, each)])
    machine.put(huge, {**copy.deepcopy(huge), "metadata": {**huge["metadata"], "name": "two", "uid": "two"}}, node="n")
    machine.put(pod("next", {"example.com/x": "1"}, namespace="a"))
    (decision,) = machine.decide()
    assert isinstance(decision, Unschedulable)


def test_it_has_no_arguments() -> None:
    """An argument is an error that names it."""
    wrong = profile("CapacityScheduling", "preFilter", args={"forgiving": True})
    with pytest.raises(ValueError, match="forgiving"):
        Configured(wrong, [])
