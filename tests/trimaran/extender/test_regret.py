"""Regret of placements: no bias if both nodes come from one policy, and only of pods that ran for a window."""

import random
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest
from support.extending import SettableMetrics, StaticView, extender_args, profiles, snapshot_of

from scoring import Pod
from trimaran.extender.answer import ScoredCandidates
from trimaran.extender.decisions.record import DecisionRecord
from trimaran.extender.placement_predictor import PlacementPredictor
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs
from watcher import wire
from watcher.model import WatcherMetrics
from watcher.wire import Dialect

NAMES = [f"node-{number}" for number in range(20)]
NOW = 1_800_000_000
STEP, WINDOW = 15, 300
CORES = 4000  # of a node, millicores
RESIDENTS, RESIDENT_REQUEST = 6, 400


class World:
    """Simulated cluster: a policy places pods, its recorded choice is a second draw of the same policy.

    Args:
        seed: seed of the load, of the pods, and of the tie-breaks.
        level: mean CPU use of pods as a share of their requests.
        request: CPU request of a pod, millicores.
        unlike: whether the pods are placed on the hottest node rather than by the policy.
    """

    def __init__(self, seed: int, level: float, request: int, *, unlike: bool = False) -> None:
        self.rng, self.now, self.level, self.request = np.random.default_rng(seed), NOW, level, request
        self.unlike = unlike
        self.view, self.metrics = StaticView(*NAMES), SettableMetrics(None)
        self.record = DecisionRecord(self.view, self.metrics, ExtenderTelemetry(), clock=lambda: self.now)
        self.second = PlacementPredictor(random.Random(1000 + seed))
        self.chosen = ""
        self.prioritizer = Prioritizer(
            profiles(), self.view, self.metrics, PrioritizerOptions(20, seed=seed), clock=lambda: self.now,
            is_active=lambda _: False, record=self.add,
        )  # fmt: skip
        self.use: dict[str, tuple[str, float, float]] = {}  # by uid: node, use, end
        self.noise = self.rng.normal(0, 1, len(NAMES))
        self.base = self.rng.normal(0, 1.5, len(NAMES))
        for number in range(RESIDENTS * len(NAMES)):
            self.bind(f"resident-{number}", NAMES[number % len(NAMES)], RESIDENT_REQUEST, NOW - 10_000, float("inf"))
        self.past = [self.loads() for _ in range(WINDOW // STEP)]

    def add(self, args: ExtenderArgs, answer: ScoredCandidates, best: str, active: bool) -> None:
        with self.view.reading() as table:
            self.chosen = self.second.predict(args.pod, None, answer, table)
        if self.unlike:
            self.chosen = NAMES[int(np.argmax(self.mean()))]
        self.record.add(args, answer, best, active)

    def bind(self, name: str, node: str, request: int, at: int, end: float) -> None:
        document = extender_args(pod=name, cpu=f"{request}m")["Pod"]
        document["spec"]["nodeName"] = node
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": iso(at)}
        document["status"] = {"phase": "Running", "conditions": [condition]}
        with self.view.lock:
            self.view.state.put_pod(Pod.from_k8s(document))
        share = self.level * self.rng.lognormal(-0.18, 0.6)  # of mean level
        self.use[f"uid-of-{name}"] = node, share * request, end

    def loads(self) -> np.ndarray[Any, Any]:
        """Advance the noise of each node by a step, and return its CPU use, percent."""
        self.noise = 0.95 * self.noise + self.rng.normal(0, 1, len(NAMES))
        used: Counter[str] = Counter()
        for node, amount, _ in self.use.values():
            used[node] += amount
        return np.array([100 * used[name] / CORES for name in NAMES]) + 5 + self.base + 0.5 * self.noise

    def mean(self) -> np.ndarray[Any, Any]:
        return np.mean(self.past[-WINDOW // STEP :], axis=0)

    def snapshot(self) -> WatcherMetrics:
        document = snapshot_of(dict(zip(NAMES, self.mean().tolist(), strict=True)), self.now)
        for node in document["data"].values():
            for metric in node["metrics"]:
                if metric["type"] == "Memory":
                    metric["value"] = 1.0 if metric["operator"] == "AVG" else 0.0
        return wire.decode(orjson.dumps(document), Dialect.DOCUMENTED)

    def run(self, pods: int, arrivals: float = 0.4) -> dict[str, Any]:
        """Place so many pods, measure their regrets, and return the regret table."""
        placed = 0
        while placed < pods or self.record.regrets()["waiting"]:
            for uid in [uid for uid, (_, _, end) in self.use.items() if end <= self.now]:
                self.view.state.drop_pod(uid, self.now)
                del self.use[uid]
            self.metrics.current = self.snapshot()
            self.record.run_cycle()
            if placed < pods and self.rng.random() < arrivals:
                placed += 1
                arguments = extender_args(*NAMES, pod=f"pod-{placed}", cpu=f"{self.request}m")
                self.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(arguments)))
                end = self.now + STEP * (1 + int(self.rng.exponential(1500) / STEP))
                self.bind(f"pod-{placed}", self.chosen, self.request, self.now, end)
                self.record.run_cycle()
            self.past.append(self.loads())
            self.now += STEP
        self.prioritizer.close()
        return self.record.regrets()


def iso(at: float) -> str:
    return np.datetime_as_string(np.datetime64(int(at), "s"), timezone="UTC")


def mean_regrets(worlds: int, level: float, request: int, *, unlike: bool = False) -> tuple[float, float, int]:
    """Return the mean regret over worlds, its standard error, and the number of pods on another node than our best."""
    rows = [World(seed, level, request, unlike=unlike).run(120)["schedulers"][0] for seed in range(worlds)]
    means = np.array([row["regret"] for row in rows])
    other = sum(row["pods"] - row["same_node"] for row in rows)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(worlds)), other


@pytest.mark.parametrize(("level", "request_milli"), [(0.2, 500), (1.0, 200)])
def test_two_seeds_of_one_policy_have_no_regret(level: float, request_milli: int) -> None:
    """The mean regret between two seeds of one policy is 0, also if pods request five times what they use."""
    mean, error, other = mean_regrets(6, level, request_milli)
    assert other > 100, "the two seeds hardly differ, so the test shows nothing"
    assert error < 0.25, "the test would not see a bias of a point"
    assert abs(mean) < 3.5 * error, f"mean regret {mean:+.3f} with a standard error of {error:.3f}"


def test_a_worse_choice_has_a_regret() -> None:
    """The regret is clearly above 0 if each pod goes to the hottest node."""
    (row,) = World(0, 0.2, 500, unlike=True).run(30)["schedulers"]
    assert row["regret"] > 3


@pytest.mark.parametrize(("left_at", "counted"), [(30, False), (200, False), (301, True), (302, True)])
def test_pods_that_end_before_their_window_are_left_out(left_at: int, counted: bool) -> None:
    """A pod counts if it ran until the end of the first window after its binding, even if it has ended since."""
    world = World(0, 0.2, 500, unlike=True)
    world.metrics.current = world.snapshot()
    world.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(extender_args(*NAMES))))
    world.bind("pod-1", world.chosen, 100, NOW, float("inf"))
    world.record.run_cycle()
    world.view.state.drop_pod("uid-of-pod-1", NOW + left_at)
    world.now = NOW + WINDOW
    world.metrics.current = world.snapshot()
    world.record.run_cycle()
    world.prioritizer.close()
    regrets = world.record.regrets()
    assert (sum(row["pods"] for row in regrets["schedulers"]), regrets["left_out"]) == (counted, not counted)


def test_pods_that_come_later_are_taken_out_of_both_loads() -> None:
    """A pod placed after the decision lowers its node's load by its expected use for its share of the window."""
    world = World(0, 0.2, 500, unlike=True)
    world.metrics.current = world.snapshot()
    world.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(extender_args(*NAMES))))
    world.bind("pod-1", world.chosen, 100, NOW, float("inf"))
    world.record.run_cycle()
    world.bind("later", world.chosen, 1000, NOW + 150, float("inf"))  # half of the window
    world.now = NOW + WINDOW
    world.metrics.current = snapshot = world.snapshot()
    world.record.run_cycle()
    world.prioritizer.close()
    percents = {name: node.metrics[0].value for name, node in snapshot.data.items()}
    requested = len(NAMES) * RESIDENTS * RESIDENT_REQUEST + 1100
    level = sum(percents.values()) / 100 * CORES / requested
    document = world.record.explain("default/pod-1")
    assert document is not None
    after = document["after"]
    assert after["chosen_percent"]["cpu"] == pytest.approx(percents[world.chosen] - 0.5 * 25 * level)
    assert after["best_percent"]["cpu"] == pytest.approx(percents[document["best"]["node"]] + 2.5 * level)
    assert after["estimate"] is True
