"""A synthetic world with published statistics: the trace to try things on where there is none of one's own.

What is drawn, and from what was published:

- Nodes: the shapes of Google's 2011 cluster with their shares (Reiss et al., SoCC 2012, table 1).
- Services: few owners have most of the pods, a Pareto tail; all but a few stay; most are there after the first hours,
  as in a cluster that is looked at from its start.
- Jobs: arrivals of a Poisson process in bursts of one owner, lives log-normal with a median of minutes and a mean of an
  hour (Reiss et al.; Weng et al., NSDI 2022).
- Levels, use in parts of the request: beta-distributed, of CPU around 0.29 and of memory around 0.67 (Luo et al., SoCC
  2021), with most of the variation between owners and little between the pods of one.
- Use over time: a daily cycle whose height and hour are the owner's, noise that fades within a quarter of an hour, the
  owner's and the pod's own, and seldom a burst (Tirmazi et al., EuroSys 2020).

Then requests are scaled so that they are ``requested`` of what is allocatable, after an overcommit that makes the mean
CPU use ``mean_use`` of capacity. It is real neither in its pairing nor in its series: say "synthetic".
"""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.traces.trace import PodUse, Trace

_GIB = 1024**3
# Share of machines, CPU and memory in parts of the largest machine.
_SHAPES = ((0.535, 0.5, 0.5), (0.31, 0.5, 0.25), (0.08, 0.5, 0.75), (0.065, 1.0, 1.0), (0.01, 0.25, 0.25))
_LARGEST = (64_000, 256 * _GIB)
_DAY = 1440


@dataclass(frozen=True)
class Synthetic:
    """What is drawn.

    Attributes:
        seed: of everything that is drawn.
        nodes: how many.
        minutes: how long the trace is.
        warm_up_minutes: of these, what is not measured.
        mean_use: CPU use over the time that is measured, in parts of capacity.
        requested: the same of CPU requests after overcommit.
        cpu_level: use in parts of the request, on average over services.
        memory_level: the same of memory.
        jobs_share: of the CPU use, what jobs use.
        rollouts: part of the services' owners that are rolled out anew once, after the warm-up.
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

    def trace(self) -> Trace:
        """Draw the world."""
        return _Drawing(self).trace()


class _Drawing:
    def __init__(self, wanted: Synthetic) -> None:
        self.wanted = wanted
        self.rng = np.random.default_rng([wanted.seed, 20_110_501])
        self.pods: list[tuple[str, str, int, int, float, float]] = []  # kind, owner, arrival, end, CPU and memory asked
        self.cpu: list[Float64s] = []
        self.memory: list[Float64s] = []

    def trace(self) -> Trace:
        wanted, rng = self.wanted, self.rng
        shapes = np.array(_SHAPES)
        drawn = rng.choice(len(shapes), wanted.nodes, p=shapes[:, 0] / shapes[:, 0].sum())
        cpu_capacity = (shapes[drawn, 1] * _LARGEST[0]).astype(np.int64)
        memory_capacity = (shapes[drawn, 2] * _LARGEST[1]).astype(np.int64)
        total = float(cpu_capacity.sum())
        self._services(total * wanted.mean_use * (1 - wanted.jobs_share))
        self._jobs(total * wanted.mean_use * wanted.jobs_share)
        return self._scaled(cpu_capacity, memory_capacity)

    def _services(self, use_milli: float) -> None:
        """Draw owners of services until their pods use so many millicores on average."""
        wanted, rng = self.wanted, self.rng
        used, number = 0.0, 0
        while used < use_milli:
            replicas = min(int(rng.pareto(0.9) + 1), wanted.nodes)
            cpu = float(rng.choice([500, 1000, 2000, 4000], p=[0.25, 0.35, 0.3, 0.1]))
            memory = cpu / 1000 * float(rng.choice([1, 2, 4, 8], p=[0.2, 0.35, 0.3, 0.15])) * _GIB
            level = float(rng.beta(1.6, 1.6 * (1 / wanted.cpu_level - 1)))
            memory_level = float(rng.beta(6, 6 * (1 / wanted.memory_level - 1)))
            shape = self._shape()
            first = int(rng.exponential(150)) if rng.random() < 0.9 else int(rng.uniform(0, wanted.minutes))
            rolled = int(rng.uniform(wanted.warm_up_minutes, wanted.minutes)) if rng.random() < wanted.rollouts else 0
            for _ in range(replicas):
                arrival = min(first + int(rng.exponential(20)), wanted.minutes - 1)
                end = wanted.minutes if rng.random() < 0.9 else int(rng.uniform(arrival + 1, wanted.minutes + 1))
                own = level * float(rng.lognormal(0, 0.15))
                lives = [(arrival, end)]
                if arrival < rolled < end:
                    moment = min(rolled + int(rng.exponential(5)), end - 1)
                    lives = [(arrival, moment), (moment, end)]
                for begin, stop in lives:
                    self._add("Deployment", f"deployment-{number:03}", begin, stop, cpu, memory)
                    self._use(shape[begin:stop] * own, memory_level)
                used += cpu * own * (end - arrival) / wanted.minutes
            number += 1

    def _jobs(self, use_milli: float) -> None:
        """Draw jobs, owner by owner, until they use so many millicores on average."""
        wanted, rng = self.wanted, self.rng
        used, number = 0.0, 0
        while used < use_milli:
            cpu = float(rng.choice([1000, 2000, 4000, 6000], p=[0.4, 0.3, 0.2, 0.1]))
            memory = cpu / 1000 * float(rng.choice([1, 2, 4], p=[0.3, 0.4, 0.3])) * _GIB
            level = float(rng.beta(3, 2))
            memory_level = float(rng.beta(5, 2))
            times = np.sort(rng.uniform(0, wanted.minutes, min(int(rng.pareto(0.8) + 1) * 2, 300)))
            for arrival in times.astype(int).tolist():
                life = max(int(rng.lognormal(np.log(6), 1.9)), 1)
                end = min(arrival + life, wanted.minutes)
                if end <= arrival:
                    continue
                noise = _fading(rng, end - arrival, 5)
                self._add("Job", f"job-{number:03}", arrival, end, cpu, memory)
                self._use(np.maximum(level * (1 + 0.25 * noise), 0.02), memory_level)
                used += cpu * level * (end - arrival) / wanted.minutes
            number += 1

    def _shape(self) -> Float64s:
        """Return how an owner's use goes over the trace, 1 on average."""
        minutes, rng = self.wanted.minutes, self.rng
        time = np.arange(minutes)
        height, hour = float(rng.beta(2, 3)), float(rng.normal(0, 2.5))
        daily = np.cos(2 * np.pi * (time / _DAY - hour / 24))
        shape = 1 + height * (0.8 * daily + 0.2 * np.cos(4 * np.pi * (time / _DAY - hour / 24)))
        shape = shape * np.exp(float(rng.uniform(0.05, 0.25)) * _fading(rng, minutes, 15))
        for start in np.flatnonzero(rng.random(minutes) < 1 / 2000).tolist():
            shape[start : start + int(rng.exponential(30)) + 1] *= 1 + float(rng.exponential(0.6))
        return np.asarray(shape / shape.mean(), np.float64)

    def _add(self, kind: str, owner: str, arrival: int, end: int, cpu: float, memory: float) -> None:
        self.pods.append((kind, owner, arrival, end, cpu, memory))

    def _use(self, cpu: Float64s, memory_level: float) -> None:
        noise = _fading(self.rng, len(cpu), 5)
        self.cpu.append(np.clip(cpu * np.exp(0.12 * noise), 0.0, 4.0))
        ramp = 1 - 0.3 * np.exp(-np.arange(len(cpu)) / 30)
        self.memory.append(np.clip(memory_level * ramp * (1 + 0.02 * noise), 0.0, 1.0))

    def _scaled(self, cpu_capacity: Int64s, memory_capacity: Int64s) -> Trace:
        """Scale requests to the nodes, and choose the overcommit."""
        wanted = self.wanted
        order = sorted(range(len(self.pods)), key=lambda i: self.pods[i][2])
        pods = [self.pods[i] for i in order]
        arrival, end = (np.array([pod[column] for pod in pods], np.int64) for column in (2, 3))
        cpu, memory = (np.array([pod[column] for pod in pods]) for column in (4, 5))
        minutes = wanted.minutes - wanted.warm_up_minutes
        measured = np.maximum(np.minimum(end, wanted.minutes) - np.maximum(arrival, wanted.warm_up_minutes), 0)
        used = sum(
            float(c * self.cpu[i][max(wanted.warm_up_minutes - a, 0) :].sum())
            for c, a, i in zip(cpu, arrival.tolist(), order, strict=True)
        )
        cpu = cpu * (wanted.mean_use * cpu_capacity.sum() * minutes / used)
        overcommit = float((cpu * measured).sum() / minutes / (wanted.requested * cpu_capacity.sum()))
        memory_overcommit = 1.2
        asked = float((memory * measured).sum() / minutes)
        memory = memory * (wanted.requested * memory_overcommit * memory_capacity.sum() / asked)
        lengths = np.array([len(self.cpu[i]) for i in order], np.int64)
        limits = np.where([pod[0] == "Job" for pod in pods], cpu, 2 * cpu)
        return Trace(
            name=f"synthetic-{wanted.seed}",
            nodes=tuple(f"node-{number:03}" for number in range(wanted.nodes)),
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
            warm_up_minutes=wanted.warm_up_minutes,
            minutes=wanted.minutes,
        )


def _fading(rng: np.random.Generator, minutes: int, memory_minutes: float) -> Float64s:
    """Return noise of deviation 1 that fades over so many minutes (autoregressive of order one), shape (minutes,)."""
    from scipy.signal import lfilter  # noqa: PLC0415  a second of imports that replays do without

    keep = np.exp(-1 / memory_minutes)
    noise = rng.standard_normal(minutes)
    return np.asarray(lfilter([np.sqrt(1 - keep * keep)], [1, -keep], noise), np.float64)
