"""Profile of ``trimaran scheduler``: processor time by thread and stage, and the wait for Python's lock (GIL).

``scheduler_rate.py --profile`` runs this script in place of ``trimaran``. It wraps functions of the scheduler, and the
context manager around each call of a plugin, and reads the thread's clocks where a stage begins or ends. A sampling
profiler cannot tell plugins apart: it needs the lock, which a thread gives away when its next function begins, so that
the time of a numpy call often counts for the next plugin. The profile starts with the first decision, which leaves out
the start of the process, and ends when the scheduler is stopped.

    python benchmarks/scheduler_profile.py REPORT scheduler ...     run trimaran scheduler; at its end write REPORT
"""

import gc
import os
import pkgutil
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from common import Table

Key = tuple[str, str, str]  # thread, stage, and one of "processor", "clock", "pieces" and "delay"
Replace = Callable[[Any, str, Any], None]

SCHEDULING, PROBE, REST = "scheduling", "probe", "rest"
_SERVICE, _FRAMEWORK = "trimaran.scheduler.service", "trimaran.scheduler.framework"
#: Stage of each function. A stage that begins within another one interrupts it.
STAGES = {
    "runtime.kubernetes.api:_event": "decode: JSON",
    "trimaran.cluster.object_reader:ObjectReader.read": "decode: object",
    f"{_SERVICE}.scheduling_loop:SchedulingLoop._apply": "inbox",
    f"{_SERVICE}.event_queue:EventQueue.take": "inbox: queue",
    f"{_SERVICE}.executor:DecisionExecutor._settle": "inbox: outcome of a Binding",
    f"{_SERVICE}.load_reader:LoadReader.update": "load",
    f"{_FRAMEWORK}.scheduler:Scheduler.next": "cycle",
    f"{_FRAMEWORK}.queue:SchedulingQueue.pop": "cycle: queue",
    f"{_FRAMEWORK}.scheduling_cycle:SchedulingCycle.feasible": "cycle: filters",
    f"{_FRAMEWORK}.node_selector:NodeSelector.best": "cycle: scores",
    f"{_FRAMEWORK}.binding_cycle:BindingCycle.begin": "cycle: binding cycle",
    "trimaran.cluster.state:ClusterState.assume": "cycle: assume",
    f"{_SERVICE}.executor:DecisionExecutor.handle": "hand over",
    f"{_SERVICE}.binder:Binder._bind": "bind",
    f"{_SERVICE}.pod_events:PodEventWriter._send": "events",
    f"{_SERVICE}.telemetry:SchedulerTelemetry.count_attempt": "metrics",
    f"{_SERVICE}.telemetry:SchedulerTelemetry.count_cycle": "metrics",
    f"{_SERVICE}.telemetry:SchedulerTelemetry.count_scheduled": "metrics",
    f"{_SERVICE}.telemetry:SchedulerTelemetry.exposition": "metrics",
}
BLOCKING = {"bind", "events", "inbox: queue", REST}  # stages that wait for more than the lock and a processor
SMALL = 0.01  # share of the processor time below which stages are added up


@dataclass(slots=True)
class Times:
    """Times of a stage in one thread, nanoseconds, and the number of pieces of which they are the sum."""

    processor: int = 0
    clock: int = 0
    pieces: int = 0


class ThreadClock:
    """Times of the stages of one thread."""

    def __init__(self) -> None:
        self.times: defaultdict[str, Times] = defaultdict(Times)
        self._stack = [self.times[REST]]
        self._processor, self._clock = time.thread_time_ns(), time.perf_counter_ns()

    def begin(self, stage: str) -> None:
        """Begin a stage within the present one."""
        self._end_piece()
        self._stack.append(self.times[stage])

    def end(self) -> None:
        """End the present stage."""
        self._end_piece()
        self._stack.pop()

    def _end_piece(self) -> None:
        processor, clock, present = time.thread_time_ns(), time.perf_counter_ns(), self._stack[-1]
        present.processor += processor - self._processor
        present.clock += clock - self._clock
        present.pieces += 1
        self._processor, self._clock = processor, clock


class LockProbe(threading.Thread):
    """Thread that sleeps a millisecond again and again, and records how much later it gets the lock, milliseconds."""

    def __init__(self) -> None:
        super().__init__(name=PROBE, daemon=True)
        self.late: list[float] = []
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Measure until :meth:`stop`."""
        while not self._stop_asked.is_set():
            begin = time.perf_counter()
            time.sleep(0.001)
            self.late.append(1000 * (time.perf_counter() - begin) - 1)

    def stop(self) -> None:
        """Stop measuring."""
        self._stop_asked.set()
        if self.is_alive():
            self.join()


class Profile:
    """Profile of this process."""

    def __init__(self) -> None:
        self._begin: Counter[Key] | None = None
        self._probe = LockProbe()
        self.forget()

    def forget(self) -> None:
        """Forget all times, in a process that was forked: its clocks begin again."""
        self._local = threading.local()
        self._clocks: list[tuple[str, ThreadClock]] = []

    def install(self, replace: Replace = setattr) -> None:
        """Measure :data:`STAGES` and plugins; ``replace`` sets an attribute of a class or a module."""
        from scoring.plugins.failures import blaming

        for target, stage in STAGES.items():
            owner, _, name = target.replace(":", ".").rpartition(".")
            place = pkgutil.resolve_name(owner)
            replace(place, name, self.timed(getattr(place, name), stage))
        leave = blaming.__exit__

        def entered(call: Any) -> Any:
            self.mine.begin(f"{call._point} {call._plugin}")  # noqa: SLF001  part of the profile
            return call

        def left(call: Any, *error: Any) -> None:
            self.mine.end()
            leave(call, *error)

        replace(blaming, "__enter__", entered)
        replace(blaming, "__exit__", left)

    def collect(self, phase: str, _: dict[str, int]) -> None:
        """Measure a garbage collection, as one of ``gc.callbacks``."""
        if phase == "start":
            self.mine.begin("garbage collection")
        else:
            self.mine.end()

    @property
    def mine(self) -> ThreadClock:
        """Clock of the present thread."""
        try:
            clock: ThreadClock = self._local.clock
        except AttributeError:
            clock = self._local.clock = ThreadClock()
            self._clocks.append((_group(threading.current_thread().name), clock))
        return clock

    def timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """Return a function whose time counts for a stage."""

        @wraps(function)
        def measured(*arguments: Any, **options: Any) -> Any:
            clock = self.mine
            clock.begin(stage)
            try:
                return function(*arguments, **options)
            finally:
                clock.end()

        return measured

    def start(self) -> None:
        """Start the profile, unless it has been started."""
        if self._begin is None:
            self._begin = self._read()
            self._probe.start()

    def report(self) -> bytes:
        """Stop the profile; return the report for :func:`rows`."""
        spent = self._read()
        self._probe.stop()
        spent.subtract(self._begin or {})
        begin, empty = time.thread_time_ns(), Profile().timed(lambda: None, REST)
        for _ in range(10_000):
            empty()
        piece = (time.thread_time_ns() - begin) / 20_000  # a call ends a piece of its caller, and one of its own
        times = [(*key, amount) for key, amount in spent.items()]
        return orjson.dumps({"spent": times, "piece": piece, "late": self._probe.late})

    def _read(self) -> Counter[Key]:
        """Return the times of all threads and stages since the start of the process, nanoseconds."""
        spent: Counter[Key] = Counter({("", "", "processor"): time.process_time_ns()})
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # the thread has ended
                processor, delay, _ = map(int, (task / "schedstat").read_text().split())
                thread = _group(names.get(int(task.name), "threads of libraries"))
                spent.update({(thread, "", "processor"): processor, (thread, "", "delay"): delay})
        for thread, clock in tuple(self._clocks):
            for stage, times in tuple(clock.times.items()):
                amounts = {"processor": times.processor, "clock": times.clock, "pieces": times.pieces}
                spent.update({(thread, stage, kind): amount for kind, amount in amounts.items()})
        return spent


def _group(name: str) -> str:
    """Return the name of a thread without its number, so that the threads of a pool count together."""
    return re.sub(r"[-_]\d+", "", name)


class Row(NamedTuple):
    """Times of one stage in one thread, milliseconds a pod."""

    thread: str
    stage: str
    processor: float
    waiting: float = 0.0  # for the lock or a processor; 0 where it is not known


def rows(report: bytes, pods: int) -> list[Row]:
    """Return the stages of a report, which add up to the processor time of the process; largest threads first."""
    document = orjson.loads(report)
    spent: Counter[Key] = Counter({(thread, stage, kind): amount for thread, stage, kind, amount in document["spent"]})
    costs = {key[:2]: document["piece"] * pieces for key, pieces in spent.items() if key[2] == "pieces"}
    threads = {thread: spent[thread, "", "processor"] for thread, stage, _ in spent if thread and not stage}
    result = []
    for thread in sorted(threads.keys() - {PROBE}, key=lambda each: -threads[each]):
        stages = {stage: spent[thread, stage, "processor"] for each, stage in costs if each == thread}
        stages[REST] = threads[thread] - sum(processor for stage, processor in stages.items() if stage != REST)
        part = [
            Row(
                thread, stage, processor - costs.get((thread, stage), 0),
                0 if stage in BLOCKING else spent[thread, stage, "clock"] - processor,
            )
            for stage, processor in stages.items()
        ]  # fmt: skip
        result += sorted(part, key=lambda row: -row.processor)
    result.append(Row("", "outside of these threads", spent["", "", "processor"] - sum(threads.values())))
    result.append(Row(PROBE, "this profile: its clocks and its probe", sum(costs.values()) + threads.get(PROBE, 0)))
    unit = 1e6 * pods
    return [Row(row.thread, row.stage, row.processor / unit, row.waiting / unit) for row in result]


def print_tables(report: bytes, pods: int, title: str, idle: list[float]) -> None:
    """Print a report; ``idle`` is the record of a :class:`LockProbe` in an idle process meanwhile."""
    *stages, own = rows(report, pods)
    total = sum(row.processor for row in stages)
    small = [row for row in stages if abs(row.processor) < SMALL * total]
    sums = [("", f"{len(small)} smaller stages", sum(row.processor for row in small), 0.0), ("", "all", total, 0.0)]
    table = Table(title, ("thread", "stage", "processor, ms a pod", "share, %", "waiting, ms a pod"), 2)
    for thread, stage, processor, waiting in [*(row for row in stages if row not in small), *sums, own]:
        share = f"{100 * processor / total:.1f}" if thread != PROBE else ""
        table.row(thread, stage, f"{processor:.3f}", share, f"{waiting:.2f}" if waiting else "")
    document = orjson.loads(report)
    delay = sum(spent for thread, _, kind, spent in document["spent"] if (thread, kind) == (SCHEDULING, "delay"))
    waiting = sum(row.waiting for row in stages if row.thread == SCHEDULING)
    print(
        f"\nThe scheduling thread waited {waiting:.2f} ms a pod for the lock or a processor, of which for a processor"
    )
    print(f"at most {delay / pods / 1e6:.2f} ms. A thread that sleeps 1 ms gets the lock late by (median, 99 %), ms:\n")
    for process, late in (("scheduler", document["late"]), ("idle process", idle)):
        print(f"- {process}: {', '.join(f'{each:.2f}' for each in np.percentile(late, (50, 99)))}")


def main() -> None:
    """Run a command of trimaran with the profile."""
    from trimaran.cli.main import main as trimaran
    from trimaran.scheduler.service.binder import Binder
    from trimaran.scheduler.service.worker import SchedulerWorker

    report, profile, replace = Path(sys.argv[1]), Profile(), setattr
    carry_out, close = Binder.carry_out, SchedulerWorker.close

    def begin(binder: Binder, decision: Any) -> None:
        profile.start()
        carry_out(binder, decision)

    def end(worker: SchedulerWorker) -> None:
        report.write_bytes(profile.report())
        close(worker)

    profile.install()
    replace(Binder, "carry_out", begin)
    replace(SchedulerWorker, "close", end)
    gc.callbacks.append(profile.collect)
    os.register_at_fork(after_in_child=profile.forget)
    trimaran(sys.argv[2:], prog_name="trimaran")


if __name__ == "__main__":
    main()
