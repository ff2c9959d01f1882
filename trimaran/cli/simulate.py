"""``trimaran simulate``: replay recorded pod usage with placement policies, and compare the policies."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from runtime.extras import install_command
from runtime.terminal import echo, echo_document, echo_lines, echo_table
from scoring.plugins.filtering import PluginResultError
from trimaran.cli.check_trace import check
from trimaran.cli.import_traces import import_
from trimaran.cli.options import fail, option
from trimaran.cli.policy_choice import chosen_objects, chosen_policies, known_policies
from trimaran.cli.simulate_options import (
    DIVISORS,
    FACTORS,
    WINDOW_OPTIONS,
    OnceCommand,
    html_option,
    nodes_saved_option,
    overcommit_option,
    policies_option,
    shared_options,
)
from trimaran.cli.trace_output import check_new, history_days_option, write_or_fail
from trimaran.planning.move_triggers import Trigger
from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.comparison import WorkerError
from trimaran.simulator.faults import read_faults
from trimaran.simulator.overcommit_advice import SCHEDULERS, advice, header, rows, rules, verdicts
from trimaran.simulator.overcommit_options import Factors, each_once
from trimaran.simulator.policies.catalogue import CONGESTION
from trimaran.simulator.replay import ReplayOptions
from trimaran.simulator.replay_batch import ReplayBatch
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.text import tables
from trimaran.simulator.windows import Windows
from trimaran.traces.events import read_events
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import absolute_path, write_trace


@click.group()
def simulate() -> None:
    """Replay recorded pod usage with placement policies, and compare the policies.

    \b
    Example: trimaran simulate compare -o json
    """


simulate.command_class = OnceCommand
simulate.add_command(import_)
simulate.add_command(check)


@simulate.command()
@shared_options
@html_option
@option("--policy", default=CONGESTION, metavar="NAME|NAME=FILE|NAME=standalone:FILE", help="Policy to replay.")
@overcommit_option
@nodes_saved_option
def run(policy: str, **options: Any) -> None:
    """Replay one policy. Output as JSON or YAML: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate run --trace worlds/a --policy default

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    _compare(policies=(policy,), **options)


@simulate.command(short_help="Replay several policies, and print a table of measures.")
@shared_options
@html_option
@policies_option
@overcommit_option
@nodes_saved_option
@click.option("--list", "listing", is_flag=True, help="List the policies.")
def compare(*, listing: bool, **options: Any) -> None:
    """Replay policies in one or more worlds, and print a table of the main measures.

    Output as JSON or YAML: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate compare --trace worlds/a worlds/b --policy default --policy congestion-cost -o json

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    if listing:
        echo_lines("\n".join(known_policies()))
        return
    _compare(**options)


@simulate.command()
@shared_options
@html_option
@policies_option
@option(
    "--overcommit",
    "factors",
    type=Factors(),
    multiple=True,
    callback=each_once,
    default=(FACTORS,),
    help="Factors to compare; repeatable; each applies to CPU and memory.",
)
def sweep(factors: tuple[float, ...], output: str, **shared: Any) -> None:
    """Compare policies at several values of overcommit.

    Output as JSON or YAML: {factor: {world: {policy: {measure: number}}}}.

    \b
    Example: trimaran simulate sweep --trace worlds/a --policy default --policy congestion-cost --jobs -1

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    sections = _replay(shared, lambda batch: batch.run([(factor, factor) for factor in factors]))
    is_complete = all(section.whole for section in sections)
    sections = [section for section in sections if section.comparison]  # after an interruption some are empty
    if output != "text":
        echo_document({section.label: section.comparison for section in sections}, output)
    else:
        echo_lines("\n\n".join(f"overcommit {section.label}\n{tables(section.comparison)}" for section in sections))
    raise SystemExit(0 if is_complete else 1)


@simulate.command(short_help="Show how far requests may be divided, on recorded days.")
@shared_options
@option(
    "--overcommit",
    "factors",
    type=Factors(),
    multiple=True,
    callback=each_once,
    default=(DIVISORS,),
    help="Factors by which the requests are divided; repeatable; each applies to CPU and memory.",
)
def overcommit(factors: tuple[float, ...], output: str, **shared: Any) -> None:
    """Show how far requests may be lowered: recorded days, replayed with other requests of the pods.

    Each row is a rule for the pods' requests: divided by a factor, or those that the watcher recommends. Each cell has
    the value with the default scheduler, then with congestion-cost. Output as JSON or YAML: {world: {rule: {scheduler:
    {measure: number}}}}.

    \b
    Example: trimaran record days; trimaran simulate overcommit days --jobs -1

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    variants = rules(factors)
    sections = _replay(
        {**shared, "policies": SCHEDULERS, "html": None}, lambda batch: batch.run_variants([*variants.values()])
    )
    found = advice([*variants], sections)
    if output != "text":
        echo_document(found, output)
    else:
        echo_table(header(), rows(found))
        echo()
        echo(f"each cell: {' / '.join(SCHEDULERS)}; shares of node-hours and of capacity, node-minutes at 80 % or more")
        for line in verdicts(found, factors):
            echo(line)
    raise SystemExit(0 if all(section.whole for section in sections) else 1)


@simulate.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@option("--seed", default=0, type=click.IntRange(0), help="Random seed of the trace.")
@option("--nodes", default=60, type=click.IntRange(1, 100_000), help="Number of nodes.")
@option("--hours", default=60, type=click.IntRange(2, 10_000), help="Length of the trace.")
@click.option(
    "--warm-up-hours",
    type=click.IntRange(0),
    help="First hours, which replays do not measure. [default: a fifth of the hours, at most 12]",
)
@option(
    "--rollouts",
    default=0.0,
    type=click.FloatRange(0, 1),
    help="Share of the owners that replace all their pods once during the trace.",
)
@history_days_option
def generate(
    folder: Path, seed: int, nodes: int, hours: int, warm_up_hours: int | None, rollouts: float, history_days: int
) -> None:
    """Write the trace of a synthetic world whose pods follow published statistics of real clusters.

    \b
    Example: trimaran simulate generate worlds/small --nodes 20 --hours 36
    """
    check_new(folder)
    if warm_up_hours is None:
        warm_up_hours = min(hours // 5, 12)
    if warm_up_hours >= hours:
        raise click.UsageError(f"--warm-up-hours {warm_up_hours} must be less than --hours {hours}")
    world = Synthetic(seed, nodes, 60 * hours, 60 * warm_up_hours, rollouts=rollouts, history_days=history_days)
    write_or_fail(world.trace(), folder)


def _compare(*, overcommit: tuple[float, float] | None, nodes_saved: bool, output: str, **shared: Any) -> None:
    """Replay the policies at one overcommit (divisor of requests), print the measures, and exit with the status."""
    if nodes_saved and shared["autoscale"]:
        raise click.UsageError(
            "--nodes-saved removes nodes, and --autoscale would add them again: use only one of them"
        )
    (section,) = _replay(shared, lambda batch: replace(batch, nodes_saved=nodes_saved).run([overcommit]))
    if output == "text":
        echo_lines(tables(section.comparison))
    else:
        echo_document(section.comparison, output)
    raise SystemExit(0 if section.whole else 1)


def _replay(shared: Mapping[str, Any], run_batch: Callable[[ReplayBatch], list[ReportSection]]) -> list[ReportSection]:
    """Run replays with the shared options, write the HTML report if one is wanted, and return its sections.

    Without a trace, a synthetic trace is replayed.

    Args:
        shared: values of the shared options by name.
        run_batch: runs the replays of a batch, at one or more overcommits.
    """
    folders = tuple({absolute_path(folder): folder for folder in (*shared["traces"], *shared["more"])}.values())
    chosen = chosen_policies(shared["policies"] or known_policies())
    html: Path | None = shared["html"]
    if html is not None and html.suffix == ".json":
        raise click.UsageError(f"--html {html}: the report's JSON has this name; name the report {html.stem}.html")
    problems = TraceProblems()
    events = read_events(shared["events"], problems) if shared["events"] else None
    faults = read_faults(shared["faults"], problems) if shared["faults"] else ()
    for warning in problems.warnings:
        echo(f"trimaran: warning: {warning}", err=True)
    try:
        problems.raise_errors()
        options = ReplayOptions(
            seed=shared["seed"],
            windows=Windows(**{name: shared[name] for name in WINDOW_OPTIONS}),
            events=events,
            autoscaling=Autoscaling(shared["lead_minutes"], shared["spare_nodes"]) if shared["autoscale"] else None,
            move_triggers=tuple(map(Trigger, shared["move_triggers"])),
            startup_seconds=shared["move_startup"],
            ceiling=shared["ceiling"],
            learned_use=shared["learned_use"],
            objects=chosen_objects(shared["objects"], chosen),
            faults=faults,
        )
        batch = ReplayBatch(
            folders, tuple(chosen.configurations), options, shared["jobs"], shared["scheduler"], shared["resume_file"],
            configurations=chosen.configurations, html=html, seeds=shared["seeds"],
            standalone=frozenset(chosen.standalone),
        )  # fmt: skip
        if html is not None:
            import_module("matplotlib")  # a missing package or an unwritable file is reported before hours of replays
            _open_report(html)
        with TemporaryDirectory() as directory:
            if not folders:
                folder = Path(directory) / "synthetic-0"
                write_trace(Synthetic().trace(), folder)
                batch = replace(batch, folders=(folder,))
            sections = run_batch(batch)
    except (TraceError, WorkerError, PluginResultError) as error:
        fail(error, 2)
    except MemoryError as error:
        fail(f"not enough memory: {error}; run fewer replays at once (--jobs), or replay a shorter trace", 2)
    except ModuleNotFoundError as error:
        extra = {"distributed": "distributed", "matplotlib": "report"}.get(error.name or "", "simulator")
        fail(f"{error.name} is not installed: {install_command(extra)}", 2)
    if html is not None:
        _write_report(sections, html)
    return sections


def _open_report(path: Path) -> None:
    """Check that the report can be written, and create its folder; exit with status 2 if not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", 2)


def _write_report(sections: Sequence[ReportSection], path: Path) -> None:
    """Write the HTML report, and its data as JSON to the same path with suffix ``.json``."""
    from trimaran.simulator.report.page import write_report  # imports matplotlib, which is an extra, for a second

    if not any(section.comparison for section in sections):
        return  # interrupted before the first replay finished
    try:
        write_report(sections, path, f"trimaran {version('trimaran')}: {shlex.join(sys.argv[1:])}")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", 2)
