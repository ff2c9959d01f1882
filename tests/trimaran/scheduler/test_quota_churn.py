"""Quotas while pods come, are bound and are preempted at random times, as on a busy cluster."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, pod, profile

from trimaran.scheduler.decisions import Bind, Unschedulable

PROFILE = profile("CapacityScheduling", "preFilter", "postFilter", without={"postFilter": ["*"]})
CORES, STEP_SECONDS, SECONDS = (
    8,
    0.1,
    200.0,
)  # shorter than the five minutes after which a pod is tried without an event
TIME = "2026-01-01T00:00:00Z"


class Churn:
    """Random cluster whose namespaces are guaranteed an equal part, and want more; pods have one core."""

    def __init__(self, seed: int) -> None:
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
        self.victims: set[str] = set()
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
                    for victim in decision.preemption.victims:
                        self._preempt(decision.pod.namespace, victim.uid, victim.namespace)

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

        def end() -> None:
            if uid not in self.pods:
                return
            if fails:
                self.machine.scheduler.not_bound(uid, self.machine.now)
                return
            self.node_of[uid] = decision.node_name
            self.machine.scheduler.bound(uid)
            self.machine.put(self.pods[uid], node=decision.node_name)

        self._later(self.dice.choice((0.0, 1.0, 3.0)) * self.dice.random(), end)

    def _preempt(self, by: str, uid: str, namespace: str) -> None:
        """Let a victim be terminating a little later, and gone after that."""
        if uid not in self.victims and by != namespace:
            placed = [each.pod for _, each in self.machine.scheduler.state.table.placed_pods()]
            if sum(each.namespace == namespace and each.uid not in self.victims for each in placed) <= self.least:
                self.below.append(uid)
        self.victims.add(uid)

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
    running = churn.running()
    waiting = Counter(each["metadata"]["namespace"] for uid, each in churn.pods.items() if uid not in churn.node_of)
    assert [name for name in churn.names if running[name] < churn.least and waiting[name]] == []
    assert max(running.values()) <= churn.most
    room = churn.least * len(churn.names) - running.total()
    assert room == 0 or not any(waiting[name] and running[name] < churn.most for name in churn.names)
