"""A controller of moves over a small cluster and an in-memory API, with clocks that a test sets."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.extending import metrics
from support.moving_api import MovingApi
from support.rebalancing import World, pod

from runtime.kubernetes.events import EventWriter
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.controller import Rebalancer, SearchSchedule
from trimaran.rebalancer.evictions import Evictor
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.measured_use import UseReader
from trimaran.rebalancer.mover import PodMover
from trimaran.rebalancer.reports import MoveReporter, RebalancerCounts
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules
from watcher.model import WatcherMetrics

RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1),
    cooldowns=Cooldowns(node=0, workload=0),
)  # fmt: skip


class Watch:
    """The watches of a world."""

    def __init__(self, world: World) -> None:
        self.world, self.age_seconds, self.is_synced = world, 0.0, True

    def node_names(self) -> tuple[str, ...]:
        return self.look(None, {}, (0.0, 0.0), 0.0).table.names

    def noted_pods(self) -> list[Any]:
        look = self.world.look()
        return [each.pod for each in look.all_members() if each.facts.is_noted]

    def look(self, use: Any, measured: Any, window: tuple[float, float], now: float) -> ClusterLook:
        look, is_read = self.world.look(), use is not None and len(use)
        return replace(look, now=now, **({"use": use, "measured": measured, "window": window} if is_read else {}))


class Controlled:
    """A rebalancer over a world, with a clock that a test sets.

    Attributes:
        api: the API.
        now: Unix time.
        term: term of the Lease; None without it.
        jump: seconds by which the clock is ahead of the seconds that passed.
        asked_pods: UIDs of pods that are gone, whose use was asked for last.
        watch: the watches.
        rebalancer: the controller.
    """

    def __init__(
        self,
        world: World,
        mode: str = "act",
        api: MovingApi | None = None,
        rules: MoveRules = RULES,
        trigger: Trigger = Trigger.TIME,
    ) -> None:
        self.world, self.api, self.rules = world, api or MovingApi(world), rules
        self.now, self.jump = world.now, 0.0
        self.asked_pods: set[str] = set()
        self.term: int | None = 1
        counts, acts = RebalancerCounts(), mode == "act"
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "trimaran", "name": "trimaran-rebalancer"}
        reporter = MoveReporter(EventWriter(self.api, "trimaran-rebalancer") if acts else None, reference)
        store = self.api.store

        def mover(look: Callable[[], ClusterLook], leads: Callable[[], bool]) -> PodMover:
            evictor = Evictor(self.api, 5)
            return PodMover(evictor, store, reporter, counts, rules, look, leads, lambda: self.now + self.jump)

        schedule = SearchSchedule(acts, (trigger,), 80.0, 60.0)
        use = UseReader(self, rules.max_age, lambda: self.now)
        self.watch = Watch(world)
        self.rebalancer = Rebalancer(
            self.watch, use, mover, store, reporter, counts, rules, schedule,  # type: ignore[arg-type]
            lambda: self.term, lambda: self.now + self.jump, lambda: self.now,
        )  # fmt: skip

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        del window
        return metrics(self.world.look().measured, self.now)

    def pod_history(self, nodes: Any, pods: Any = ()) -> Any:
        del nodes
        self.asked_pods = set(pods)
        return self.world.look().use

    def run(self, seconds: float = 60.0, cycles: int = 1) -> None:
        """Run cycles, each after some time."""
        for _ in range(cycles):
            self.now += seconds
            self.world.now = self.now
            self.rebalancer.run_cycle()

    def replace(self, name: str, on: str, *, ready: bool = True, **fields: Any) -> None:
        """Let a workload create a replacement, as its controller and the scheduler do."""
        of = name.rpartition("-")[0]
        at = self.now if ready else None
        self.world.pods.append(pod(f"{of}-new", on, of=of, created_at=self.now, ready_at=at, **fields))
        self.world.cores[f"{of}-new"] = 1.5
