"""The extender with a stock kube-scheduler: scores, choices, bursts and outages."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_plane.api import Object, names, path_of
from control_plane.cluster import ControlPlane
from control_plane.extender import Extender
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Attempt
from control_plane.shapes import RUNTIME_CLASS, SHAPES, nodes
from support.ports import nowhere
from support.servers import Service, wait_until

import client
from scoring import FallbackPolicy, MetricsTable, NodeTable, Pod
from trimaran.extender.answer import NEUTRAL
from trimaran.extender.kube_scheduler import in_tree_by_scheduler
from trimaran.extender.profiles import ANSWER_FACTOR, Profiles

pytestmark = pytest.mark.e2e

NODES = 100
PODS = 6 * len(SHAPES)
BURST = 500
PATIENT: Mapping[str, Any] = {
    "extender__deadline_seconds": 5,
    "extender__max_age_seconds": 3600,
    "extender__seed": 1,
}
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "balancing",
            "plugins": {"score": {"enabled": [{"name": "LoadVariationRiskBalancing", "weight": 3}]}},
            "pluginConfig": [{"name": "LoadVariationRiskBalancing", "args": {"safeVarianceSensitivity": 2}}],
        },
        {
            "schedulerName": "packing",
            "plugins": {"score": {"enabled": [
                {"name": "TargetLoadPacking", "weight": 2}, {"name": "LowRiskOverCommitment", "weight": 1},
            ]}},
        },
        {"schedulerName": "default-scheduler"},
    ],
}  # fmt: skip
SCHEDULERS = ("balancing", "packing", "default-scheduler")


def watching(watch: Callable[..., Service], folder: Path, loads: Mapping[str, Any]) -> str:
    """Start a watcher that fetches only once during the test; return its address."""
    file = folder / "loads.json"
    file.write_text(json.dumps(loads))
    frozen = {"TRIMARAN_FAKE__FILE": str(file), "TRIMARAN_WATCH__EXPIRY_SECONDS": "3600"}
    service = watch("--provider", "Fake", "--interval", "3000", **frozen)
    service.wait_for("/readyz")
    return service.url


def varied_loads(dice: random.Random) -> Mapping[str, Any]:
    """Return random loads, from idle to full and from constant to strongly varying."""
    return {
        f"node-{number}": {
            kind: {"average": dice.uniform(0, 100), "deviation": dice.choice((0, dice.uniform(0, 30)))}
            for kind in ("cpu", "memory")
        }
        for number in range(NODES)
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    with ControlPlane(tmp_path) as cluster:
        yield cluster


def is_bound(cluster: ControlPlane, created: Object) -> bool:
    return bool(cluster.api.get(path_of(created))["spec"].get("nodeName"))


def all_bound(cluster: ControlPlane) -> bool:
    return all(each["spec"].get("nodeName") for each in cluster.api.items("/api/v1/pods"))


def test_scores_and_choices_follow_the_profile(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The extender's logged scores equal scores computed from the API; the best node is chosen, and was assumed."""
    dice = random.Random(12)
    cluster.api.create(RUNTIME_CLASS)
    cluster.api.create(*nodes(dice, NODES))
    watcher = watching(watch, tmp_path, varied_loads(dice))
    with Extender(cluster, CONFIGURATION, watcher, **PATIENT) as extender, extender.scheduler("10s") as scheduler:
        scored = 0
        for number in range(PODS):
            manifest = SHAPES[number % len(SHAPES)](dice, f"pod-{number}")
            manifest["spec"]["schedulerName"] = SCHEDULERS[number // len(SHAPES) % len(SCHEDULERS)]
            (created,) = cluster.api.create(manifest)
            wait_until(lambda created=created: is_bound(cluster, created), f"pod-{number} is placed")
            # One at a time, so that it is known which events the view had seen when it scored the next pod.
            scored = int(extender.outcome("scored"))
            wait_until(lambda scored=scored: extender.assumption_hits()[1] == scored, "the view has seen the binding")
        attempts = [attempt for attempt in scheduler.attempts() if attempt.extenders]
        assert extender.outcome("deadline") == extender.outcome("failed") == extender.outcome("no_metrics") == 0
        rows, different = compare(cluster, watcher, attempts)
        sums = wrong_sums(attempts)
        placed = {f"default/{each['metadata']['name']}": each for each in cluster.api.items("/api/v1/pods")}
        chosen = [(each, each.totals[placed[each.pod]["spec"]["nodeName"]]) for each in attempts]
        best = sum(total == max(attempt.totals.values()) for attempt, total in chosen)
        hits, _ = extender.assumption_hits()
        scored_attempts = [each for each in attempts if placed[each.pod]["spec"]["schedulerName"] in SCHEDULERS[:2]]
        # The extender's guess among n best nodes is right with probability 1 / n.
        draws = sum(1 / list(each.totals.values()).count(max(each.totals.values())) for each in scored_attempts)
    record_property(
        "figures",
        f"extender: {rows - len(different)} of {rows} scores as recomputed, choice among the best {best} of "
        f"{len(attempts)}, {hits} of {scored} assumptions right ({draws:.0f} "
        f"expected with every sum known), {PODS - len(attempts)} pods without a request",
    )
    assert not different, f"of {rows} rows {len(different)} differ: {different[:3]}"
    assert not sums
    assert best == len(attempts) > PODS * 0.9
    assert hits > 0.9 * draws


def compare(cluster: ControlPlane, watcher: str, attempts: list[Attempt]) -> tuple[int, list[str]]:
    """Compute all scores again in the log's order; return the number of scores, and the different ones."""
    table = NodeTable.from_k8s(cluster.api.items("/api/v1/nodes"))
    with client.connect(watcher) as reading:
        judgment = FallbackPolicy(max_age_seconds=3600).judge(table, reading.metrics(), time.time())
    by_scheduler = Profiles.read(CONFIGURATION).by_scheduler
    prepared = {name: each.profile.prepare(table, judgment) for name, each in by_scheduler.items()}
    placed = {f"default/{each['metadata']['name']}": each for each in cluster.api.items("/api/v1/pods")}
    unscored = placed.keys() - {attempt.pod for attempt in attempts}
    assert not unscored, "each pod has more than one feasible node"
    rows, different, seen = 0, [], set()
    for attempt in attempts:
        bound_pod = Pod.from_k8s(placed[attempt.pod])
        scheduler = placed[attempt.pod]["spec"]["schedulerName"]
        (logged,) = attempt.extenders.values()
        candidates = list(logged)
        if scheduler in prepared:
            totals = prepared[scheduler].score(bound_pod, among=candidates).total
            computed = by_scheduler[scheduler].to_points(totals).tolist()
        else:
            computed = [NEUTRAL] * len(candidates)
        rows += len(candidates)
        seen.update(computed)
        for name, score in zip(candidates, computed, strict=True):
            if logged[name] != score:
                different.append(f"{attempt.pod} ({scheduler}) on {name}: {logged[name]}, computed {score}")
        table.add(bound_pod)
    assert len(seen) > 50
    return rows, different


def wrong_sums(attempts: list[Attempt]) -> list[str]:
    """Return the scheduler's totals that differ from its plugins' scores plus ten times the extender's."""
    return [
        f"{attempt.pod} on {name}"
        for attempt in attempts
        for name, total in attempt.totals.items()
        if total
        != sum(scores.get(name, 0) for scores in attempt.scores.values())
        + ANSWER_FACTOR * sum(scores[name] for scores in attempt.extenders.values())
    ]


@pytest.mark.parametrize("assume", [True, False])
def test_a_burst_spreads(
    cluster: ControlPlane,
    watch: Callable[..., Service],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    assume: bool,
) -> None:
    """In a burst no node gets many more pods than with placement one by one; the test also runs without assumptions."""
    cluster.api.create(*(node(f"node-{number}", "16", "64Gi") for number in range(NODES)))
    dice = random.Random(5)
    loads = {f"node-{n}": {each: {"average": dice.uniform(5, 60)} for each in ("cpu", "memory")} for n in range(NODES)}
    watcher = watching(watch, tmp_path, loads)
    burst = [pod(f"pod-{n}", container(requests={"cpu": "1", "memory": "2Gi"})) for n in range(BURST)]
    for each in burst:
        each["spec"]["schedulerName"] = "balancing"
    with Extender(cluster, CONFIGURATION, watcher, extender__assume=assume, **PATIENT) as extender:
        cluster.api.create(*burst)
        with extender.scheduler("10s", verbosity=2):
            wait_until(lambda: all_bound(cluster), "the burst is placed", 120)
        right, known = extender.assumption_hits()
    placed = cluster.api.items("/api/v1/pods")
    counts = Counter(each["spec"]["nodeName"] for each in placed)
    ideal = one_by_one(cluster, watcher, [Pod.from_k8s(each) for each in burst])
    over = max(counts[name] - (1.5 * ideal[name] + 2) for name in counts)
    record_property(
        "figures",
        f"burst of {BURST}, {'with' if assume else 'without'} assumptions: at most {max(counts.values())} on one "
        f"({max(ideal.values())} one by one), on {len(counts)} nodes ({len(ideal)}), "
        f"the worst node {over:+.1f} over 1.5 times its share + 2, {right} of {known} assumptions right",
    )
    assert len(placed) == BURST
    assert bool(known) is assume
    if assume:
        assert over <= 0


def one_by_one(cluster: ControlPlane, watcher: str, pods: list[Pod]) -> Counter[str]:
    """Return the number of pods per node if each pod is placed by all scores with all earlier pods known."""
    table = NodeTable.from_k8s(cluster.api.items("/api/v1/nodes"))
    with client.connect(watcher) as reading:
        judgment = FallbackPolicy(max_age_seconds=3600).judge(table, reading.metrics(), time.time())
    profiles = Profiles.read(CONFIGURATION)
    balancing = profiles.by_scheduler["balancing"]
    prepared = balancing.profile.prepare(table, judgment)
    in_tree_prepared = in_tree_by_scheduler(profiles)["balancing"].profile.prepare(table, MetricsTable.empty(table))
    dice, counts = np.random.default_rng(7), Counter[str]()
    for each in pods:
        sums = ANSWER_FACTOR * balancing.to_points(prepared.score(each).total)
        sums += in_tree_prepared.score(each).total
        best = table.names[dice.choice(np.flatnonzero(sums == sums.max()))]
        table.assume(each, best)
        counts[best] += 1
    return counts


def test_the_scheduler_binds_pods_after_the_extender_is_killed(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """A kill of the extender during a burst delays no pod, because the extender is ignorable."""
    cluster.api.create(*(node(f"node-{number}", "16", "64Gi") for number in range(10)))
    watcher = watching(watch, tmp_path, varied_loads(random.Random(3)))
    burst = [pod(f"pod-{n}", schedulerName="balancing") for n in range(100)]
    with Extender(cluster, CONFIGURATION, watcher, **PATIENT) as extender, extender.scheduler():
        cluster.api.create(*burst[:50])
        children = Path(f"/proc/{extender.process.pid}/task/{extender.process.pid}/children").read_text().split()
        for pid in (extender.process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        cluster.api.create(*burst[50:])
        wait_until(lambda: all_bound(cluster), "all pods are placed")
    assert len(names(cluster.api.items("/api/v1/pods"))) == len(burst)


def test_an_outage_is_reported_as_an_event(cluster: ControlPlane) -> None:
    """Without a watcher pods are still placed, and one Event reports that the nodes' load is unknown."""
    cluster.api.create(*(node(f"node-{number}") for number in range(5)))
    with Extender(cluster, CONFIGURATION, nowhere(), **PATIENT) as extender, extender.scheduler("10s"):
        cluster.api.create(*(pod(f"pod-{n}", schedulerName="balancing") for n in range(10)))
        wait_until(lambda: all_bound(cluster), "all pods are placed")
        assert extender.outcome("no_metrics") == 10

        def outage_events() -> list[Object]:
            events = cluster.api.items("/api/v1/namespaces/default/events")
            return [each for each in events if each["reason"] == "LoadUnknown"]

        (event,) = wait_until(outage_events, "the Event exists")
    assert event["type"] == "Warning"
    assert "load" in event["message"]
