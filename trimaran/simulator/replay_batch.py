"""Batch of replays: every policy in every world, a replayed trace, with one or more seeds.

Stored results of earlier runs are reused.
"""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from runtime.terminal import echo
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
from trimaran.simulator.report.statistics import over_seeds
from trimaran.traces.events import check_events
from trimaran.traces.reading import read_trace_and_warnings

Factor = tuple[float, float] | None


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, as on Ctrl-C, within the context."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class ReplayBatch:
    """Replays that a command runs, and the options that commands share.

    Attributes:
        folders: the traces' folders, at least one.
        policies: the policies' names.
        options: options of every replay.
        jobs: number of processes.
        scheduler: address of a Dask scheduler; empty without one.
        resume_file: file with the results of finished replays; None stores nothing.
        nodes_saved: also measure the number of nodes that each policy saves.
        configurations: KubeSchedulerConfigurations of the policies that are not in the catalogue, as JSON, by policy.
        html: file of the report; None writes none, and then no heat maps are computed.
        seeds: number of replays of each policy in each world, with successive seeds from that of the options.
        standalone: names of the configured policies that ``trimaran scheduler`` carries out.
    """

    folders: tuple[Path, ...]
    policies: tuple[str, ...]
    options: ReplayOptions
    jobs: int
    scheduler: str
    resume_file: Path | None
    nodes_saved: bool = False
    configurations: Mapping[str, str] = field(default_factory=dict)
    html: Path | None = None
    seeds: int = 1
    standalone: frozenset[str] = frozenset()

    def run(self, factors: Sequence[Factor] = (None,)) -> list[ReportSection]:
        """Run every replay without a stored result, at each overcommit.

        After Ctrl-C or SIGTERM the sections have only the replays that have finished.

        Args:
            factors: overcommit of CPU and of memory; None means each trace's own.

        Returns:
            A section for each factor.

        Raises:
            TraceError: a trace, its events or the faults are invalid.
            UsageError: the resume file cannot be used.
        """
        return self.run_variants([ReplayVariant(self.policies, factor) for factor in factors])

    @_sigterm_as_interrupt()
    def run_variants(self, variants: Sequence["ReplayVariant"]) -> list[ReportSection]:
        """Run every replay of the given variants that has no stored result; see :meth:`run`.

        Returns:
            A section for each variant.

        Raises:
            TraceError: a trace, its events or the faults are invalid.
            UsageError: the resume file cannot be used.
        """
        worlds = [self._read_world(folder) for folder in self.folders]
        store = self._open_store()
        tasks = [
            [
                ReplayTask(
                    folder,
                    policy,
                    options,
                    self.nodes_saved,
                    self._wants_heat_map(folder, options),
                    self.configurations.get(policy, ""),
                    policy in self.standalone,
                )
                for folder in self.folders
                for policy in variant.policies
                for options in self._options(variant)
            ]
            for variant in variants
        ]

        # Run the replays that the resume file does not have.
        all_tasks = [task for of_variant in tasks for task in of_variant]
        results = {task: result for task in all_tasks if (result := store.find(task)) is not None}
        missing = [task for task in all_tasks if task not in results]
        try:
            for result in self._run_with_progress(missing, len(all_tasks)):
                store.add(result)
                results[result.task] = result
        except KeyboardInterrupt:
            echo(f"stopped: {len(results)} of {len(all_tasks)} replays are done", err=True)
        return [
            self._section(variant.overcommit, of_variant, results, worlds)
            for variant, of_variant in zip(variants, tasks, strict=True)
        ]

    def _read_world(self, folder: Path) -> "_World":
        """Read and check a trace before any replay runs, so that an error does not appear only after hours."""
        trace, warnings = read_trace_and_warnings(folder)
        for warning in warnings:
            echo(f"trimaran: warning: {warning}", err=True)
        events = trace.events if self.options.events is None else self.options.events
        check_events(events, trace.amounts(), folder)
        if self.options.autoscaling is None:  # faults may name nodes that an autoscaler adds
            check_faults(self.options.faults, str(folder), {*trace.nodes, *(event.node for event in events)})
        return _World(trace.overcommit, (trace.minutes - trace.warm_up_minutes) / 60)

    def _section(
        self,
        factor: Factor,
        tasks: Sequence[ReplayTask],
        results: Mapping[ReplayTask, ReplayResult],
        worlds: Sequence["_World"],
    ) -> ReportSection:
        """Return the finished replays at one overcommit as a section of a report."""
        names = world_names(self.folders)
        section = ReportSection(
            label=f"{factor[0]:g}" if factor else "",
            overcommit={
                names[folder]: (factor or world.overcommit)[0]
                for folder, world in zip(self.folders, worlds, strict=True)
            },
            heat_world=names[self.folders[0]],
            heat_hours=worlds[0].measured_hours,
            whole=all(task in results for task in tasks),
        )
        finished = [result for task in tasks if (result := results.get(task)) is not None]
        by_seed: dict[Path, dict[str, dict[int, Mapping[str, float]]]] = {}
        for result in finished:
            policies = by_seed.setdefault(result.task.folder, {})
            policies.setdefault(result.task.policy, {})[result.task.options.seed] = result.measures
            if result.heat is not None:
                section.heat[result.task.policy] = result.heat
        for folder, policies in by_seed.items():
            section.comparison[names[folder]] = {
                policy: over_seeds(measured) for policy, measured in _with_same_seeds(policies).items()
            }
        return section

    def _options(self, variant: "ReplayVariant") -> list[ReplayOptions]:
        """Return the options of a variant's replays with each seed."""
        first = self.options.seed
        return [
            replace(self.options, overcommit=variant.overcommit, seed=seed) for seed in range(first, first + self.seeds)
        ]

    def _open_store(self) -> ResultStore:
        try:
            return ResultStore(self.resume_file, program_version())
        except OSError as error:
            raise click.UsageError(
                f"--resume-file {self.resume_file}: cannot be read or written: {error.strerror}"
            ) from None
        except ValueError as error:
            raise click.UsageError(f"--resume-file {self.resume_file}: {error}") from None

    def _run_with_progress(self, tasks: Sequence[ReplayTask], total: int) -> Iterator[ReplayResult]:
        """Run replays and report progress on stderr: a bar on a terminal, otherwise a line per replay.

        Args:
            tasks: the replays to run.
            total: number of replays of the batch, including stored ones.
        """
        names, terminal = world_names(self.folders), sys.stderr.isatty()
        with click.progressbar(length=len(tasks), label="replays", file=sys.stderr, hidden=not terminal) as bar:
            for number, result in enumerate(run_replays(tasks, self.jobs, self.scheduler), total - len(tasks) + 1):
                yield result
                bar.update(1)
                if not terminal:
                    echo(f"{number} of {total}: {self._describe(result, names[result.task.folder])}", err=True)

    def _wants_heat_map(self, folder: Path, options: ReplayOptions) -> bool:
        """Return whether the report has a heat map of a replay: of the first world and seed only, to stay small."""
        return self.html is not None and folder == self.folders[0] and options.seed == self.options.seed

    def _describe(self, result: ReplayResult, world: str) -> str:
        """Return a line with the world, policy, seed, overcommit and CPU time of a replay."""
        options = result.task.options
        parts = [world, result.task.policy]
        if self.seeds > 1:
            parts.append(f"seed {options.seed}")
        if options.overcommit is not None:
            parts.append(f"overcommit {','.join(f'{value:g}' for value in dict.fromkeys(options.overcommit))}")
        return ", ".join([*parts, f"{result.processor_seconds:.0f} s"])


def _with_same_seeds(policies: Mapping[str, Mapping[int, Mapping[str, float]]]) -> dict[str, list[Mapping[str, float]]]:
    """Return the measures of each policy with the seeds that all of them have: fewer after an interruption.

    A policy that has no seed in common with those before it is left out.
    """
    seeds: set[int] = set()
    kept = []
    for policy, measured in policies.items():
        common = seeds & measured.keys() if seeds else set(measured)
        if common:
            seeds = common
            kept.append(policy)
    return {policy: [policies[policy][seed] for seed in sorted(seeds)] for policy in kept}


@dataclass(frozen=True, slots=True)
class ReplayVariant:
    """Part of a batch's replays: their policies, and the overcommit of pod requests.

    Attributes:
        policies: names of the policies.
        overcommit: overcommit of CPU and of memory; None means each trace's own.
    """

    policies: tuple[str, ...]
    overcommit: Factor = None


@dataclass(frozen=True, slots=True)
class _World:
    """Overcommit of CPU and memory in a trace, and its hours after the warm-up."""

    overcommit: tuple[float, float]
    measured_hours: float
