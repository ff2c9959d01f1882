"""Past day's course of a node's pods in CongestionCost."""

from collections.abc import Iterator
from dataclasses import fields, replace
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from scoring import UseLevels
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.congestion_cost import CongestionCost
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.catalogue import CONGESTION, policies
from trimaran.simulator.replay import Replay
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import JOB, NO_LIMIT, PodUse, Trace

SERVICE, REQUEST = "Deployment", 1000
DECISION = 1600  # minute whose courses may not depend on later samples


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("past_course") as module:
        yield module


def world(kinds: list[str], cpu: np.ndarray, past: np.ndarray | None = None) -> Trace:
    """Return a world of one pod on each node, from minute 0 on; each owner has one pod.

    Args:
        kinds: kind of each owner.
        cpu: use of each pod as a share of its request, shape (pods, minutes).
        past: the owners' use on the day before, shape (pods, 288).
    """
    pods, minutes = cpu.shape
    names, full = tuple(f"{number}" for number in range(pods)), np.full(pods, REQUEST)
    rows = (
        {}
        if past is None
        else {"history": TraceHistory(tuple(kinds), names, ("",) * pods, -full // REQUEST, past, past)}
    )
    return Trace(
        name="course", nodes=names, cpu_capacity_milli=2 * full, memory_capacity_bytes=full, pods=names,
        owner_kinds=tuple(kinds), owners=names, arrival_minute=0 * full, end_minute=0 * full + minutes,
        cpu_request_milli=full, memory_request_bytes=0 * full + 1, cpu_limit_milli=0 * full + NO_LIMIT,
        memory_limit_bytes=0 * full + NO_LIMIT,
        use=PodUse(np.arange(pods + 1) * minutes, cpu.astype(np.float16).ravel(), np.ones(cpu.size, np.float16)),
        overcommit=(1.0, 1.0), warm_up_minutes=0, minutes=minutes, **rows,
    )  # fmt: skip


def courses(script: ModuleType, trace: Trace, minute: int, *, worst: bool = False) -> np.ndarray:
    """Return the change of each node's use at a minute, with each pod on its own node, shape (steps, nodes)."""
    cluster = Cluster(trace, trace.overcommit)
    for number in range(len(trace.pods)):
        cluster.place(number, cluster.pod(number), number)
    cluster.minute = minute
    result = script.NodeCourses(cluster, SimulatedWatcher(Windows(), cluster), worst=worst)
    result.update()
    return result.change


def test_before_minute_0_pods_have_their_owners_day(script: ModuleType) -> None:
    """A service that rose to the threefold an hour later rises so from what it uses now; a job has no course."""
    past = np.full((2, STEPS_A_DAY), 0.1)
    past[:, 12 + 12 :] = 0.3  # from 2:00 on
    trace = world([SERVICE, JOB], np.full((2, 120), 0.2), past)
    change = courses(script, trace, 61)
    assert change[:12, 0] == pytest.approx(0, abs=1)
    assert change[12:, 0] == pytest.approx(0.4 * REQUEST, rel=0.01)
    assert not change[:, 1].any()


def test_a_pod_that_was_idle_rises_at_most_fourfold(script: ModuleType) -> None:
    """The scale is bounded."""
    past = np.full((1, STEPS_A_DAY), 0.01)
    past[:, 24:] = 0.11
    change = courses(script, world([SERVICE], np.full((1, 120), 0.5), past), 61)
    assert change[12:, 0] == pytest.approx(4 * 0.1 * REQUEST, rel=0.01)


def test_a_pod_that_ran_a_day_before_has_its_own_course(script: ModuleType) -> None:
    """After a day the pod's own use counts, not its owner's; steps that cross minute 0 of the day before do not."""
    cpu = np.full((1, 1700), 0.1)
    cpu[0, 60:1440] = 0.2
    cpu[0, 1440:] = 0.3
    past = np.full((1, STEPS_A_DAY), 0.4)
    past[0, -6:] = 0.8  # from 23:30 on
    trace = world([SERVICE], cpu, past)
    change = courses(script, trace, 1440 + 31)[:, 0]
    assert change[:6] == pytest.approx(0, abs=1)
    assert change[6:] == pytest.approx(0.3 * REQUEST, rel=0.01)
    of_owner = courses(script, trace, 1440 - 59)[:, 0]
    assert of_owner[6:12] == pytest.approx(0.2 * REQUEST, rel=0.01)  # twice the 0.2 that it uses then
    assert not of_owner[12:].any()


def test_the_worst_quarter_is_each_nodes_own(script: ModuleType) -> None:
    """Of each node the six steps with the highest use count."""
    past = np.full((2, STEPS_A_DAY), 0.1)
    past[0, 12:18], past[1, 20:24] = 0.2, 0.3
    change = courses(script, world([SERVICE, SERVICE], np.full((2, 120), 0.1), past), 61, worst=True)
    assert change[:, 0] == pytest.approx(0.1 * REQUEST, rel=0.01)
    assert np.sort(change[:, 1]) == pytest.approx([0, 0, *[0.2 * REQUEST] * 4], abs=1)


@pytest.mark.parametrize("learns", [False, True])
def test_a_later_sample_changes_no_course(script: ModuleType, *, learns: bool) -> None:
    """Samples from a decision's minute on, three times as high, change the courses after it and none up to it."""
    trace = Synthetic(seed=3, nodes=2, minutes=1800, warm_up_minutes=20, history_days=2).trace()
    job = np.array([kind == JOB for kind in trace.owner_kinds])
    lives = np.diff(trace.use.offsets)
    minutes = np.arange(lives.sum()) + np.repeat(trace.arrival_minute - trace.use.offsets[:-1], lives)
    later = (minutes >= DECISION) & ~np.repeat(job & (trace.end_minute < DECISION), lives)
    cpu = np.where(later, 3 * trace.use.cpu, trace.use.cpu).astype(np.float16)
    seen = []
    for each in (trace, replace(trace, use=replace(trace.use, cpu=cpu))):
        profile = policies(each)[CONGESTION].profile
        policy = RecordingPolicy("course", script.CoursePolicy("course", profile, learns=learns))
        Replay(each, policy).run()
        seen.append(policy.courses)
    plain, planted = seen
    up_to = [minute for minute in plain if minute <= DECISION]
    assert max(up_to) > DECISION - 20
    assert all((plain[minute] == planted[minute]).all() for minute in up_to)
    assert any(plain[minute].any() for minute in up_to if minute > 1500)
    assert any((plain[minute] != planted[minute]).any() for minute in plain.keys() & planted.keys())


class RecordingPolicy:
    """Policy that records the courses of each minute with a choice."""

    move_policy = None

    def __init__(self, name: str, policy) -> None:
        self.name, self.policy, self.courses = name, policy, {}

    def begin(self, cluster, watcher, rng):
        self.cluster, self.chooser = cluster, self.policy.begin(cluster, watcher, rng)
        return self

    def admit(self, number):
        return self.chooser.admit(number)

    def choose(self, number, pod, candidates):
        row = self.chooser.choose(number, pod, candidates)
        self.courses[self.cluster.minute] = self.chooser.courses.change.copy()
        return row


@pytest.mark.parametrize("levels", [None, UseLevels.of({}, {"cpu": 0.4}, {}, {"cpu": 0.1})])
def test_a_course_changes_the_mean_cost_of_cpu_use(script: ModuleType, levels: UseLevels | None) -> None:
    """Without a course scores are CongestionCost's. With one the rise is the mean over steps, with levels of a part."""
    cluster = Cluster(world([SERVICE] * 3, np.full((3, 60), 0.95)), (1.0, 1.0))
    for number, row in enumerate((0, 0, 1)):  # the first node is above the target
        cluster.place(number, cluster.pod(number), row)
    cluster.minute = 30
    watcher, pod = SimulatedWatcher(Windows(), cluster), cluster.pod(0)
    metrics = MetricsTable.align(watcher.snapshot(), cluster.nodes)
    plain = CongestionCost() if levels is None else CongestionCost(levels=levels)
    courses = script.NodeCourses(cluster, watcher, worst=False)
    course = script.CourseCost(**{each.name: getattr(plain, each.name) for each in fields(plain)}, courses=courses)

    def rises(plugin: CongestionCost, more: float = 0.0) -> np.ndarray:
        node = plugin.node_terms(cluster.nodes, metrics)
        use, divisor = node["cpu.use"] + more, node["_cpu.divisor"]
        cost = script.cost_of_use(plain.resources[0], use / divisor, node.get("cpu.variance"), divisor)
        return plugin.pod_terms([pod], node | {"cpu.use": use, "cpu.cost": cost}, cluster.nodes, slice(None))["rise"][0]

    assert (course.score(pod, cluster.nodes, metrics) == plain.score(pod, cluster.nodes, metrics)).all()
    courses.change = np.array([[0.0, 300.0, 0.0], [0.0, 0.0, 0.0]])
    part = 300.0 if levels is None else 150.0
    assert rises(course)[[0, 2]] == pytest.approx(rises(plain)[[0, 2]])
    assert rises(course)[1] == pytest.approx((rises(plain)[1] + rises(plain, part)[1]) / 2)
    assert rises(plain, part)[1] > 1.2 * rises(plain)[1]
