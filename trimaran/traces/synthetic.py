"""Synthetic trace with published statistics, for experiments without a trace of a real cluster.

Random variables and their sources:

- Nodes: machine shapes of Google's 2011 cluster with their shares (Reiss et al., SoCC 2012, table 1).
- Services: few owners have most of the pods (Pareto tail). Nearly all pods run to the end. Most arrive in the first
  hours, as in a cluster that is observed from its start.
- Jobs: Poisson arrivals in bursts of one owner; log-normal lifetimes with a median of minutes and a mean of an hour
  (Reiss et al.; Weng et al., NSDI 2022).
- Levels (use as a share of the request): beta-distributed with a mean of 0.29 for CPU and 0.67 for memory (Luo et al.,
  SoCC 2021); they vary mostly between owners, and little between the pods of one owner.
- Use over time: a daily cycle with an amplitude and a phase per owner, noise per owner and per pod with a correlation
  time of at most a quarter of an hour, and rare bursts (Tirmazi et al., EuroSys 2020).

- Use on earlier days, with ``history_days``: the same daily cycle, other noise. A day's mean differs from the owner's
  by 5 to 35 percent, by a trend of 2 percent a day, and at the weekend by up to -40 percent: daily means of Bitbrains'
  VMs (Shen et al., CCGrid 2015) and PlanetLab's. The trace begins on a Wednesday, and is the same without a history.
- Of the services 1 percent a day are new, as in Alibaba's DLRM trace of 2025 (0.8 percent), and so are those that
  arrive after the first hours. 5 percent a day change (assumed): a new revision, whose use differs by 25 percent.
  65 percent of the owners of jobs recur (Weng et al., NSDI 2022). Services that ended earlier are left out.

Finally the requests are scaled: mean CPU use becomes ``mean_use`` of capacity, and requests after overcommit become
``requested`` of allocatable. The pairing of pods and nodes and the time series are not real: report results as
"synthetic".
"""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.trace import JOB, PodUse, Trace

_GIB = 1024**3
# Share of machines; CPU and memory relative to the largest machine.
_SHAPES = ((0.535, 0.5, 0.5), (0.31, 0.5, 0.25), (0.08, 0.5, 0.75), (0.065, 1.0, 1.0), (0.01, 0.25, 0.25))
_LARGEST = (64_000, 256 * _GIB)
_DAY = 1440
_FIRST_HOURS = 600  # services that arrive before this minute count as older than the trace
_NEW, _CHANGED, _RECURRING = 0.01, 0.05, 0.65
_WEEKEND_DAYS = (-3, -4, -10, -11)  # the trace begins on a Wednesday

_Course = tuple[float, float, float]  # height and hour of the daily cycle, and size of the noise


@dataclass(frozen=True)
class Synthetic:
    """Generator of a synthetic trace.

    Attributes:
        seed: random seed.
        nodes: number of nodes.
        minutes: length of the trace.
        warm_up_minutes: first part of the trace, which is not measured.
        mean_use: mean CPU use after the warm-up, as a share of capacity.
        requested: mean CPU requests after overcommit, as a share of capacity.
        cpu_level: mean CPU use of services, as a share of the request.
        memory_level: mean memory use of services, as a share of the request.
        jobs_share: share of the CPU use that is due to jobs.
        rollouts: share of the services' owners that replace all their pods once, after the warm-up.
        history_days: days before minute 0 whose use is known, at most 14.
        alike_jobs: whether the jobs of an owner have its level of use; otherwise each job has a level of its own, so
            that nothing can be learned from earlier ones.
    """

    seed: int = 0
    nodes: int = 60
    minutes: int = 3600
    warm_up_minutes: int = 720
    mean_use: float = 0.5
    requested: float = 0.88
    cpu_level: float = 0.29
    memory_level: float = 0.67
    jobs_share: float = 0.2
    rollouts: float = 0.0
    history_days: int = 0
    alike_jobs: bool = True

    def trace(self) -> Trace:
        """Generate the trace."""
        return _Generator(self).trace()


class _Generator:
    def __init__(self, world: Synthetic) -> None:
        self.world = world
        self.rng = np.random.default_rng([world.seed, 20_110_501])
        self.pods: list[tuple[str, str, int, int, float, float]] = []  # kind, owner, arrival, end, requests
        self.cpu: list[Float64s] = []
        self.memory: list[Float64s] = []
        self.past_rng = np.random.default_rng([world.seed, 20_110_502])  # a history must change nothing else
        self.past: list[tuple[str, str, str, int, Float64s, Float64s]] = []  # columns of a history

    def trace(self) -> Trace:
        world, rng = self.world, self.rng
        shapes = np.array(_SHAPES)
        drawn = rng.choice(len(shapes), world.nodes, p=shapes[:, 0] / shapes[:, 0].sum())
        cpu_capacity = (shapes[drawn, 1] * _LARGEST[0]).astype(np.int64)
        memory_capacity = (shapes[drawn, 2] * _LARGEST[1]).astype(np.int64)
        total = float(cpu_capacity.sum())
        self._services(total * world.mean_use * (1 - world.jobs_share))
        self._jobs(total * world.mean_use * world.jobs_share)
        return self._scale(cpu_capacity, memory_capacity)

    def _services(self, use_milli: float) -> None:
        """Add owners of services until the mean CPU use of their pods reaches ``use_milli`` millicores."""
        world, rng = self.world, self.rng
        used, number = 0.0, 0
        while used < use_milli:
            replicas = min(int(rng.pareto(0.9) + 1), world.nodes)
            cpu = float(rng.choice([500, 1000, 2000, 4000], p=[0.25, 0.35, 0.3, 0.1]))
            memory = cpu / 1000 * float(rng.choice([1, 2, 4, 8], p=[0.2, 0.35, 0.3, 0.15])) * _GIB
            level = float(rng.beta(1.6, 1.6 * (1 / world.cpu_level - 1)))
            memory_level = float(rng.beta(6, 6 * (1 / world.memory_level - 1)))
            shape, course = self._shape()
            first = int(rng.exponential(150)) if rng.random() < 0.9 else int(rng.uniform(0, world.minutes))
            rolled = int(rng.uniform(world.warm_up_minutes, world.minutes)) if rng.random() < world.rollouts else 0
            for _ in range(replicas):
                arrival = min(first + int(rng.exponential(20)), world.minutes - 1)
                end = world.minutes if rng.random() < 0.9 else int(rng.uniform(arrival + 1, world.minutes + 1))
                pod_level = level * float(rng.lognormal(0, 0.15))
                # A rollout ends the pod, and starts its replacement in the same minute.
                lifetimes = [(arrival, end)]
                if arrival < rolled < end:
                    replaced = min(rolled + int(rng.exponential(5)), end - 1)
                    lifetimes = [(arrival, replaced), (replaced, end)]
                for begin, stop in lifetimes:
                    self._add("Deployment", f"deployment-{number:03}", begin, stop, cpu, memory)
                    self._use(shape[begin:stop] * pod_level, memory_level)
                used += cpu * pod_level * (end - arrival) / world.minutes
            if first < _FIRST_HOURS:
                self._past_days("Deployment", f"deployment-{number:03}", level, memory_level, course)
            number += 1

    def _jobs(self, use_milli: float) -> None:
        """Add owners of jobs until the mean CPU use of their pods reaches ``use_milli`` millicores."""
        world, rng = self.world, self.rng
        used, number = 0.0, 0
        while used < use_milli:
            cpu = float(rng.choice([1000, 2000, 4000, 6000], p=[0.4, 0.3, 0.2, 0.1]))
            memory = cpu / 1000 * float(rng.choice([1, 2, 4], p=[0.3, 0.4, 0.3])) * _GIB
            level = float(rng.beta(3, 2))
            memory_level = float(rng.beta(5, 2))
            times = np.sort(rng.uniform(0, world.minutes, min(int(rng.pareto(0.8) + 1) * 2, 300)))
            for arrival in times.astype(int).tolist():
                life = max(int(rng.lognormal(np.log(6), 1.9)), 1)
                end = min(arrival + life, world.minutes)
                if end <= arrival:
                    continue
                noise = _correlated_noise(rng, end - arrival, 5)
                self._add("Job", f"job-{number:03}", arrival, end, cpu, memory)
                own_level = level if world.alike_jobs else float(rng.beta(3, 2))
                self._use(np.maximum(own_level * (1 + 0.25 * noise), 0.02), memory_level)
                used += cpu * own_level * (end - arrival) / world.minutes
            if self.past_rng.random() < _RECURRING:
                self._past_days(JOB, f"job-{number:03}", level, memory_level, None)
            number += 1

    def _past_days(self, kind: str, owner: str, level: float, memory_level: float, course: _Course | None) -> None:
        """Add the use of an owner on the days before the trace, the newest first.

        Args:
            kind: kind of the owner.
            owner: name of the owner.
            level: mean CPU use as a share of the request, in the trace.
            memory_level: memory use as a share of the request.
            course: daily cycle and noise of a service; None for jobs, which run half of the time.
        """
        world, rng = self.world, self.past_rng
        days = world.history_days if course is None else min(world.history_days, int(rng.geometric(_NEW)) - 1)
        deviation, trend, weekend = rng.uniform(0.05, 0.35), rng.normal(0, 0.02), rng.uniform(0.6, 1)
        height, hour, noise = course or (0.0, 0.0, 0.25)
        revision, changed = 0, 1.0
        for day in range(-1, -days - 1, -1):
            if course is not None and rng.random() < _CHANGED:
                revision, changed = revision - 1, changed * rng.lognormal(0, 0.25)
            mean = changed * (level if course is not None or world.alike_jobs else float(rng.beta(3, 2)))
            mean *= rng.lognormal(0, deviation) * np.exp(trend * day) * (weekend if day in _WEEKEND_DAYS else 1)
            use = mean * _cycle(day + np.arange(STEPS_A_DAY) / STEPS_A_DAY, height, hour)
            use *= np.exp(noise * _correlated_noise(rng, STEPS_A_DAY, 3))
            if course is None:
                use[rng.random(STEPS_A_DAY) < 0.5] = np.nan
            memory = np.where(np.isnan(use), np.nan, memory_level * rng.lognormal(0, 0.02))
            self.past.append((kind, owner, str(revision or ""), day, np.clip(use, 0, 4), np.clip(memory, 0, 1)))

    def _shape(self) -> tuple[Float64s, _Course]:
        """Return an owner's CPU use in each minute, divided by its mean, shape (minutes,), with cycle and noise."""
        minutes, rng = self.world.minutes, self.rng
        time = np.arange(minutes)
        height, hour = float(rng.beta(2, 3)), float(rng.normal(0, 2.5))
        noise = float(rng.uniform(0.05, 0.25))
        shape = _cycle(time / _DAY, height, hour) * np.exp(noise * _correlated_noise(rng, minutes, 15))
        for start in np.flatnonzero(rng.random(minutes) < 1 / 2000).tolist():
            shape[start : start + int(rng.exponential(30)) + 1] *= 1 + float(rng.exponential(0.6))
        return np.asarray(shape / shape.mean(), np.float64), (height, hour, noise)

    def _add(self, kind: str, owner: str, arrival: int, end: int, cpu: float, memory: float) -> None:
        self.pods.append((kind, owner, arrival, end, cpu, memory))

    def _use(self, cpu: Float64s, memory_level: float) -> None:
        noise = _correlated_noise(self.rng, len(cpu), 5)
        self.cpu.append(np.clip(cpu * np.exp(0.12 * noise), 0.0, 4.0))
        ramp = 1 - 0.3 * np.exp(-np.arange(len(cpu)) / 30)
        self.memory.append(np.clip(memory_level * ramp * (1 + 0.02 * noise), 0.0, 1.0))

    def _scale(self, cpu_capacity: Int64s, memory_capacity: Int64s) -> Trace:
        """Scale the requests, choose the overcommit, and return the trace."""
        world = self.world
        order = sorted(range(len(self.pods)), key=lambda i: self.pods[i][2])
        pods = [self.pods[i] for i in order]
        arrival, end = (np.array([pod[column] for pod in pods], np.int64) for column in (2, 3))
        cpu, memory = (np.array([pod[column] for pod in pods]) for column in (4, 5))
        minutes = world.minutes - world.warm_up_minutes
        measured = np.maximum(np.minimum(end, world.minutes) - np.maximum(arrival, world.warm_up_minutes), 0)
        used = sum(
            float(c * self.cpu[i][max(world.warm_up_minutes - a, 0) :].sum())
            for c, a, i in zip(cpu, arrival.tolist(), order, strict=True)
        )
        # Scale CPU requests, and with them use, to the wanted mean use; overcommit then yields the requested share.
        cpu = cpu * (world.mean_use * cpu_capacity.sum() * minutes / used)
        overcommit = float((cpu * measured).sum() / minutes / (world.requested * cpu_capacity.sum()))
        memory_overcommit = 1.2
        asked = float((memory * measured).sum() / minutes)
        memory = memory * (world.requested * memory_overcommit * memory_capacity.sum() / asked)
        lengths = np.array([len(self.cpu[i]) for i in order], np.int64)
        limits = np.where([pod[0] == "Job" for pod in pods], cpu, 2 * cpu)
        return Trace(
            name=f"synthetic-{world.seed}",
            nodes=tuple(f"node-{number:03}" for number in range(world.nodes)),
            cpu_capacity_milli=cpu_capacity,
            memory_capacity_bytes=memory_capacity,
            pods=tuple(f"pod-{number:05}" for number in range(len(pods))),
            owner_kinds=tuple(pod[0] for pod in pods),
            owners=tuple(pod[1] for pod in pods),
            arrival_minute=arrival,
            end_minute=end,
            cpu_request_milli=np.maximum(cpu.round(), 1).astype(np.int64),
            memory_request_bytes=np.maximum(memory.round(), 1).astype(np.int64),
            cpu_limit_milli=np.maximum(limits.round(), 1).astype(np.int64),
            memory_limit_bytes=np.maximum((1.25 * memory).round(), 1).astype(np.int64),
            use=PodUse(
                np.concatenate([[0], np.cumsum(lengths)]),
                np.concatenate([self.cpu[i] for i in order]).astype(np.float16),
                np.concatenate([self.memory[i] for i in order]).astype(np.float16),
            ),
            overcommit=(round(max(overcommit, 1.0), 3), memory_overcommit),
            warm_up_minutes=world.warm_up_minutes,
            minutes=world.minutes,
            history=self._history() if self.past else None,
        )

    def _history(self) -> TraceHistory:
        kinds, owners, revisions, days, cpu, memory = map(list, zip(*self.past, strict=True))
        values = (np.array(each, np.float16) for each in (cpu, memory))
        return TraceHistory(tuple(kinds), tuple(owners), tuple(revisions), np.array(days), *values)


def _cycle(days: Float64s, height: float, hour: float) -> Float64s:
    """Return the daily cycle of use, with a mean of 1, at times in days."""
    angle = 2 * np.pi * (days - hour / 24)
    return np.asarray(1 + height * (0.8 * np.cos(angle) + 0.2 * np.cos(2 * angle)))


def _correlated_noise(rng: np.random.Generator, minutes: int, correlation_minutes: float) -> Float64s:
    """Return first-order autoregressive noise with a standard deviation of 1, shape (minutes,)."""
    from scipy.signal import lfilter  # takes a second to import, and replays do not need it

    keep = np.exp(-1 / correlation_minutes)
    noise = rng.standard_normal(minutes)
    return np.asarray(lfilter([np.sqrt(1 - keep * keep)], [1, -keep], noise), np.float64)
