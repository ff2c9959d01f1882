"""Hours of a small cluster's time in which a rebalancer meets drawn faults; every eviction is checked by true time."""

import random
from collections import Counter
from typing import Any

from support.controlling import Controlled
from support.moving_api import Answer, MovingApi
from support.rebalancing import NOW, World, deployment, node, pod

from trimaran.rebalancer.rules import BrakeRules, CapLimits, Cooldowns, MoveRules, NodeRules

RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100, per_hour=6), nodes=NodeRules(bad_looks=1),
    cooldowns=Cooldowns(node=0, workload=60, refusal=60), brake=BrakeRules(max_failures=20),
)  # fmt: skip
KINDS = (
    "stale", "frozen", "zero", "ten_times", "409", "429", "429_budget", "500", "broken", "unseen", "kill", "jump",
    "node_gone", "two_leaders", "silent_watch", "no_lease",
)  # fmt: skip
_WORKLOADS, _REPLICAS, _NODES = 10, 3, 4
_BUDGET = {"details": {"causes": [{"reason": "DisruptionBudget"}]}}
_ANSWERS: dict[str, Answer] = {
    "409": (409, {}, {}), "429": (429, {}, {}), "429_budget": (429, _BUDGET, {}), "500": (500, {}, {}),
    "broken": (0, {}, {}),
}  # fmt: skip


class _Killed(BaseException):
    """The process is killed."""


class FaultRun:
    """A rebalancer, a second one, and the controller and scheduler of the pods that it moves.

    Args:
        seed: seed of all draws.

    Attributes:
        faults: number of faults by kind.
        harm: what must not have happened.
        moves: evictions: true time, source, workload and lineage.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        names = [f"app-{number}" for number in range(_WORKLOADS)]
        places = [(name, number) for name in names for number in range(_REPLICAS)]
        pods = [
            pod(f"{name}-{number}", f"node-{index % _NODES}", of=name) for index, (name, number) in enumerate(places)
        ]
        self.world = World(
            [node(f"node-{number}") for number in range(_NODES)], pods,
            [deployment(name, _REPLICAS) for name in names], now=NOW,
        )  # fmt: skip
        self.api = MovingApi(self.world)
        self._send, self.api.send = self.api.send, self._checked  # type: ignore[method-assign]
        self._answer: Answer | None = None
        self._unseen, self._kill_after = False, -1
        self._lineage: dict[str, str] = {}
        self._vacant: list[tuple[str, str]] = []  # workload and lineage
        self._starting: dict[str, float] = {}
        self._count = 0
        self.faults: Counter[str] = Counter()
        self.harm: list[str] = []
        self.moves: list[tuple[float, str, str, str]] = []
        self.brakes = 0
        self.main, self.other = self._controlled(), self._controlled()

    def run(self, faults: int) -> None:
        """Play faults one after the other, each kind as often, and then an hour and a half without any."""
        for number in range(faults):
            if not number % 5:
                self._heat()
            if not number % len(KINDS):
                kinds = self._draw.sample(KINDS, len(KINDS))
            kind = kinds[number % len(KINDS)]
            self.faults[kind] += 1
            self._begin(kind)
            for _ in range(self._draw.randint(1, 4)):
                self._minute(two=kind == "two_leaders")
            self._end()
            for _ in range(self._draw.randint(1, 6)):
                self._minute()
        for _ in range(90):
            self._minute()
        ledger = self.api.ledger()
        self.harm += [f"left open: {each.name}" for each in ledger.open_records()]
        self.harm += [f"note left: {each.pod.name}" for each in self.world.look().all_members() if each.facts.is_noted]

    def _controlled(self) -> Controlled:
        made = Controlled(self.world, api=self.api, rules=RULES)
        made.now = self.world.now
        return made

    def _heat(self) -> None:
        """Let the pods of one node use much CPU, and those of the others little."""
        hot = self._draw.choice(self.world.nodes)["metadata"]["name"]
        of_node = [each for each in self.world.pods if each["spec"].get("nodeName") == hot]
        self.world.cores = {each["metadata"]["name"]: 7.4 / len(of_node) for each in of_node}

    def _begin(self, kind: str) -> None:
        world = self.world
        self._answer, self._unseen = _ANSWERS.get(kind), kind == "unseen"
        match kind:
            case "stale":
                world.use_age = 5000.0
            case "frozen":
                world.measured = dict(world.look().measured)
                self._heat()
            case "zero":
                world.measured = {each["metadata"]["name"]: 0.0 for each in world.nodes}
            case "ten_times":
                name = self._draw.choice(world.nodes)["metadata"]["name"]
                world.measured = {name: self._draw.choice((0.1, 10.0)) * world.look().measured[name]}
            case "kill":
                self._kill_after = self._draw.randint(0, 9)
            case "jump":
                self.main.jump = self._draw.choice((-172800.0, -7200.0, 7200.0, 172800.0))
            case "node_gone":
                self._remove_node()
            case "silent_watch":
                self.main.watch.age_seconds = 90.0
            case "no_lease":
                self.main.term = None

    def _remove_node(self) -> None:
        world, gone = self.world, self._draw.choice(self.world.nodes)
        for each in [each for each in world.pods if each["spec"].get("nodeName") == gone["metadata"]["name"]]:
            world.pods.remove(each)
            self._vacant.append((each["metadata"]["labels"]["app"], ""))
        world.nodes.remove(gone)

    def _end(self) -> None:
        self._answer, self._unseen, self._kill_after = None, False, -1
        self.world.use_age, self.world.measured = 60.0, {}
        self.main.jump, self.main.watch.age_seconds, self.main.term = 0.0, 0.0, 1
        present = {each["metadata"]["name"] for each in self.world.nodes}
        self.world.nodes += [node(f"node-{number}") for number in range(_NODES) if f"node-{number}" not in present]

    def _minute(self, *, two: bool = False) -> None:
        self.world.now += 60.0
        self._run_pods()
        for each in (self.main, self.other) if two else (self.main,):
            each.now = self.world.now
            try:
                each.rebalancer.run_cycle()
            except _Killed:
                self._kill_after = -1
                self.main = self._controlled()
        brake = self.api.ledger().brake
        if brake is not None and self.world.now - brake.at > 1800:
            self.brakes += 1
            store = self.api.store
            store.write(store.read().with_brake(None))

    def _run_pods(self) -> None:
        """Create, place and start replacements, as the controllers, the scheduler and the kubelets do."""
        world = self.world
        for name, ready_at in list(self._starting.items()):
            if ready_at <= world.now:
                del self._starting[name]
                for each in world.pods:
                    if each["metadata"]["name"] == name:
                        each["status"]["conditions"][-1] = {"type": "Ready", "status": "True"}
        for workload, lineage in self._vacant:
            self._count += 1
            name, on = f"{workload}-r{self._count}", self._draw.choice(world.nodes)["metadata"]["name"]
            world.pods.append(pod(name, on, of=workload, created_at=world.now, ready_at=None))
            self._starting[name] = world.now + self._draw.choice((0.0, 60.0, 120.0))
            self._lineage[name] = lineage or name
        self._vacant.clear()

    def _checked(self, method: str, path: str, *arguments: Any, **more: Any) -> Any:
        """Apply a request with the fault of the moment, and check an eviction."""
        if method != "GET":
            if self._kill_after == 0:
                raise _Killed
            self._kill_after -= self._kill_after > 0
        answer = self._answer if method != "GET" and "/configmaps" not in path else None
        self.api.fault = lambda _method, _path: answer
        before = len(self.api.evicted)
        if path.endswith("/eviction"):
            self._check_budget(path.split("/pods/")[1].partition("/")[0])
        found = self._send(method, path, *arguments, **more)
        if len(self.api.evicted) > before:
            self._check(self.world.gone[-1])
            if self._unseen:
                raise OSError("the answer is lost")
        return found

    def _check_budget(self, name: str) -> None:
        of = name.rpartition("-")[0]
        ready = sum(
            each["metadata"]["labels"]["app"] == of and each["status"]["conditions"][-1]["status"] == "True"
            for each in self.world.pods
        )
        if ready < _REPLICAS:
            self.harm.append(f"{name}: {ready} of {_REPLICAS} pods are Ready")

    def _check(self, gone: dict[str, Any]) -> None:
        now, caps = self.world.now, RULES.caps
        name, workload = gone["metadata"]["name"], gone["metadata"]["labels"]["app"]
        source, lineage = gone["spec"]["nodeName"], self._lineage.get(name, name)
        hour = [each for each in self.moves if now - each[0] < 3600]
        counts = (
            ("hour", len(hour), caps.per_hour),
            ("node", sum(each[1] == source for each in hour), caps.node_per_hour),
            ("workload", sum(each[2] == workload for each in hour), caps.workload_per_hour),
            ("lineage", sum(each[3] == lineage for each in hour), 1),
        )
        self.harm += [f"{name}: {kind} has {count} moves" for kind, count, most in counts if count >= most]
        self.moves.append((now, source, workload, lineage))
        self._vacant.append((workload, lineage))
