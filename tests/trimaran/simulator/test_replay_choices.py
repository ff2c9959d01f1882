"""Choices of a replay, compared with the library's and with the live extender's, decision by decision."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import orjson
import pytest
from support.extending import StaticView

from client import NoMetrics
from scoring import MetricsTable, Node, NodeTable, Pod, Profile, WeightedPlugin, read_configuration
from trimaran.extender.answer import PrioritizeOutcome
from trimaran.extender.kube_scheduler import ExtenderEndpoint, in_tree_by_scheduler, render_config
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.profiles import ANSWER_FACTOR, DEFAULT_SCORE_FACTOR, Profiles
from trimaran.extender.wire import ExtenderArgs
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.faults import Fault, FaultKind
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy, configured_policy, extender_profile
from trimaran.simulator.policies.topology_spread import OwnerSpread
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import unix_seconds
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

Check = Callable[[ProfileChooser, int, Pod, np.ndarray, int], None]


@dataclass(frozen=True)
class Checked(ProfilePolicy):
    """Profile policy that passes each choice to a check."""

    check: Check = lambda *_: None

    def begin(self, cluster, watcher, rng):
        policy = self

        class Chooser(ProfileChooser):
            def choose(self, number, pod, candidates):
                row = super().choose(number, pod, candidates)
                policy.check(self, number, pod, candidates, row)
                return row

        return Chooser(self, cluster, watcher, rng)


def checked(policy: ProfilePolicy, check: Check) -> Checked:
    fields = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
    return Checked(**fields, check=check)


class ByTheLibrary:
    """Check that scores a pod with a snapshot and a profile made for it, and a table made for its minute.

    Args:
        every: 1 checks every choice, 2 every second one, and so on.
    """

    def __init__(self, every: int = 1) -> None:
        self._minute, self._placed = -1, 0
        self._every, self._choices = every, 0

    def __call__(self, chooser: ProfileChooser, number: int, pod: Pod, candidates: np.ndarray, row: int) -> None:
        self._choices += 1
        if self._choices % self._every:
            return
        cluster, policy = chooser._cluster, chooser._policy
        table = self._table(cluster)
        watcher = SimulatedWatcher(chooser._watcher.windows, cluster)
        judgment = policy.fallback.judge(table, watcher.snapshot(), cluster.now)
        levels = chooser._history.levels() if policy.learns else None
        among = np.flatnonzero(table.feasible(pod))
        assert (among == candidates).all()
        total = chooser._profile.prepare(table, judgment, levels).score(pod, among=among).total
        assert row in among[total == total.max()], (number, row)

    def _table(self, cluster: Cluster) -> NodeTable:
        if cluster.minute == self._minute:  # since the last choice pods were only placed
            for run in cluster.pod_runs[self._placed :]:
                self._made.add(cluster.pods[run.pod], cluster.trace.nodes[run.node], cluster.now)
        else:
            self._made = NodeTable(cluster.nodes.nodes)
            for where, placed in cluster.nodes.placed_pods():
                self._made.add(placed.pod, cluster.nodes.names[where], placed.placed_at)
            for where, departed in cluster.nodes.left_since(np.full(len(self._made), -np.inf)):
                self._made.add(departed.pod, cluster.nodes.names[where], departed.placed_at)
                self._made.remove(departed.pod, left_at=departed.left_at)
        self._minute, self._placed = cluster.minute, len(cluster.pod_runs)
        return self._made


def world(minutes: int, **drawn: float) -> Trace:
    drawn = {"nodes": 12, **drawn}
    whole = Synthetic(seed=3, minutes=max(minutes, 600), warm_up_minutes=120, **drawn).trace()
    return replace(whole, minutes=minutes, warm_up_minutes=30, end_minute=np.minimum(whole.end_minute, minutes))


@pytest.mark.parametrize("policy", ["default", "target-load-packing+load-variation-risk-balancing", "congestion-cost"])
def test_choices_are_the_librarys(policy: str) -> None:
    """Every pod goes to a node that a fresh table and profile score highest."""
    trace = world(75)
    outcome = Replay(trace, checked(policies(trace)[policy], ByTheLibrary())).run()
    assert outcome.decisions > 150


SCORED = [
    name for name, policy in policies(None).items() if type(policy) is ProfilePolicy and policy.move_policy is None
]


@pytest.mark.slow
@pytest.mark.parametrize("policy", SCORED)
def test_each_tenth_of_twenty_thousand_choices_is_the_librarys(policy: str) -> None:
    """The same holds for all profile policies in some 20,000 decisions with arrivals, departures and rollouts."""
    trace = world(1500, nodes=6, rollouts=1.0)
    decisions = Replay(trace, checked(policies(trace)[policy], ByTheLibrary(every=10))).run().decisions
    assert decisions >= 1_500


PLUGINS = {
    "target-load-packing": ["TargetLoadPacking"],
    "load-variation-risk-balancing": ["LoadVariationRiskBalancing"],
    "both": ["TargetLoadPacking", "LoadVariationRiskBalancing"],
    "low-risk-over-commitment": ["LowRiskOverCommitment"],
}
FACTOR = DEFAULT_SCORE_FACTOR


def configuration(*names: str) -> dict:
    """Return a KubeSchedulerConfiguration with a profile for each name in PLUGINS."""
    profiles = [
        {"schedulerName": name, "plugins": {"score": {"enabled": [{"name": plugin} for plugin in PLUGINS[name]]}}}
        for name in names
    ]
    version = "kubescheduler.config.k8s.io/v1"
    return {"apiVersion": version, "kind": "KubeSchedulerConfiguration", "profiles": profiles}


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written(pod: Pod, scheduler: str) -> dict:
    """Return a pod as the API server sends it."""
    resources = {
        kind: {"cpu": f"{amounts['cpu']}m", "memory": str(amounts["memory"])}
        for kind, amounts in (("requests", pod.containers[0].requests), ("limits", pod.containers[0].limits))
    }
    return {
        "metadata": {"name": pod.name, "namespace": "default", "uid": pod.uid},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "resources": resources}]},
    }


class Live:
    """Live extender next to a replay: it gets the API server's objects and kube-scheduler's requests."""

    def __init__(self, name: str, profiles: Profiles) -> None:
        self.name, self.view, self.answered = name, StaticView(), Counter[PrioritizeOutcome]()
        self.in_tree = in_tree_by_scheduler(profiles)[name].profile
        rendered = render_config(profiles.document, ExtenderEndpoint("http://127.0.0.1"))
        self.spread = read_configuration(rendered).weights[name]["PodTopologySpread"]
        self.known_runs: dict[int, PodRun] = {}
        self.sent = 0
        self.chooser: ProfileChooser | None = None
        options = PrioritizerOptions(deadline_seconds=20, assume=False)
        self.prioritizer = Prioritizer(profiles, self.view, self, options, clock=lambda: self.chooser._cluster.now)

    def snapshot(self):
        """Return the watcher's snapshot, as a client does."""
        snapshot = self.chooser._watcher.snapshot()
        if snapshot is None:
            raise NoMetrics("nothing is fresh")
        return snapshot

    def close(self) -> None:
        self.prioritizer.close()

    def update(self) -> None:
        """Send the nodes, and the pods that started, ended and moved since the last call."""
        cluster, state = self.chooser._cluster, self.view.state
        for node in cluster.nodes.nodes:
            amounts = {"cpu": f"{node.capacity['cpu']}m", "memory": str(node.capacity["memory"]), "pods": "1000"}
            created = {} if node.created_at is None else {"creationTimestamp": timestamp(node.created_at)}
            status = {"capacity": amounts, "allocatable": amounts}
            state.put_node(Node.from_k8s({"metadata": {"name": node.name, **created}, "status": status}))
        for name in set(state.table.names) - set(cluster.nodes.names):
            state.drop_node(name)
        for run in cluster.pod_runs[self.sent :]:
            self.drop(cluster, run.pod)
            pod = written(cluster.pod(run.pod), self.name)
            pod["spec"]["nodeName"] = cluster._names[run.node]
            at = timestamp(unix_seconds(run.start))
            pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]}
            state.put_pod(Pod.from_k8s(pod))
            self.known_runs[run.pod] = run
        self.sent = len(cluster.pod_runs)
        for number in [number for number, run in self.known_runs.items() if cluster.running.get(number) is not run]:
            self.drop(cluster, number)

    def drop(self, cluster: Cluster, number: int) -> None:
        """Send the end of a pod, if the pod was known."""
        run = self.known_runs.pop(number, None)
        if run is not None:
            self.view.state.drop_pod(cluster.pod(number).uid, unix_seconds(run.end))

    def check(self, chooser: ProfileChooser, number: int, pod: Pod, candidates: np.ndarray, row: int) -> None:
        """Request scores as kube-scheduler does, and compare them with the replay's."""
        self.chooser = chooser
        self.update()
        names = [chooser._cluster.nodes.names[candidate] for candidate in candidates.tolist()]
        body = {"Pod": written(pod, self.name), "Nodes": None, "NodeNames": names}
        answer = self.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(body)))
        self.answered[answer.outcome] += 1
        # kube-scheduler adds its own plugins' scores, with the weights of the rendered file.
        spread = WeightedPlugin(OwnerSpread(chooser._cluster.replicas), self.spread)
        in_tree = Profile((*self.in_tree.plugins, spread))
        in_tree = in_tree.prepare(chooser._cluster.nodes, MetricsTable.empty(chooser._cluster.nodes))
        sums = in_tree.score(pod, among=candidates).total
        if answer.outcome is PrioritizeOutcome.NO_METRICS:  # equal scores, so that kube-scheduler's own plugins decide
            assert len(set(answer.scores.values())) == 1
        else:
            scores = chooser.prepared().score(pod, among=candidates)
            ours = sum(scores.plugins[plugin].normalized for plugin in PLUGINS[self.name])
            assert answer.scores == dict(zip(names, (FACTOR * ours).tolist(), strict=True)), number
            sums = sums + ANSWER_FACTOR * FACTOR * ours
            assert (sums == ANSWER_FACTOR * scores.total).all(), number
        assert sums[list(candidates).index(row)] == sums.max(), number


@pytest.mark.parametrize("name", PLUGINS)
def test_choices_are_the_live_paths(name: str) -> None:
    """The extender's answers for the same pods and nodes equal the replay's scores."""
    trace = world(100)
    profiles = Profiles.read(configuration(*PLUGINS))
    with closing(Live(name, profiles)) as live:
        policy = ProfilePolicy(name, extender_profile(configuration(name)))
        outcome = Replay(trace, checked(policy, live.check)).run()
    assert live.answered == {PrioritizeOutcome.SCORED: outcome.decisions}
    assert outcome.decisions > 200


def test_choices_are_the_live_paths_during_failures() -> None:
    """The answers stay equal while nodes fail and join, nodes are not measured, and metrics have an outage."""
    trace = replace(
        world(160),
        events=(NodeEvent(60, EventKind.FAIL, "node-004"), NodeEvent(90, EventKind.JOIN, "node-004")),
    )
    faults = (Fault(FaultKind.MISSING, 40, 120, "node-001"), Fault(FaultKind.OUTAGE, 130, 150))
    profiles = Profiles.read(configuration(*PLUGINS))
    with closing(Live("both", profiles)) as live:
        policy = ProfilePolicy("both", extender_profile(configuration("both")))
        Replay(trace, checked(policy, live.check), ReplayOptions(faults=faults)).run()
    assert live.answered[PrioritizeOutcome.SCORED] > 50
    assert live.answered[PrioritizeOutcome.NO_METRICS] > 10
    assert live.answered.keys() <= {PrioritizeOutcome.SCORED, PrioritizeOutcome.NO_METRICS}


@pytest.mark.parametrize(
    "score",
    [
        {"disabled": [{"name": "*"}]},
        {
            "enabled": [{"name": "NodeResourcesFit", "weight": 3}, {"name": "PodTopologySpread", "weight": 5}],
            "disabled": [{"name": "NodeResourcesBalancedAllocation"}],
        },
    ],
)
def test_choices_of_a_file_are_those_of_its_rendered_file(score: dict) -> None:
    """A policy of a file has kube-scheduler's plugins of the rendered file, in an outage of the metrics, too.

    The rendered file of a file that disables all defaults has the defaults, because nothing else would score.
    """
    document = configuration("both")
    (profile,) = document["profiles"]
    ours = profile["plugins"]["score"]["enabled"]
    profile["plugins"]["score"] = {**score, "enabled": ours + score.get("enabled", [])}
    profile["pluginConfig"] = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]
    trace, faults = world(100), (Fault(FaultKind.OUTAGE, 60, 100),)
    with closing(Live("both", Profiles.read(document))) as live:
        policy = configured_policy("both", document)
        Replay(trace, checked(policy, live.check), ReplayOptions(faults=faults)).run()
    assert min(live.answered[PrioritizeOutcome.SCORED], live.answered[PrioritizeOutcome.NO_METRICS]) > 50
