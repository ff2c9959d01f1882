"""The work of a command: every replay that is not kept, made, kept and put together."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from trimaran.simulator.comparison import Done, Kept, Task, make_all, program, world_names
from trimaran.simulator.faults import check_faults
from trimaran.simulator.replay import Options
from trimaran.simulator.report.compared import Compared
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
class Work:
    """What is to be replayed, and how; the options that commands share."""

    folders: tuple[Path, ...]
    policies: tuple[str, ...]
    options: Options
    jobs: int
    scheduler: str
    keep: Path | None
    nodes_saved: bool = False
    html: Path | None = None

    @_ended_by_sigterm()
    def make(self, factors: Sequence[Factor] = (None,)) -> list[Compared]:
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
        kept = self._kept()
        tasks = {
            factor: [
                Task(folder, policy, replace(self.options, overcommit=factor), self.nodes_saved, self._heats(folder))
                for folder in self.folders
                for policy in self.policies
            ]
            for factor in factors
        }
        wanted = [task for each in tasks.values() for task in each]
        done = {task: made for task in wanted if (made := kept.find(task)) is not None}
        missing = [task for task in wanted if task not in done]
        try:
            for each in self._told(missing, len(wanted)):
                kept.keep(each)
                done[each.task] = each
        except KeyboardInterrupt:
            click.echo(f"stopped: {len(done)} of {len(wanted)} replays are done", err=True)
        result = []
        for factor, at_factor in tasks.items():
            label, of_cpu = f"{factor[0]:g}" if factor else "", {names[each]: (factor or own[each])[0] for each in own}
            whole = all(task in done for task in at_factor)
            compared = Compared(label, of_cpu, heat_world=names[self.folders[0]], heat_hours=hours[0], whole=whole)
            for task in at_factor:
                if task in done:
                    compared.comparison.setdefault(names[task.folder], {})[task.policy] = dict(done[task].measures)
                    if (heat := done[task].heat) is not None:
                        compared.heat[task.policy] = heat
            result.append(compared)
        return result

    def _kept(self) -> Kept:
        try:
            return Kept(self.keep, program())
        except OSError as error:
            raise click.UsageError(f"--keep {self.keep}: cannot be read and written: {error.strerror}") from None
        except ValueError as error:
            raise click.UsageError(f"--keep {self.keep}: {error}") from None

    def _told(self, tasks: Sequence[Task], wanted: int) -> Iterator[Done]:
        """Make replays, of so many with those that were kept, and tell each: by a bar, or a line where none can be."""
        names, terminal = world_names(self.folders), sys.stderr.isatty()
        with click.progressbar(length=len(tasks), label="replays", file=sys.stderr, hidden=not terminal) as bar:
            for number, each in enumerate(make_all(tasks, self.jobs, self.scheduler), wanted - len(tasks) + 1):
                yield each
                bar.update(1)
                if not terminal:
                    click.echo(f"{number} of {wanted}: {_words(each, names[each.task.folder])}", err=True)

    def _heats(self, folder: Path) -> bool:
        """Say whether heat maps are drawn of a world: the first one's, as those of all would make a huge page."""
        return self.html is not None and folder == self.folders[0]


def _words(done: Done, world: str) -> str:
    """Return what a replay was of, and what it cost."""
    factor = done.task.options.overcommit
    at = "" if factor is None else f", overcommit {','.join(f'{each:g}' for each in dict.fromkeys(factor))}"
    return f"{world}, {done.task.policy}{at}, {done.processor_seconds:.0f} s"
