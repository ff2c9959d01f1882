"""Quotas while pods come, are bound and are preempted at random times, as on a busy cluster."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, pod, profile

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.decisions import Bind, Unschedulable

PROFILE = profile("CapacityScheduling", "preFilter", "postFilter", without={"postFilter": ["*"]})
CORES, STEP_SECONDS = 8, 0.1
SECONDS = 200.0  # less than the five minutes after which a pod is tried without an event
TIME = "2026-01-01T00:00:00Z"


class Churn:
    """Random cluster whose namespaces are guaranteed an equal part, and want more; pods have one core.

    Args:
        seed: seed of the cluster and of what happens there.
        failing: share of the deletions of victims that fail.
    """

    def __init__(self, seed: int, failing: float = 0.0) -> None:
        self.failing = failing
        self.dice = dice = random.Random(seed)
        count, self.names = dice.choice((1, 2, 4)), dice.choice(("ab", "abc"))
        self.least = count * CORES // len(self.names)
        self.most = dice.choice((self.least + 2, count * CORES))
        bounds = {"min": {"cpu": str(self.least), "memory": "1Ti"}, "max": {"cpu": str(self.most)}}
        quotas = [{"metadata": {"namespace": name, "name": "quota"}, "spec": bounds} for name in self.names]
        nodes = [node(f"node-{number}", str(CORES)) for number in range(count)]
        self.machine = Configured(PROFILE, nodes, [("ElasticQuota", each) for each in quotas])
        self.pods: dict[str, Object] = {}
        self.node_of: dict[str, str] = {}
        self.placed: set[str] = set()  # pods with a node, bound or not
        self.victims: Counter[str] = Counter()  # number of pods for which each leaves
        self.below: list[str] = []  # victims that left their namespace with less than its guarantee
        self._due: list[tuple[float, Callable[[], None]]] = []
        priorities = dice.choice(((0,), (0, 5), (0, 1, 2, 3, 4)))
        begins = 0.0
        for name in dice.sample(self.names, len(self.names)):
            for number in range(dice.choice((self.least, self.least + 4, count * CORES, 2 * count * CORES))):
                created = pod(f"{name}-{number}", {"cpu": "1"}, dice.choice(priorities), namespace=name)
                self._later(begins + dice.choice((0.0, 3.0)) * dice.random(), lambda made=created: self._create(made))
            begins += dice.choice((0.0, 0.0, 5.0, 20.0))

    def run(self) -> None:
        """Let the scheduler decide until nothing happens any more."""
        machine = self.machine
        while machine.now < SECONDS:
            for each in [each for each in self._due if each[0] <= machine.now]:
                self._due.remove(each)
                each[1]()
            for decision in machine.decide(STEP_SECONDS):
                if isinstance(decision, Bind):
                    self._bind(decision)
                elif isinstance(decision, Unschedulable) and decision.preemption is not None:
                    self._preempt(decision.pod, decision.preemption.victims)

    def running(self) -> Counter[str]:
        """Return the number of bound pods of each namespace."""
        return Counter(self.pods[uid]["metadata"]["namespace"] for uid in self.node_of)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((self.machine.now + seconds, act))

    def _create(self, made: Object) -> None:
        self.pods[made["metadata"]["uid"]] = made
        self.machine.put(made)

    def _bind(self, decision: Bind) -> None:
        """Report a little later that the pod is bound, or now and then that this failed."""
        uid, fails = decision.pod.uid, self.dice.random() < 0.07
        self.placed.add(uid)

        def end() -> None:
            if uid not in self.pods:
                return
            if fails:
                self.placed.discard(uid)
                self.machine.scheduler.not_bound(uid, self.machine.now)
                return
            self.node_of[uid] = decision.node_name
            self.machine.scheduler.bound(uid)
            self.machine.put(self.pods[uid], node=decision.node_name)

        self._later(self.dice.choice((0.0, 1.0, 3.0)) * self.dice.random(), end)

    def _preempt(self, by: Pod, victims: Sequence[Pod]) -> None:
        """Delete victims a little later; not if the pod has a node by then, and some deletions fail."""
        placed = [each.pod for _, each in self.machine.scheduler.state.table.placed_pods()]
        for each in victims:
            if each.uid not in self.victims and each.namespace != by.namespace:
                staying = sum(other.namespace == each.namespace and other.uid not in self.victims for other in placed)
                if staying <= self.least:
                    self.below.append(each.uid)
            self.victims[each.uid] += 1

        def send() -> None:
            for each in victims:
                if by.uid not in self.placed and self.dice.random() >= self.failing:
                    self._delete(each.uid)
                else:
                    self.victims -= Counter({each.uid: 1})

        self._later(self.dice.choice((0.0, 0.0, 0.5, 3.0)) * self.dice.random(), send)

    def _delete(self, uid: str) -> None:
        """Let a victim be terminating a little later, and gone after that."""

        def terminate() -> None:
            if uid in self.node_of:
                made = self.pods[uid]
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                metadata = {**made["metadata"], "deletionTimestamp": TIME}
                self.pods[uid] = {**made, "metadata": metadata, "status": {"conditions": [condition]}}
                self.machine.put(self.pods[uid], node=self.node_of[uid])

        def end() -> None:
            self.node_of.pop(uid, None)
            if self.pods.pop(uid, None) is not None:
                self.machine.scheduler.drop_pod(uid, self.machine.now)

        seen = self.dice.choice((0.5, 3.0)) * self.dice.random()
        self._later(seen, terminate)
        self._later(seen + self.dice.choice((0.0, 1.0, 3.0)) * self.dice.random(), end)


def check_guarantees(churn: Churn) -> None:
    """Check that no namespace waits within its guarantee, and that none is above its max or leaves room."""
    running = churn.running()
    waiting = Counter(each["metadata"]["namespace"] for uid, each in churn.pods.items() if uid not in churn.node_of)
    assert [name for name in churn.names if running[name] < churn.least and waiting[name]] == []
    assert max(running.values()) <= churn.most
    room = churn.least * len(churn.names) - running.total()
    assert room == 0 or not any(waiting[name] and running[name] < churn.most for name in churn.names)


@pytest.mark.parametrize("seed", [0, 5, 6, 9, 10, 11, 12, 13, 16, 17, 19, 23])
def test_each_namespace_gets_and_keeps_its_guarantee(seed: int) -> None:
    """No namespace waits within its guarantee or loses a pod of it, whatever is in progress; none is above its max.

    Whole nodes and equal pods, so that room is never split. Two pods that take back room at the same moment choose
    different victims, and a pod whose victims are leaving chooses no others.
    """
    churn = Churn(seed)
    churn.run()
    assert churn.victims
    assert churn.below == []
    check_guarantees(churn)


@pytest.mark.parametrize("seed", [8, 11, 32, 65, 79, 86, 107, 121, 128, 138, 198, 475])
def test_deletions_that_fail_leave_nobody_waiting(seed: int) -> None:
    """Each namespace gets its guarantee, though victims stay on which pods had counted."""
    churn = Churn(seed, failing=0.05)
    churn.run()
    check_guarantees(churn)
