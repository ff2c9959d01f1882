"""Errors of predictions of CPU use: of the use of nodes in the next hour, and of the use of pending pods by workload.

While a policy of the catalogue is replayed, predictions are compared with the use that follows. Every 30 minutes the
mean use of each node's present pods in the next 60 minutes is predicted by several formulas, in parts of the node's
CPU. ``u``, by which CongestionCost scores with levels, is the mean of the measured use and the learned use; the other
formulas are in ``research/evidence/next-hour.md``. Only differences between nodes decide a placement, so each minute's
mean error over all nodes is subtracted before errors are squared.

Every third pending pod is compared with its mean use in its first four hours, by the kind of its owner and the time for
which its workload has been measured.

    python research/use_prediction.py WORLD [WORLD ...] [--policy congestion-cost] [--seed 0]
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from runtime.kubernetes.objects import CPU, Pod
from scoring.arrays import Float64s, Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.plugins.congestion_cost import CongestionCost
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.ledger import CPU_ROW
from trimaran.simulator.policies.catalogue import CONGESTION, policies
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import unix_seconds
from trimaran.traces.reading import read_trace
from watcher.usage.learn.learner import WorkloadLearner
from watcher.workload_table import WorkloadTable

AHEAD_MINUTES, EVERY_MINUTES, POD_MINUTES, EVERY_PODS = 60, 30, 240, 3
_PRIOR_MINUTES, _MAX_TREND = 60.0, 0.1

PodKey = tuple[str, str]
"""Kind of owner, and time for which its workload was measured."""


@dataclass
class Errors:
    """Predictions of nodes' and pods' use, with the use that followed.

    Attributes:
        nodes: by formula, the errors of each sampled minute's nodes, in parts of their CPU.
        pods: by group, request, expected use, its deviation and the use that followed of each pod, millicores.
    """

    nodes: dict[str, list[Float64s]]
    pods: dict[PodKey, list[tuple[float, float, float, float]]]


@dataclass(frozen=True)
class RecordingPolicy(ProfilePolicy):
    """Policy of the catalogue whose replay records the errors of predictions."""

    errors: Errors | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> ProfileChooser:
        """Return a chooser for one replay."""
        return RecordingChooser(self, cluster, watcher, rng)


class RecordingChooser(ProfileChooser):
    """Choices of a policy, with predictions before some of them."""

    def __init__(
        self, policy: RecordingPolicy, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        super().__init__(policy, cluster, watcher, rng)
        self._cluster, self._watcher, self._errors = cluster, watcher, policy.errors
        self._past = UseHistory(cluster, watcher)
        self._next_sample = cluster.trace.warm_up_minutes
        self._pods = 0

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row with the highest score, and record the errors of predictions."""
        cluster = self._cluster
        if cluster.minute >= cluster.trace.warm_up_minutes and self._errors is not None:
            levels = self._past.levels()
            if self._next_sample <= cluster.minute <= cluster.trace.minutes - AHEAD_MINUTES:
                self._next_sample = cluster.minute + EVERY_MINUTES
                self._record_nodes(self._errors, levels)
            self._pods += 1
            if self._pods % EVERY_PODS == 0:
                self._record_pod(self._errors, number, pod, levels)
        return super().choose(number, pod, candidates)

    def _record_nodes(self, errors: Errors, levels: UseLevels) -> None:
        cluster, snapshot = self._cluster, self._watcher.snapshot()
        if snapshot is None:
            return
        now, rows, cpu = cluster.minute, np.arange(len(cluster.nodes)), cluster.capacity[CPU_ROW]
        terms = CongestionCost(levels=levels).node_terms(cluster.nodes, MetricsTable.align(snapshot, cluster.nodes))
        measured = (terms["cpu.measured_use"] + terms["cpu.missing_use"]) / cpu
        use = cluster.ledger.use[CPU_ROW][cluster.numbers] / cpu[:, None]
        ends = self._watcher.known_until() - 60
        hour_ago = np.minimum(use[:, max(ends - 15, 0) : max(ends, 1)], 1).mean(axis=1)
        trend = np.clip((terms["cpu.measured_use"] / cpu - hour_ago) / 2, -_MAX_TREND, _MAX_TREND)

        def learned(change: Callable[[WorkloadTable], WorkloadTable]) -> Float64s:
            changed = UseLevels.of_workloads(change(self._past.learner.table()), levels)
            return np.asarray(changed.expected_on(cluster.nodes, rows, CPU)[0] / cpu)

        mean = terms["cpu.expected_use"] / cpu
        of_hours = hourly_use(self._past.learner)
        soon, first, last = ((unix_seconds(now + ahead) // 3600) % 24 for ahead in (AHEAD_MINUTES // 2, 0, 60))
        course = learned(lambda table: _with_cpu(table, of_hours[:, soon]))
        highest = learned(
            lambda table: _with_cpu(table, np.maximum(table.use[0], of_hours[:, [first, last]].max(axis=1)))
        )
        predicted = {
            "u": (measured + mean) / 2,
            "measured": measured,
            "learned": mean,
            "1 course of the day": (measured + course) / 2,
            "2 level and trend": (measured + mean) / 2 + trend,
            "3 highest of the same hours": (measured + highest) / 2,
        }
        follows = use[:, now : now + AHEAD_MINUTES].mean(axis=1)
        for name, values in predicted.items():
            errors.nodes[name].append(values - follows - (values - follows).mean())

    def _record_pod(self, errors: Errors, number: int, pod: Pod, levels: UseLevels) -> None:
        cluster, learner = self._cluster, self._past.learner
        place = None if pod.workload is None else learner.workloads.get(pod.workload)
        seen = learner.rows["minutes"][learner.rows["workload"] == place, CPU_ROW]
        age = "unknown" if not len(seen) else "below an hour" if seen.max() < 60 else "an hour or more"
        request = float(cluster.requests(number)[CPU_ROW])
        follows = float(cluster.series(number, cluster.minute)[CPU_ROW, :POD_MINUTES].mean())
        deviation = levels.deviation(pod.kin, CPU, 1.0, request)
        kind = "job" if cluster.is_job(number) else "service"
        errors.pods[kind, age].append((request, levels.expected_use(pod, CPU), deviation, follows))


def hourly_use(learner: WorkloadLearner) -> Float64s:
    """Return the CPU use of each workload by hour of the day, cores, shape (workloads, 24).

    Each workload has one container, as in replays, so that the rows of the learner are the workloads.
    """
    mean = learner.table().use[0][:, None]
    sums, weights = (learner.rows[name][:, :, 0].astype(np.float64) for name in ("hour_sums", "hour_weights"))
    return np.asarray((sums + _PRIOR_MINUTES * mean) / (weights + _PRIOR_MINUTES))


def _with_cpu(table: WorkloadTable, cores: Float64s) -> WorkloadTable:
    return replace(table, use=np.stack([cores, table.use[1]]))


def record(folders: list[Path], policy: str, seed: int) -> Errors:
    """Replay a policy of the catalogue in some worlds (replayed traces), and return the errors of predictions."""
    errors = Errors(defaultdict(list), defaultdict(list))
    for folder in folders:
        trace = read_trace(folder)
        chosen = policies(trace)[policy]
        if not isinstance(chosen, ProfilePolicy):
            raise SystemExit(f"--policy {policy}: does not score by a profile; choose congestion-cost, for example")
        known = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
        Replay(trace, RecordingPolicy(**known, errors=errors), ReplayOptions(seed=seed)).run()
    return errors


def node_table(errors: Mapping[str, list[Float64s]]) -> list[str]:
    """Return the rows of the table of predictions of nodes' use, as text."""
    square = {name: float(np.mean(np.concatenate(values) ** 2)) for name, values in errors.items()}
    lines = [f"{'formula':<28} {'error, % of CPU':>16} {'against u':>10}"]
    for name, mean in square.items():
        lines.append(f"{name:<28} {100 * mean**0.5:>16.2f} {100 * ((mean / square['u']) ** 0.5 - 1):>+9.1f}%")
    return lines


def pod_table(errors: Mapping[PodKey, list[tuple[float, float, float, float]]]) -> list[str]:
    """Return the rows of the table of predictions of pods' use, as text."""
    titles = ("pods", "request", "expected", "deviation", "use", "error", "of request")
    lines = [f"{'owner':<8} {'measured for':<16}" + "".join(f"{title:>11}" for title in titles)]
    for (kind, age), rows in sorted(errors.items()):
        request, expected, deviation, use = np.array(rows).T
        by_request = request * use.sum() / request.sum()
        error, of_request = (np.sqrt(((values - use) ** 2).mean()) for values in (expected, by_request))
        amounts = (len(rows), *(v.mean() for v in (request, expected, deviation, use)), error, of_request)
        lines.append(f"{kind:<8} {age:<16}" + "".join(f"{amount:>11,.0f}" for amount in amounts))
    return lines


def main() -> None:
    """Print both tables; amounts of pods are in millicores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", type=Path, nargs="+", metavar="WORLD", help="a trace's folder")
    parser.add_argument("--policy", default=CONGESTION)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    errors = record(arguments.worlds, arguments.policy, arguments.seed)
    print(*node_table(errors.nodes), "", *pod_table(errors.pods), sep="\n")


if __name__ == "__main__":
    main()
