"""Past day's course of a node's pods in CongestionCost, as a policy of replays; ``history.py`` replays it.

CongestionCost takes a node's use for constant. The watcher keeps the use of each pod on the last day, so a node's CPU
use over the next hours can be guessed: as its pods had it a day before. The two forms, written down before any was
measured:

- ``course``: the cost of CPU use is its mean over the next two hours, in 24 steps of five minutes.
- ``course-worst``: its mean over the six of these steps in which the node's use is highest.

In each step the node's use is that of CongestionCost, plus for each pod

    change = scale * (use a day before the step - then),    scale = min(now / then, 4)

where ``now`` is the pod's use in the last three full rounds of five minutes, and ``then`` its use a day before them. So
the pod's course has the mean ``now`` over the last window; the bound is for pods that were nearly idle a day before. A
pod whose use in any of these rounds is unknown has no change, and neither has a step whose use a day before is unknown.
With levels (``+levels``: 14 days, as shipped) only the measured part of the node's use has a course, so the change
counts by 1 - ``learnt``. Memory, requests, the pending pod and all other parts of the score are as before.

Two hours, as jobs live for minutes and services mostly to the end of a world, so that no one horizon fits both, and a
scale that is measured in a quarter of an hour is not worth more.

A pod's own day before is that of the replay, by the product's rounds, so it is never newer than the snapshot. No pod of
the worlds runs at minute 0: services arrive in the first hours, as in a cluster that is observed from its start. So for
times before minute 0 a service's pod has its owner's day -1 times its request, as a replacement inherits the last day
of a pod that is gone. A window before minute 0 is not compared with steps after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from runtime.kubernetes.objects import CPU, Pod
from scoring.arrays import Float64s, Int64s
from scoring.load.use_levels import NO_LEVELS
from scoring.plugins.base import Rows, ScorePlugin, Terms
from scoring.plugins.congestion import cost_of_use, level_of
from scoring.plugins.congestion_cost import CongestionCost
from scoring.profiles.profile import PreparedProfile
from scoring.table.node_table import NodeTable
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES, UseRounds
from trimaran.traces.history import STEPS_A_DAY

AHEAD, WINDOW, MAX_SCALE = 24, 3, 4.0  # steps, steps
_WORST = AHEAD // 4
_STEPS, _SMALLEST, _UNMEASURED = 2.0**20, 2.0**-500, float(np.iinfo(np.int64).min)


class NodeCourses:
    """Change of each node's CPU use in the next steps, by the past day of its pods.

    Args:
        cluster: the simulated cluster, whose nodes stay the same.
        watcher: the watcher, which limits how recent the known use is.
        worst: whether only the steps with the highest use of each node count.

    Attributes:
        change: change in each step, millicores, shape (steps, nodes).
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher, *, worst: bool) -> None:
        trace = cluster.trace
        self._cluster, self._watcher, self._worst = cluster, watcher, worst
        self._rounds = UseRounds(cluster)
        # Millicores of each pod in steps of five minutes, from the day before minute 0 on; NaN until it is measured.
        steps = STEPS_A_DAY + trace.minutes // ROUND_MINUTES
        self._use: Float64s = np.full((len(trace.pods), steps), np.nan)
        history = trace.history
        if history is not None:
            newest = np.flatnonzero(history.days == -1).tolist()
            rows = {(history.owner_kinds[row], history.owners[row]): row for row in newest}
            for pod, owner in enumerate(zip(trace.owner_kinds, trace.owners, strict=True)):
                if owner in rows and not cluster.is_job(pod):
                    self._use[pod, :STEPS_A_DAY] = history.cpu[rows[owner]] * float(trace.cpu_request_milli[pod])
        self.change: Float64s = np.zeros((AHEAD, len(cluster.nodes)))

    def update(self) -> None:
        """Compute the change for the pods that run now."""
        for measured in self._rounds.known(self._watcher.known_until()):
            self._use[measured.pods, STEPS_A_DAY + measured.until // ROUND_MINUTES - 1] = 1000 * measured.cores
        runs = self._cluster.running.values()
        row = {number: row for row, number in enumerate(self._cluster.numbers.tolist())}
        rows = np.array([row[run.node] for run in runs], np.int64)
        change = np.zeros((len(row), AHEAD))
        np.add.at(change, rows, self.pod_changes(np.array([run.pod for run in runs], np.int64)))
        self.change = np.sort(change.T, axis=0)[-_WORST:] if self._worst else change.T

    def pod_changes(self, pods: Int64s) -> Float64s:
        """Return the change of each pod's use in each step, millicores, shape (pods, steps)."""
        then = self._rounds.until // ROUND_MINUTES  # the first step ahead, a day before
        if then < WINDOW:
            return np.zeros((len(pods), AHEAD))
        window = self._use[pods, STEPS_A_DAY + then - WINDOW : STEPS_A_DAY + then].mean(axis=1)
        before = self._use[pods, then - WINDOW : then].mean(axis=1)
        ahead = self._use[pods, then : then + AHEAD]
        if then - WINDOW < STEPS_A_DAY:
            ahead[:, max(STEPS_A_DAY - then, 0) :] = np.nan  # the pod's own use, where ``before`` is its owner's
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.minimum(window / before, MAX_SCALE)
        return np.nan_to_num(scale[:, None] * (ahead - before[:, None]))


@dataclass(frozen=True, eq=False)
class CourseCost(CongestionCost):
    """CongestionCost with the use of CPU in several steps.

    Attributes:
        courses: change of the nodes' use in each step.
    """

    courses: NodeCourses = field(kw_only=True)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:
        """Return the terms of CongestionCost, with the mean rise in the cost of CPU use over the steps."""
        terms = super().pod_terms(pods, node, nodes, rows)
        (cpu,) = (congested for congested in self.resources if congested.resource.name == CPU)
        divisor, expected = node["_cpu.divisor"], terms["cpu.pod_use"]
        part = 1.0 if self.levels is NO_LEVELS else 1 - self.learnt
        use = node["cpu.use"] + part * self.courses.change[:, rows][:, None]  # (steps, 1, nodes)
        variance, after = node.get("cpu.variance"), None
        level = level_of(use + expected, divisor)
        if variance is not None:
            after = terms["cpu.deviation"] ** 2
        cost = cost_of_use(cpu, level, after, divisor)
        if variance is not None:  # above the target more deviation must not attract pods, as in CongestionCost
            cost = np.where(level > 1, np.maximum(cost, cost_of_use(cpu, level, variance, divisor)), cost)
        terms["cpu.rise"] = (cost - cost_of_use(cpu, level_of(use, divisor), variance, divisor)).mean(axis=0)
        names = [congested.resource.name for congested in self.resources]
        rise = np.sum([terms[f"{name}.rise"] + terms[f"{name}.requested_rise"] for name in names], axis=0)
        rise = rise * terms["crowding"] * self.stranding ** terms["stranding"]
        terms["rise"] = rise
        # As CongestionCost: millionths of the logarithm, and less than any rise for a node without metrics.
        score = -_STEPS * np.log2(np.maximum(rise, _SMALLEST))
        terms["score"] = np.where(node["measured"], score, _UNMEASURED).astype(np.int64)
        return terms


@dataclass(frozen=True)
class CoursePolicy(ProfilePolicy):
    """Policy whose CongestionCost counts the past day's course of the nodes' pods.

    Attributes:
        worst: whether only the steps with the highest use count.
    """

    worst: bool = False

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "CourseChooser":
        """Return a chooser for one replay."""
        return CourseChooser(self, cluster, watcher, rng)


class CourseChooser(ProfileChooser):
    """Choices by CongestionCost with the course of the nodes' pods, which is computed once per snapshot."""

    def __init__(
        self, policy: CoursePolicy, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        super().__init__(policy, cluster, watcher, rng)
        self.courses = NodeCourses(cluster, watcher, worst=policy.worst)
        plugins = (replace(each, plugin=self._with_course(each.plugin)) for each in self._profile.plugins)
        self._profile = replace(self._profile, plugins=tuple(plugins))

    def prepared(self) -> PreparedProfile:
        """Return the profile prepared with the current snapshot and its courses."""
        if self._watcher.snapshot() is not self._snapshot:
            self.courses.update()
        return super().prepared()

    def _with_course(self, plugin: ScorePlugin) -> ScorePlugin:
        if not isinstance(plugin, CongestionCost):
            return plugin
        return CourseCost(**{each.name: getattr(plugin, each.name) for each in fields(plugin)}, courses=self.courses)
