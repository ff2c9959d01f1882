"""Scores of candidates: profiles, assumptions, outages and deadlines."""

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import CONFIGURATION, SettableMetrics, StaticView, extender_args, metrics, profiles
from support.servers import wait_until
from werkzeug.test import EnvironBuilder

from runtime.kubernetes.constraints import Taint, Toleration
from runtime.kubernetes.pod_demand import RequestCache
from scoring import FallbackPolicy, MetricsTable, Node, NodeResourcesFit, Profile, ResourceList
from trimaran.cluster.target_note import TargetNote
from trimaran.extender.answer import NEUTRAL, PrioritizeOutcome, ScoredCandidates
from trimaran.extender.app import create_app
from trimaran.extender.kube_scheduler import in_tree_by_scheduler
from trimaran.extender.placement_predictor import InTreePlugins, PlacementPredictor, _Totals
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.profiles import Profiles
from trimaran.extender.scheduler_rules import SchedulerRules
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

LOADS = {"node-1": 80.0, "node-2": 10.0, "node-3": 50.0}
PATIENT = PrioritizerOptions(deadline_seconds=20, seed=1)


def args(*names: str, **options) -> ExtenderArgs:
    return ExtenderArgs.decode(orjson.dumps(extender_args(*names, **options)))


@contextmanager
def prioritizing(
    view: StaticView, held: SettableMetrics, options: PrioritizerOptions = PATIENT, **more
) -> Iterator[Prioritizer]:
    made = Prioritizer(more.pop("profiles", profiles()), view, held, options, **more)
    try:
        yield made
    finally:
        made.close()


def test_a_less_loaded_node_scores_higher() -> None:
    """The profile of the pod's scheduler orders the candidates by load."""
    with prioritizing(StaticView(*LOADS), SettableMetrics(LOADS)) as prioritizer:
        began = time.monotonic()
        answer = prioritizer.answer(args(*LOADS))
    assert answer.outcome is PrioritizeOutcome.SCORED
    assert answer.details is not None
    assert 0 < answer.details.waited_seconds + answer.details.scored_seconds <= time.monotonic() - began
    scores = answer.scores
    assert list(scores) == list(LOADS)
    assert 500 >= scores["node-2"] > scores["node-3"] > scores["node-1"] >= 0
    assert all(type(score) is int for score in scores.values())


def test_scores_equal_those_of_the_profile() -> None:
    """The answer is the weighted sum of the plugins' scores times the factor."""
    view, held = StaticView(*LOADS), SettableMetrics(LOADS)
    request = args("node-3", "node-1")
    expected = profiles().by_scheduler["load-aware"].profile.score(request.pod, view.state.table.copy(), held.current)
    by_name = dict(zip(expected.names, expected.total.tolist(), strict=True))
    for factor in (5, 7):
        with prioritizing(view, held, profiles=Profiles.read(CONFIGURATION, factor)) as prioritizer:
            scores = prioritizer.answer(request).scores
        assert scores == {name: factor * by_name[name] for name in ("node-3", "node-1")}


def test_pods_of_other_schedulers_get_neutral_scores() -> None:
    """A pod whose profile has no plugin of ours gets the same score for all nodes."""
    view = StaticView(*LOADS)
    with prioritizing(view, SettableMetrics(LOADS)) as prioritizer:
        for scheduler in ("default-scheduler", "nobody's"):
            answer = prioritizer.answer(args(*LOADS, scheduler=scheduler))
            assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.OTHER_SCHEDULER)
    assert view.assumed == []


def test_an_unknown_node_gets_the_minimum() -> None:
    """Every candidate has a score, and a node that the view does not know gets the lowest of the scores."""
    with prioritizing(StaticView(*LOADS), SettableMetrics(LOADS)) as prioritizer:
        scores = prioritizer.answer(args("node-9", "node-2", "node-1")).scores
        assert list(scores) == ["node-9", "node-2", "node-1"]
        assert 0 < scores["node-9"] == scores["node-1"] < scores["node-2"]
        answer = prioritizer.answer(args("node-8", "node-9"))
    assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.NOT_SYNCED)


def test_an_unsynced_cluster_gets_neutral_scores() -> None:
    """Before the first full lists all nodes get the same score."""
    view = StaticView(*LOADS)
    view.is_synced = False
    with prioritizing(view, SettableMetrics(LOADS)) as prioritizer:
        answer = prioritizer.answer(args(*LOADS))
    assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.NOT_SYNCED)


def test_the_best_candidate_is_assumed() -> None:
    """A pod counts on its best node, so that the next pod of a burst gets another best node."""
    view = StaticView("node-1", "node-2")
    held = SettableMetrics(dict.fromkeys(("node-1", "node-2"), 30.0))
    with prioritizing(view, held) as prioritizer:
        answers = [prioritizer.answer(args("node-1", "node-2", pod=f"pod-{n}", cpu="400m")) for n in range(4)]
    (_, first), (_, second), *_ = view.assumed
    assert {first, second} == {"node-1", "node-2"}
    assert answers[1].scores[second] > answers[1].scores[first]
    assert [uid for uid, _ in view.assumed] == [f"uid-of-pod-{n}" for n in range(len(view.assumed))]


def test_a_retried_pod_does_not_count_itself() -> None:
    """The earlier assumption of a pod does not count when the pod is scored again."""
    view = StaticView("node-1", "node-2")
    held = SettableMetrics(dict.fromkeys(("node-1", "node-2"), 30.0))
    with prioritizing(view, held) as prioritizer:
        answers = [prioritizer.answer(args("node-1", "node-2", cpu="2")).scores for _ in range(3)]
        other = prioritizer.answer(args("node-1", "node-2", cpu="2", pod="pod-2")).scores
    assert answers[0] == answers[1] == answers[2]
    assert other != answers[0]


def test_the_assumed_node_is_the_one_with_the_highest_sum() -> None:
    """Of nodes with equal load the one with fewer requests is assumed, as kube-scheduler would choose it."""
    view, ours = StaticView(*LOADS), profiles()
    held = SettableMetrics({"node-1": 90.0, "node-2": 20.0, "node-3": 20.0})
    view.state.table.add(args("node-2", pod="there", cpu="1").pod, "node-2", placed_at=0.0)
    rules = SchedulerRules(in_tree_by_scheduler(ours))
    with prioritizing(view, held, rules=lambda: rules) as prioritizer:
        for number in range(8):
            prioritizer.answer(args(*LOADS, pod=f"pod-{number}"))
            view.state.drop_pod(f"uid-of-pod-{number}")
    assert {node_name for _, node_name in view.assumed} == {"node-3"}


def test_soft_taints_count_as_in_kube_scheduler() -> None:
    """The predicted node avoids soft taints that the pod does not tolerate."""
    view = StaticView("node-1", "node-2", "node-3")
    taints = (Taint("spot", "true", "PreferNoSchedule"), Taint("slow", "", "PreferNoSchedule"))
    with view.lock:
        for place, each in enumerate(view.state.table.nodes):
            view.state.put_node(dataclasses.replace(each, taints=taints[:place]))
    pod, answer = (
        args(*LOADS).pod,
        ScoredCandidates(("node-1", "node-2", "node-3"), (10, 13, 16), PrioritizeOutcome.SCORED),
    )
    predictor, in_tree = PlacementPredictor(random.Random(1)), InTreePlugins(Profile(()), 2)
    tolerant = dataclasses.replace(pod, tolerations=(Toleration("spot", "Exists"),))
    # 100, 130 - 2 x 50 and 160 - 2 x 100; the tolerant pod counts one of the two taints only.
    assert predictor.predict(pod, in_tree, answer, view.state.table) == "node-1"
    assert predictor.predict(tolerant, in_tree, answer, view.state.table) == "node-2"
    assert predictor.predict(pod, None, answer, view.state.table) == "node-3"
    assert (
        predictor.predict(pod, in_tree, ScoredCandidates(("gone",), (5,), PrioritizeOutcome.SCORED), view.state.table)
        == ""
    )


def test_departed_pods_are_remembered_for_the_window() -> None:
    """Departed pods are remembered for the window of the metrics plus their maximum age."""
    view = StaticView(*LOADS)
    with prioritizing(view, SettableMetrics(LOADS)) as prioritizer:
        prioritizer.answer(args(*LOADS))
    assert view.state.departed_seconds == 300 + PATIENT.policy.max_age_seconds


def test_without_assumptions_nothing_is_assumed() -> None:
    """No pod is assumed if the option is off."""
    view = StaticView(*LOADS)
    options = dataclasses.replace(PATIENT, assume=False)
    with prioritizing(view, SettableMetrics(LOADS), options) as prioritizer:
        for _ in range(3):
            prioritizer.answer(args(*LOADS))
    assert view.assumed == []


def test_an_outage_gets_neutral_scores_and_is_reported_once() -> None:
    """Without metrics all nodes get the same score, no pod is assumed, and begin and end are reported once each."""
    view, held, reported = StaticView(*LOADS), SettableMetrics(None), []
    with prioritizing(view, held, report_outage=reported.append) as prioritizer:
        for _ in range(3):
            answer = prioritizer.answer(args(*LOADS))
            assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.NO_METRICS)
        assert reported == ["the watcher has nothing fresh"]
        assert view.assumed == []
        held.current = metrics(LOADS)
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.SCORED
        prioritizer.answer(args(*LOADS))
    assert reported == ["the watcher has nothing fresh", ""]


@pytest.mark.parametrize("on_outage", ["neutral", "allocation"])
def test_without_known_rules_no_pod_is_scored(on_outage: Literal["neutral", "allocation"]) -> None:
    """For an unknown version of kube-scheduler answers are neutral and pods not assumed, and the reason is reported."""
    view, held, reported = StaticView(*LOADS), SettableMetrics(LOADS), []
    options = dataclasses.replace(PATIENT, on_outage=on_outage)
    rules = SchedulerRules(refusal="version 1.38")
    with prioritizing(view, held, options, rules=lambda: rules, report_outage=reported.append) as prioritizer:
        answers = [prioritizer.answer(args(*LOADS)) for _ in range(2)]
        assert [(set(each.scores.values()), each.outcome) for each in answers] == (
            [({NEUTRAL}, PrioritizeOutcome.NO_RULES)] * 2
        )
        assert (view.assumed, reported) == ([], ["version 1.38"])
        rules = SchedulerRules()
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.SCORED
    assert reported == ["version 1.38", ""]


def test_before_the_version_is_read_no_pod_is_scored() -> None:
    """At the start the answers are neutral, as before the first list of nodes, without an outage."""
    reported = []
    held = SettableMetrics(LOADS)
    with prioritizing(StaticView(*LOADS), held, rules=lambda: None, report_outage=reported.append) as prioritizer:
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.NOT_SYNCED
    assert reported == []


def test_the_prediction_follows_the_rules() -> None:
    """After an upgrade the in-tree scores of the new version decide between nodes with equal load."""
    view = StaticView("node-1", "node-2")
    held = SettableMetrics(dict.fromkeys(("node-1", "node-2"), 30.0))
    view.state.table.add(args("node-1", pod="there", cpu="1").pod, "node-1", placed_at=0.0)
    plugins = NodeResourcesFit("LeastAllocated"), NodeResourcesFit("MostAllocated")
    old, new = (SchedulerRules({"load-aware": InTreePlugins(Profile.of(plugin))}) for plugin in plugins)
    rules = old
    with prioritizing(view, held, rules=lambda: rules) as prioritizer:
        prioritizer.answer(args("node-1", "node-2"))
        view.state.drop_pod("uid-of-pod-1")
        rules = new
        prioritizer.answer(args("node-1", "node-2"))
    assert [node_name for _, node_name in view.assumed] == ["node-2", "node-1"]


def test_an_outage_can_be_scored_by_allocation() -> None:
    """With ``on_outage`` set to ``allocation`` pods are scored by best fit."""
    view, options = StaticView("node-1", "node-2"), dataclasses.replace(PATIENT, on_outage="allocation")
    view.state.table.assume(args("node-1", pod="large", cpu="2").pod, "node-1")
    with prioritizing(view, SettableMetrics(None), options) as prioritizer:
        answer = prioritizer.answer(args("node-1", "node-2"))
    assert answer.outcome is PrioritizeOutcome.ALLOCATION
    assert answer.scores["node-1"] > answer.scores["node-2"]


def test_old_metrics_are_an_outage() -> None:
    """Metrics that the policy does not trust count as no metrics."""
    held = SettableMetrics(LOADS)
    held.current = metrics(LOADS, now=1000)
    with prioritizing(StaticView(*LOADS), held) as prioritizer:
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.NO_METRICS


def test_too_many_unmeasured_nodes_are_an_outage() -> None:
    """Above the allowed share of unmeasured nodes all nodes get the same score."""
    reported = []
    held = SettableMetrics({"node-1": 80.0})
    with prioritizing(StaticView(*LOADS), held, report_outage=reported.append) as prioritizer:
        answer = prioritizer.answer(args(*LOADS))
    assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.NO_METRICS)
    assert reported == ["2 of 3 nodes are not measured"]


def test_an_unmeasured_node_gets_the_minimum() -> None:
    """A single node without metrics gets 0, and the others are scored."""
    held = SettableMetrics({"node-2": 10.0, "node-3": 50.0})
    with prioritizing(StaticView(*LOADS), held) as prioritizer:
        scores = prioritizer.answer(args(*LOADS)).scores
    assert scores["node-1"] == 0 < scores["node-3"] < scores["node-2"]


def test_late_scores_are_neutral() -> None:
    """While the view is locked answers come at the deadline, and their pods are not assumed later."""
    view = StaticView(*LOADS)
    options = PrioritizerOptions(deadline_seconds=0.01)
    with prioritizing(view, SettableMetrics(LOADS), options) as prioritizer, ThreadPoolExecutor(1) as other:
        for _ in range(2):  # before and after the profiles are prepared
            with view.lock:
                pods = [args(*LOADS, pod=f"pod-{n}") for n in range(3)]
                answers = [other.submit(prioritizer.answer, each).result(5) for each in pods]
            assert [answer.outcome for answer in answers] == [PrioritizeOutcome.DEADLINE] * 3
            assert {score for answer in answers for score in answer.scores.values()} == {NEUTRAL}
            prioritizer._preparer.thread.submit(int).result(20)
    assert view.assumed == []


def test_concurrent_pods_see_each_other() -> None:
    """Each pod is counted on its node before another pod is scored, whatever the threads do."""
    names = [f"node-{number}" for number in range(40)]
    view, held = StaticView(*names), SettableMetrics(dict.fromkeys(names, 10.0))
    with prioritizing(view, held) as prioritizer, ThreadPoolExecutor(8) as threads:
        pods = [args(*names, pod=f"pod-{number}", cpu="1") for number in range(len(names))]
        answers = list(threads.map(prioritizer.answer, pods))
    assert {answer.outcome for answer in answers} == {PrioritizeOutcome.SCORED}
    assert sorted(node for _, node in view.assumed) == sorted(names)  # one pod on each node, none on two


def test_an_answer_that_nobody_reads_blocks_nothing() -> None:
    """Scoring needs no call after the response, so a lost connection cannot keep later pods from being scored."""
    view = StaticView(*LOADS)
    with prioritizing(view, SettableMetrics(LOADS)) as prioritizer:
        app = create_app(prioritizer, ExtenderTelemetry(), str)
        for number in range(3):
            body = orjson.dumps(extender_args(*LOADS, pod=f"pod-{number}"))
            environ = EnvironBuilder(path="/prioritize", method="POST", data=body).get_environ()
            app(environ, lambda *_: None)  # the result is neither read nor closed
        assert prioritizer.answer(args(*LOADS, pod="last")).outcome is PrioritizeOutcome.SCORED
    assert [uid for uid, _ in view.assumed] == [f"uid-of-pod-{number}" for number in range(3)] + ["uid-of-last"]


def judging(before: Callable[[WatcherMetrics], object]) -> FallbackPolicy:
    """Return a policy that calls a function with the snapshot before it judges."""

    class Judging(FallbackPolicy):
        def judge(self, nodes, snapshot, now):
            before(snapshot)
            return super().judge(nodes, snapshot, now)

    return Judging()


def test_a_profile_is_prepared_without_the_lock() -> None:
    """While a new snapshot is prepared the view stays usable; the pod gets the same scores at its deadline."""
    view, held = StaticView(*LOADS), SettableMetrics(LOADS)
    begun, go_on = threading.Event(), threading.Event()

    def wait(_snapshot: WatcherMetrics) -> None:
        begun.set()
        assert go_on.wait(20)

    options = PrioritizerOptions(deadline_seconds=0.05, policy=judging(wait), seed=1)
    with prioritizing(view, held, options) as prioritizer:
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.DEADLINE
        assert begun.wait(20)
        with view.reading(timeout=0):  # raises TimeoutError if another thread has the lock
            view.state.put_node(dataclasses.replace(view.state.table.nodes[0], name="node-4"))
        go_on.set()
        prioritizer._preparer.thread.submit(int).result(20)
        answer = prioritizer.answer(args(*LOADS, "node-4", pod="pod-2"))
    assert answer.outcome is PrioritizeOutcome.SCORED
    assert answer.scores["node-4"] == 0 < answer.scores["node-2"]  # it joined after the copy, and is not measured


def test_the_first_pod_after_a_quiet_time_is_scored_in_time() -> None:
    """Profiles are prepared when metrics arrive, so that no pod waits for a preparation."""
    view, held, prepared = StaticView(*LOADS), SettableMetrics(LOADS), []
    options = dataclasses.replace(PATIENT, policy=judging(prepared.append))
    with prioritizing(view, held, options) as prioritizer:
        prioritizer.start()
        for loads, best in ((LOADS, "node-2"), ({**LOADS, "node-2": 95.0}, "node-3")):
            held.current = metrics(loads)
            wait_until(lambda: prepared[-1:] == [held.current], "the new metrics are prepared without a request")
            prioritizer._preparer.thread.submit(int).result(20)
            answer = prioritizer.answer(args(*LOADS, pod=f"first-on-{best}"))
            assert answer.outcome is PrioritizeOutcome.SCORED
            assert max(answer.scores, key=answer.scores.get) == best
            assert prepared[-1] is held.current
    assert len(prepared) == 2


def test_a_pod_during_a_preparation_is_scored_by_the_previous_metrics() -> None:
    """While new metrics are prepared, pods are scored by the previous ones, unless those are too old."""
    view, held, go_on = StaticView(*LOADS), SettableMetrics(LOADS), threading.Semaphore(0)
    first = held.current
    options = PrioritizerOptions(deadline_seconds=1, policy=judging(lambda _snapshot: go_on.acquire(timeout=20)))
    with prioritizing(view, held, options) as prioritizer:
        assert prioritizer.answer(args(*LOADS)).outcome is PrioritizeOutcome.DEADLINE
        go_on.release()
        prioritizer._preparer.thread.submit(int).result(20)
        held.current = metrics({**LOADS, "node-2": 95.0})
        answer = prioritizer.answer(args(*LOADS, pod="pod-2"))
        assert answer.outcome is PrioritizeOutcome.SCORED
        assert answer.details.snapshot is first
        go_on.release()
        prioritizer._preparer.thread.submit(int).result(20)
        held.current = metrics(LOADS, now=time.time() + 301)
        assert prioritizer.answer(args(*LOADS, pod="pod-3")).outcome is PrioritizeOutcome.DEADLINE
        go_on.release()


def test_one_preparation_serves_all_waiting_pods() -> None:
    """Pods that wait for the same snapshot wait for one preparation."""
    view, held = StaticView(*LOADS), SettableMetrics(LOADS)
    judged = []
    options = PrioritizerOptions(deadline_seconds=20, policy=judging(judged.append))
    with prioritizing(view, held, options) as prioritizer, ThreadPoolExecutor(8) as threads:
        pods = [args(*LOADS, pod=f"pod-{number}") for number in range(40)]
        assert {answer.outcome for answer in threads.map(prioritizer.answer, pods)} == {PrioritizeOutcome.SCORED}
    assert len(judged) == 1


def test_a_closed_prioritizer_gives_neutral_scores() -> None:
    """A request during the shutdown is answered, with the same score for all nodes."""
    with prioritizing(StaticView(*LOADS), SettableMetrics(LOADS)) as prioritizer:
        prioritizer.close()
        answer = prioritizer.answer(args(*LOADS))
    assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.FAILED)


def test_a_failed_preparation_is_tried_again() -> None:
    """A defect while a snapshot is prepared costs one pod its scores, not all pods until the next snapshot."""
    view, held = StaticView(*LOADS), SettableMetrics(LOADS)
    failures: list[WatcherMetrics] = []

    def fail_once(snapshot: WatcherMetrics) -> None:
        failures.append(snapshot)
        if len(failures) == 1:
            raise RuntimeError("a defect")

    with prioritizing(view, held, PrioritizerOptions(deadline_seconds=20, policy=judging(fail_once))) as prioritizer:
        outcomes = [prioritizer.answer(args(*LOADS)).outcome for _ in range(2)]
    assert outcomes == [PrioritizeOutcome.FAILED, PrioritizeOutcome.SCORED]


@given(st.data())
def test_cached_totals_equal_fresh_totals(data: st.DataObject) -> None:
    """For any series of pods and changes the cached totals equal fresh totals."""
    ours = profiles()
    profile = in_tree_by_scheduler(ours)["load-aware"].profile
    view, counted = StaticView(*LOADS), RequestCache()
    totals = _Totals(profile, view.state.table)
    for number in range(data.draw(st.integers(1, 8))):
        body = orjson.dumps(
            extender_args(*LOADS, pod=f"pod-{number}", cpu=data.draw(st.sampled_from(["1", "100m", "100.5m"])))
        )
        pod = ExtenderArgs.decode(body, counted).pod
        rows = np.array(data.draw(st.lists(st.integers(0, len(view.state.table) - 1), min_size=1, unique=True)))
        fresh = profile.score(pod, view.state.table, MetricsTable.empty(view.state.table)).total
        assert totals.for_rows(pod, rows).tolist() == fresh[rows].tolist()
        node = data.draw(st.sampled_from(sorted(view.state.table.names)))
        match data.draw(st.sampled_from(["assume", "drop", "renew", "join", "nothing"])):
            case "assume":
                view.assume(pod, node)
            case "drop" if number:
                view.state.drop_pod(f"uid-of-pod-{number - 1}")
            case "renew":
                amounts = ResourceList({"cpu": 2000 + number, "memory": 8 << 30, "pods": 110})
                view.state.put_node(Node(node, amounts, amounts, created_at=0.0))
            case "join":
                view.state.put_node(Node(f"new-{number}", *[view.state.table.nodes[0].allocatable] * 2, created_at=0.0))


def test_a_blocked_view_fails_the_liveness_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liveness check fails once the lock of the cluster view was not free for some time."""
    view = StaticView(*LOADS)
    monkeypatch.setattr("trimaran.extender.prioritizer._PROBE_SECONDS", 0.01)
    with prioritizing(view, SettableMetrics(LOADS), PATIENT) as prioritizer, ThreadPoolExecutor(1) as other:
        assert other.submit(prioritizer.is_alive).result()
        with view.lock:
            assert other.submit(prioritizer.is_alive).result()
            monkeypatch.setattr("trimaran.extender.prioritizer._STUCK_SECONDS", 0.0)
            assert not other.submit(prioritizer.is_alive).result()
        assert other.submit(prioritizer.is_alive).result()


def test_a_defect_costs_one_pod_its_scores() -> None:
    """An unexpected error results in neutral scores."""
    view = StaticView(*LOADS)

    class Broken(SettableMetrics):
        def snapshot(self):
            raise RuntimeError("a defect")

    with prioritizing(view, Broken(LOADS)) as prioritizer:
        answer = prioritizer.answer(args(*LOADS))
    assert (set(answer.scores.values()), answer.outcome) == ({NEUTRAL}, PrioritizeOutcome.FAILED)


def test_a_new_snapshot_changes_the_scores() -> None:
    """Prepared scores are replaced when the metrics change."""
    view, held = StaticView(*LOADS), SettableMetrics(LOADS)
    with prioritizing(view, held, dataclasses.replace(PATIENT, assume=False)) as prioritizer:
        before = prioritizer.answer(args(*LOADS)).scores
        held.current = metrics({"node-1": 10.0, "node-2": 80.0, "node-3": 50.0})
        after = prioritizer.answer(args(*LOADS)).scores
    assert (after["node-1"], after["node-2"]) == (before["node-2"], before["node-1"])


def test_new_nodes_are_scored() -> None:
    """A prepared profile follows new nodes of the cluster."""
    view, other = StaticView(*LOADS), StaticView("node-4")
    with prioritizing(view, SettableMetrics({**LOADS, "node-4": 1.0})) as prioritizer:
        before = prioritizer.answer(args("node-1", "node-4")).scores
        assert before["node-4"] == before["node-1"]
        with view.lock:
            view.state.put_node(other.state.table.nodes[0])
        scores = prioritizer.answer(args("node-1", "node-4", pod="pod-2")).scores
    assert scores["node-4"] > scores["node-1"]


@given(st.lists(st.integers(-1, 100 * 7), min_size=2, max_size=20), st.integers(1, 1000))
def test_answers_are_the_sums_times_the_factor(totals: list[int], factor: int) -> None:
    """The answer is the sum times the factor, so no two sums become equal; a negative sum counts as 0."""
    profile = Profiles.read(CONFIGURATION, factor).by_scheduler["load-aware"]
    assert profile.to_points(np.array(totals)).tolist() == [factor * max(total, 0) for total in totals]


def test_recent_pods_count_by_default() -> None:
    """``countRecentPods`` is on by default, and an argument turns it off."""

    def counted(arguments) -> bool:
        name = "LoadVariationRiskBalancing"
        configuration = {**CONFIGURATION, "profiles": [{
            "plugins": {"score": {"enabled": [{"name": name}]}}, "pluginConfig": arguments,
        }]}  # fmt: skip
        ((weighted,), *_) = [each.profile.plugins for each in profiles(configuration).by_scheduler.values()]
        return weighted.plugin.count_recent_pods

    name = "LoadVariationRiskBalancing"
    assert counted(None)
    assert counted([{"name": name, "args": {"safeVarianceMargin": 2}}])
    assert not counted([{"name": name, "args": {"countRecentPods": False}}])


def test_a_file_without_a_plugin_of_ours_is_refused() -> None:
    """A file without a plugin for the extender is an error that lists the plugins."""
    with pytest.raises(ValueError, match="LoadVariationRiskBalancing"):
        profiles({**CONFIGURATION, "profiles": [{}]})


@pytest.mark.parametrize(
    ("target", "order"),
    [("node-1", ["node-1", "node-3", "node-2"]), ("node-9", ["node-3", "node-1", "node-2"])],
    ids=["offered", "not offered"],
)
def test_a_planned_node_outweighs_all_scores(target: str, order: list[str]) -> None:
    """A moved pod's replacement goes to the planned node, else by load, and back to the node that it left last."""
    plan = TargetNote(target, "node-2", 2e9)
    view = StaticView(*LOADS)
    with prioritizing(view, SettableMetrics(LOADS), plan_of=lambda _: plan) as prioritizer:
        answer = prioritizer.answer(args(*LOADS))
    assert sorted(answer.scores, key=answer.scores.__getitem__, reverse=True) == order
    first, second, last = (answer.scores[name] for name in order)
    assert first - last > 50_000  # times 10, more than all in-tree plugins together
    assert second - last > 50_000
    assert [node for _, node in view.assumed] == [order[0]]
    assert answer.details is not None
    assert answer.details.plan == plan


def test_in_shadow_mode_no_plan_counts() -> None:
    """A pod that kube-scheduler gets no scores for does not take the plan of another one."""
    view, asked = StaticView(*LOADS), []
    options = {"plan_of": asked.append, "is_active": lambda _: False}
    with prioritizing(view, SettableMetrics(LOADS), **options) as prioritizer:
        assert set(prioritizer.answer(args(*LOADS)).scores.values()) == {NEUTRAL}
    assert asked == []
