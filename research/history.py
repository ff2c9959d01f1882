"""Worth of what workloads used on earlier days: replays by requests, with levels that begin cold, and with a history.

    python research/history.py worlds --into DIR --set generated --seeds 301-312
    python research/history.py worlds --into DIR --set planetlab --part judge --data DATA WORLD...
    python research/history.py replay --results FILE --variants requests,cold,hour-1 --seeds 0-3 [--classes] WORLD...
    python research/history.py table --results FILE... [--worlds PREFIX] [--against requests] [--csv]

A variant is ``requests``, ``cold`` (levels without a history), FORMULA-DAYS, or one of ``past_course.py``. ``replay``
continues a file of results; ``--classes`` splits hot pod-minutes by ``pod_classes.py``. ``table`` sums over worlds, or
with ``--csv`` lists the means of each.

The formulas, written down before any was measured. A day of a workload has a mean, a mean square and minutes:

- ``hour``: the newest day's mean, as if observed for an hour at most: as the learner shipped then.
- ``days``: each day weighs as if the learner had been there: its minutes, times 1/e for each day of age.
- ``shipped``: the learner as it ships now, which has ``days`` for pods of the present revision, ``hour`` for others.
- ``error``: as ``days``, and the deviation has the error of each day's mean, predicted by the days before, too; with
  one day it is taken as 25 percent.
- ``auto``: as ``error``; a pod's use is w times what was learned, with its deviation, and 1 - w times its request;
  w = m / (m + 240) / (1 + e ^ 2), with the minutes m observed and the relative error e. It is 0 without a past.
- ``revision``: as ``auto``; days of another revision than the pods' weigh a quarter.

Worlds of PlanetLab have a quarter of the nodes and of the owners of a world in a folder, with requests, lives and mean
levels of its first 48 hours. Their services are like slices of PlanetLab (research networks' VMs of one project on many
hosts): each pod follows a VM of the slice, and the slice's days before are the owner's history. The six days of March
and April 2011 count as if they were in a row: the last two are replayed. Jobs keep their own use in worlds with even
numbers; in odd ones all runs of an owner have its mean level. The parts ``tune`` and ``judge`` share no slice.
"""

import argparse
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from past_course import CoursePolicy
from pod_classes import by_class
from recombined import mean_requests, mean_use, scaled
from replay_rows import replay_missing, table, write_means

from scoring.arrays import Float64s
from scoring.load.use_levels import UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.profiles import ProfileChooser, ProfilePolicy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import JOB, LIMIT_COLUMNS, PodUse, Trace, write_trace

MEASURES = (
    "hot_minutes_70", "hot_minutes_80", "hot_minutes_90", "memory_overrun_minutes", "waited_pod_minutes",
    "unplaced_pods", "throttled_core_seconds", "service_hot_pod_minutes", "job_hot_pod_minutes",
)  # fmt: skip
_FIRST_ERROR, _HALF_MINUTES, _OTHER_REVISION = 0.25, 240.0, 0.25
_DAYS_OF_LEVELS = 14  # of levels with a course
_RECURRING = 0.65  # of the owners of jobs
_MINUTES = 2 * 1440  # of a world of donors
_LEAST_VMS = 4  # of a slice
_NODES = 4  # one of so many nodes and owners of the world in the folder


def last_days(history: TraceHistory, days: int) -> TraceHistory:
    """Return the newest days of a history."""
    rows = np.flatnonzero(history.days >= -days)
    names = (history.owner_kinds, history.owners, history.revisions)
    chosen = (tuple(column[row] for row in rows.tolist()) for column in names)
    return TraceHistory(*chosen, history.days[rows], history.cpu[rows], history.memory[rows])


class WeighedHistory(UseHistory):
    """Learned use whose past days count by a formula of this module."""

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher, formula: str) -> None:
        super().__init__(cluster, watcher)
        self._formula = formula
        self._errors: dict[Any, Float64s] = {}
        if formula not in ("hour", "shipped") and cluster.trace.history is not None:
            self._weigh(cluster.trace.history)

    def _weigh(self, history: TraceHistory) -> None:
        """Replace what the learner has of the past days by the weighed days."""
        learner, requests = self.learner, self._cluster.trace.mean_requests()
        days: dict[tuple[str, str], list[int]] = {}
        for row in np.argsort(history.days).tolist():  # the oldest day first
            days.setdefault((history.owner_kinds[row], history.owners[row]), []).append(row)
        for place, key in enumerate(learner.keys):
            owner = key.workload.kind, key.workload.name
            weights, sums, squares, minutes = np.zeros((4, 2))
            errors: list[Float64s] = []
            for row in days[owner]:
                values = np.array([history.cpu[row], history.memory[row]], np.float64) * requests[owner][:, None]
                known = np.isfinite(values).sum(axis=1)
                if not known.all():
                    continue
                mean, square = np.nanmean(values, axis=1), np.nanmean(values**2, axis=1)
                is_other = self._formula == "revision" and history.revisions[row]
                weight = 5.0 * known * np.exp(history.days[row] + 1) * (_OTHER_REVISION if is_other else 1)
                if weights.all():
                    errors.append(mean - sums / weights)
                weights, sums, squares = weights + weight, sums + weight * mean, squares + weight * square
                minutes = minutes + 5.0 * known
            if not weights.all():
                continue
            error = np.sqrt(np.mean(np.square(errors), axis=0)) if errors else _FIRST_ERROR * sums / weights
            squares = squares + weights * error**2 * (self._formula != "days")
            self._errors[key.workload] = error / np.maximum(sums / weights, 1e-9)
            for name, amount in (("weights", weights), ("sums", sums), ("squares", squares), ("minutes", minutes)):
                learner.rows[name][place] = amount

    def levels(self) -> UseLevels:
        """Return the expected use of pods by workload, for ``auto`` mixed with their requests."""
        before = self._levels
        levels = super().levels()
        if self._formula not in ("auto", "revision") or levels is before:
            return levels
        table = self.learner.table()
        minutes = np.zeros((2, len(table)))
        np.maximum.at(minutes.T, self.learner.rows["workload"], self.learner.rows["minutes"])
        none = np.zeros(2)
        errors = np.array([self._errors.get(workload, none) for workload in table.workloads]).reshape(-1, 2).T
        weight = minutes / (minutes + _HALF_MINUTES) / (1 + errors**2)
        named = dict(zip(("cpu", "memory"), np.column_stack([weight, np.zeros(2)]), strict=True))
        self._levels = UseLevels(
            levels.owners,
            {name: 1 - share for name, share in named.items()},
            {name: 0 * share for name, share in named.items()},
            {name: share * levels.uses[name] for name, share in named.items()},
            {name: share * levels.use_deviations[name] for name, share in named.items()},
            levels.timestamp,
        )
        return self._levels


@dataclass(frozen=True)
class HistoryPolicy(ProfilePolicy):
    """Policy of the catalogue whose learned use begins with a history."""

    formula: str = "shipped"

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> ProfileChooser:
        """Return a chooser for one replay."""
        chooser = ProfileChooser(self, cluster, watcher, rng)
        chooser._history = WeighedHistory(cluster, watcher, self.formula)  # noqa: SLF001  no other policy chooses it
        return chooser


def replayed(trace: Trace, variant: str, seed: int) -> ReplayOutcome:
    """Return the outcome of a replay of a world by a variant."""
    formula, _, days = variant.partition("-")
    catalogue = policies(trace)
    known: Any = catalogue["congestion-cost"]
    if variant in ("requests", "cold"):
        policy: Any = catalogue["congestion-cost-by-requests" if variant == "requests" else "congestion-cost"]
        trace = replace(trace, history=None)
    elif variant in catalogue:
        policy, trace = catalogue[variant], replace(trace, history=None)
    elif formula.startswith("course"):
        assert trace.history is not None
        learns, worst = variant.endswith("+levels"), "-worst" in variant
        trace = replace(trace, history=last_days(trace.history, _DAYS_OF_LEVELS))
        policy = CoursePolicy(variant, known.profile, learns=learns, worst=worst)
    else:
        assert trace.history is not None
        history = last_days(trace.history, int(days))
        if formula == "hour":
            history = replace(history, revisions=("earlier",) * len(history.revisions))
        trace = replace(trace, history=history)
        policy = HistoryPolicy(variant, known.profile, learns=True, formula=formula)
    return Replay(trace, policy, ReplayOptions(seed=seed)).run()


def outcome(trace: Trace, variant: str, seed: int) -> dict[str, float]:
    """Return the measures of a replay of a world by a variant."""
    measured = measures(replayed(trace, variant, seed))
    return {name: measured[name] for name in MEASURES}


def classes(trace: Trace, variant: str, seed: int) -> dict[str, float]:
    """Return the hot pod-minutes of a replay of a world by a variant, by class of pod."""
    return by_class(replayed(trace, variant, seed), trace.history)


def generated(seeds: Sequence[int], folder: Path) -> None:
    """Write generated worlds with 14 days of history; jobs of odd seeds are like their owner's others."""
    for seed in seeds:
        world = Synthetic(seed, 16, 24 * 60, 6 * 60, 0.54, history_days=14, alike_jobs=bool(seed % 2))
        write_trace(world.trace(), folder / f"generated-{seed}")


@dataclass(frozen=True)
class Slice:
    """Slice of PlanetLab, a project with VMs on many hosts, whose six days count as if they were in a row.

    Attributes:
        replayed: use of each VM that has the last two days, shape (VMs, 576), divided by the mean of all of them.
        past: mean use of the VMs on the four days before, the newest first, in the same unit, shape (4, 288); NaN for
            a day without VMs.
    """

    replayed: Float64s
    past: Float64s


def slices(data: Path, part: str) -> list[Slice]:
    """Return the slices of a part that have at least four VMs on both of the last two days."""
    with np.load(data / "planetlab" / "planetlab_cpu_288x5min.npz", allow_pickle=False) as archive:
        days = sorted(name for name in archive.files if not name.endswith("_names"))
        known = [dict(zip(archive[f"{day}_names"].tolist(), archive[day] / 100, strict=True)) for day in days]
    by_slice: dict[str, list[dict[str, Float64s]]] = {}
    for number, of_day in enumerate(known):
        for name, use in of_day.items():
            words = name.split("_")
            named = "root" if words[-1] == "root" else "_".join(words[-2:])
            by_slice.setdefault(named, [{} for _ in known])[number][name] = use
    result = []
    for name, of_days in sorted(by_slice.items()):
        *before, first, second = of_days
        both = sorted(first.keys() & second.keys())
        if len(both) >= _LEAST_VMS and ("tune", "judge")[zlib.crc32(name.encode()) % 2] == part:
            replayed = np.array([np.concatenate([first[vm], second[vm]]) for vm in both])
            unknown = np.full(STEPS_A_DAY, np.nan)
            past = [np.mean(list(day.values()), axis=0) if day else unknown for day in reversed(before)]
            mean = max(float(replayed.mean()), 1e-3)
            result.append(Slice(replayed / mean, np.array(past) / mean))
    return result


def as_full(taken: Trace, whole: Trace) -> Trace:
    """Return a part of a world with requests scaled to the whole world's shares of use and requests on its nodes."""
    size = taken.cpu_capacity_milli.sum() / whole.cpu_capacity_milli.sum()
    cpu = mean_use(whole) * size / mean_use(taken)
    bytes_there, bytes_here = (mean_requests(each, each.memory_request_bytes) for each in (whole, taken))
    memory = bytes_there / bytes_here * taken.memory_capacity_bytes.sum() / whole.memory_capacity_bytes.sum()
    scale = {"cpu_request_milli": cpu, "cpu_limit_milli": cpu}
    scale |= {"memory_request_bytes": memory, "memory_limit_bytes": memory}
    columns: dict[str, Any] = {name: scaled(getattr(taken, name), float(factor)) for name, factor in scale.items()}
    taken = replace(taken, **columns)
    more = mean_requests(taken, taken.cpu_request_milli) / mean_requests(whole, whole.cpu_request_milli) / size
    return replace(taken, overcommit=(float(whole.overcommit[0] * more), whole.overcommit[1]))


class DonorWorld:
    """World whose services follow donors; see the module.

    Args:
        world: world of which the first two days are taken, but for the use over time.
        donors: slices that its services are like.
        number: seed; in odd worlds the jobs of an owner are alike.
    """

    def __init__(self, world: Trace, donors: Sequence[Slice], number: int) -> None:
        self._world, self._donors, self._alike = world, donors, bool(number % 2)
        self._rng = np.random.default_rng([number, 57])
        self._end = np.minimum(world.end_minute, _MINUTES)
        alive = (world.arrival_minute < _MINUTES) & (self._end > world.arrival_minute)
        owners = sorted(set(zip(world.owner_kinds, world.owners, strict=True)))
        drawn = {owner for owner in owners if self._rng.random() < 1 / _NODES}
        named = list(zip(world.owner_kinds, world.owners, strict=True))
        self._pods: list[int] = [pod for pod in np.flatnonzero(alive).tolist() if named[pod] in drawn]
        self._cpu: dict[int, Float64s] = {}
        self._rows: list[tuple[str, str, int, Float64s, float]] = []

    def trace(self, name: str) -> Trace:
        """Return the world."""
        world, pods = self._world, np.array(self._pods)
        by_owner: dict[tuple[str, str], list[int]] = {}
        for pod in self._pods:
            by_owner.setdefault((world.owner_kinds[pod], world.owners[pod]), []).append(pod)
        for (kind, owner), members in by_owner.items():
            (self._add_jobs if kind == JOB else self._add_service)(kind, owner, members)
        kinds, owners, days, past, highest = map(list, zip(*self._rows, strict=True))
        cpu = np.array(past, np.float16)
        memory = np.where(np.isnan(cpu), np.nan, np.array(highest)[:, None]).astype(np.float16)
        nodes = np.argsort(world.cpu_capacity_milli, kind="stable")[_NODES // 2 :: _NODES]
        of_pods = ("arrival_minute", "cpu_request_milli", "memory_request_bytes", *LIMIT_COLUMNS)
        of_nodes = ("cpu_capacity_milli", "memory_capacity_bytes")
        names = {each: [getattr(world, each)[pod] for pod in self._pods] for each in ("pods", "owner_kinds", "owners")}
        series = [(self._cpu[pod], self._own(pod, "memory")) for pod in self._pods]
        taken = replace(
            world,
            name=name,
            nodes=tuple(world.nodes[place] for place in nodes.tolist()),
            minutes=_MINUTES,
            end_minute=self._end[pods],
            priority=None,
            use=PodUse(
                np.concatenate([[0], np.cumsum([len(each) for each, _ in series])]),
                *(np.concatenate(each).astype(np.float16) for each in zip(*series, strict=True)),
            ),
            history=TraceHistory(tuple(kinds), tuple(owners), ("",) * len(kinds), np.array(days), cpu, memory),
            **{each: getattr(world, each)[pods] for each in of_pods},
            **{each: getattr(world, each)[nodes] for each in of_nodes},
            **{each: tuple(values) for each, values in names.items()},
        )
        return as_full(taken, replace(world, minutes=_MINUTES))

    def _own(self, pod: int, resource: str = "cpu") -> Float64s:
        """Return the use of a pod in the world that the donors' is put into."""
        first, world = int(self._world.use.offsets[pod]), self._world
        last = first + int(self._end[pod] - world.arrival_minute[pod])
        return np.asarray(getattr(world.use, resource)[first:last], np.float64)

    def _mean(self, members: Sequence[int], resource: str = "cpu") -> float:
        return float(np.mean([self._own(pod, resource).mean() for pod in members]))

    def _add_jobs(self, kind: str, owner: str, members: Sequence[int]) -> None:
        """Add an owner of jobs: with their own use and a past of any jobs, or with a level of the owner's."""
        rng, level, highest = self._rng, self._mean(members), self._mean(members, "memory")
        for pod in members:
            series = self._own(pod)
            scale = level / max(float(series.mean()), 1e-3) if self._alike else 1.0
            self._cpu[pod] = np.clip(series * scale, 0, 4)
        for day in range(-1, -15, -1) if rng.random() < _RECURRING else ():
            mean = level * rng.lognormal(0, 0.2) if self._alike else self._mean([int(rng.choice(self._jobs()))])
            use = np.where(rng.random(STEPS_A_DAY) < 0.5, mean, np.nan)
            self._rows.append((kind, owner, day, use, highest))

    def _jobs(self) -> list[int]:
        return [pod for pod in self._pods if self._world.owner_kinds[pod] == JOB]

    def _add_service(self, kind: str, owner: str, members: Sequence[int]) -> None:
        """Add an owner of services, which is like a slice: each pod follows a VM of it."""
        donor = self._donors[int(self._rng.integers(len(self._donors)))]
        level, highest = self._mean(members), self._mean(members, "memory")
        for pod in members:
            begin, end = int(self._world.arrival_minute[pod]), int(self._end[pod])
            curve = np.repeat(donor.replayed[int(self._rng.integers(len(donor.replayed)))], 5)
            self._cpu[pod] = np.clip(level * curve[begin:end], 0, 4)
        for age, values in enumerate(donor.past, start=1):
            if np.isfinite(values).any():
                self._rows.append((kind, owner, -age, np.clip(level * values, 0, 4), highest))


def numbers(text: str) -> list[int]:
    """Parse ``301-312`` or ``3``, for argparse."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    """Parse the command line, and do one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    worlds = steps.add_parser("worlds")
    worlds.add_argument("--into", type=Path, required=True)
    worlds.add_argument("--set", choices=("generated", "planetlab"), required=True)
    worlds.add_argument("--seeds", type=numbers, default=[])
    worlds.add_argument("--part", choices=("tune", "judge"), default="judge")
    worlds.add_argument("--data", type=Path)
    worlds.add_argument("worlds", type=Path, nargs="*")
    runs = steps.add_parser("replay")
    runs.add_argument("--results", type=Path, required=True)
    runs.add_argument("--variants", required=True)
    runs.add_argument("--seeds", type=numbers, default=[0])
    runs.add_argument("--classes", action="store_true")
    runs.add_argument("worlds", type=Path, nargs="+")
    tables = steps.add_parser("table")
    tables.add_argument("--results", type=Path, nargs="+", required=True)
    tables.add_argument("--worlds", default="")
    tables.add_argument("--against", default="requests")
    tables.add_argument("--csv", action="store_true")
    arguments = parser.parse_args()
    if arguments.step == "replay":
        variants, measured = arguments.variants.split(","), classes if arguments.classes else outcome
        replay_missing(arguments.worlds, variants, arguments.seeds, arguments.results, measured)
    elif arguments.step == "table" and arguments.csv:
        write_means(arguments.results, arguments.worlds, sys.stdout)
    elif arguments.step == "table":
        table(arguments.results, arguments.worlds, arguments.against)
    elif arguments.set == "generated":
        generated(arguments.seeds, arguments.into)
    elif arguments.data is None:
        sys.exit("--data: name the folder with the folder planetlab")
    else:
        donors = slices(arguments.data, arguments.part)
        for number, folder in enumerate(arguments.worlds, start=1 if arguments.part == "judge" else 101):
            name = f"{arguments.set}-{arguments.part}-{number}"
            write_trace(DonorWorld(read_trace(folder), donors, number).trace(name), arguments.into / name)


if __name__ == "__main__":
    main()
