"""The work of a command: every replay that is not kept, made, kept and put together."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from trimaran.simulator.comparison import (
    ReplayResult,
    ReplayTask,
    ResultStore,
    program_version,
    run_replays,
    world_names,
)
from trimaran.simulator.faults import check_faults
from trimaran.simulator.replay import ReplayOptions
from trimaran.simulator.report.section import ReportSection
from trimaran.traces.events import check_events
from trimaran.traces.trace import read_trace

Factor = tuple[float, float] | None


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end what is within as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class ReplayBatch:
    """What is to be replayed, and how; the options that commands share."""

    folders: tuple[Path, ...]
    policies: tuple[str, ...]
    options: ReplayOptions
    jobs: int
    scheduler: str
    resume_file: Path | None
    nodes_saved: bool = False
    html: Path | None = None

    @_ended_by_sigterm()
    def run(self, factors: Sequence[Factor] = (None,)) -> list[ReportSection]:
        """Make every replay that is not kept, at each overcommit; Ctrl-C and SIGTERM end it with what is done.

        Args:
            factors: of CPU and of memory; None is each trace's own.
        """
        names, own, hours = world_names(self.folders), {}, []
        for folder in self.folders:
            trace = read_trace(folder)  # what is wrong is told before hours of work
            events = trace.events if self.options.events is None else self.options.events
            check_events(events, trace.amounts(), folder)
            if self.options.autoscaling is None:  # its nodes get their names later
                check_faults(self.options.faults, str(folder), {*trace.nodes, *(event.node for event in events)})
            own[folder] = trace.overcommit
            hours.append((trace.minutes - trace.warm_up_minutes) / 60)
        kept = self._open_store()
        tasks = {
            factor: [
                ReplayTask(
                    folder,
                    policy,
                    replace(self.options, overcommit=factor),
                    self.nodes_saved,
                    self._wants_heat_map(folder),
                )
                for folder in self.folders
                for policy in self.policies
            ]
            for factor in factors
        }
        wanted = [task for each in tasks.values() for task in each]
        done = {task: made for task in wanted if (made := kept.find(task)) is not None}
        missing = [task for task in wanted if task not in done]
        try:
            for each in self._run_with_progress(missing, len(wanted)):
                kept.add(each)
                done[each.task] = each
        except KeyboardInterrupt:
            click.echo(f"stopped: {len(done)} of {len(wanted)} replays are done", err=True)
        result = []
        for factor, at_factor in tasks.items():
            label, of_cpu = f"{factor[0]:g}" if factor else "", {names[each]: (factor or own[each])[0] for each in own}
            whole = all(task in done for task in at_factor)
            compared = ReportSection(label, of_cpu, heat_world=names[self.folders[0]], heat_hours=hours[0], whole=whole)
            for task in at_factor:
                if task in done:
                    compared.comparison.setdefault(names[task.folder], {})[task.policy] = dict(done[task].measures)
                    if (heat := done[task].heat) is not None:
                        compared.heat[task.policy] = heat
            result.append(compared)
        return result

    def _open_store(self) -> ResultStore:
        try:
            return ResultStore(self.resume_file, program_version())
        except OSError as error:
            raise click.UsageError(
                f"--resume-file {self.resume_file}: cannot be read and written: {error.strerror}"
            ) from None
        except ValueError as error:
            raise click.UsageError(f"--resume-file {self.resume_file}: {error}") from None

    def _run_with_progress(self, tasks: Sequence[ReplayTask], wanted: int) -> Iterator[ReplayResult]:
        """Make replays, of so many with those that were kept, and tell each: by a bar, or a line where none can be."""
        names, terminal = world_names(self.folders), sys.stderr.isatty()
        with click.progressbar(length=len(tasks), label="replays", file=sys.stderr, hidden=not terminal) as bar:
            for number, each in enumerate(run_replays(tasks, self.jobs, self.scheduler), wanted - len(tasks) + 1):
                yield each
                bar.update(1)
                if not terminal:
                    click.echo(f"{number} of {wanted}: {_describe(each, names[each.task.folder])}", err=True)

    def _wants_heat_map(self, folder: Path) -> bool:
        """Say whether heat maps are drawn of a world: the first one's, as those of all would make a huge page."""
        return self.html is not None and folder == self.folders[0]


def _describe(done: ReplayResult, world: str) -> str:
    """Return what a replay was of, and what it cost."""
    factor = done.task.options.overcommit
    at = "" if factor is None else f", overcommit {','.join(f'{each:g}' for each in dict.fromkeys(factor))}"
    return f"{world}, {done.task.policy}{at}, {done.processor_seconds:.0f} s"
