"""``trimaran simulate``: replay recorded pod usage with placement policies, and compare the policies."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from runtime.terminal import echo, echo_document, echo_lines, echo_table, output_option
from trimaran.cli.check_trace import check
from trimaran.cli.import_traces import import_
from trimaran.cli.options import fail, option, renamed_option, scheduler_file_or_exit
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.planning.move_triggers import Trigger
from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.comparison import WorkerError
from trimaran.simulator.faults import read_faults
from trimaran.simulator.overcommit_advice import SCHEDULERS, advice, header, rows, rules, verdicts
from trimaran.simulator.overcommit_options import Factors, Overcommit
from trimaran.simulator.policies.catalogue import CONGESTION, policy_names
from trimaran.simulator.policies.profiles import configured_policy
from trimaran.simulator.replay import ReplayOptions
from trimaran.simulator.replay_batch import ReplayBatch
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.text import tables
from trimaran.simulator.windows import MAX_DELAY_MINUTES, Windows
from trimaran.traces.events import read_events
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import absolute_path, write_trace

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)
_FACTORS = "1,1.2,1.4,1.6,1.8,2"
_DIVISORS = "1,1.25,1.5,2,3"
_POLICIES = click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|NAME=FILE",
    help="Policy to replay; repeatable. With a FILE, the policy of a KubeSchedulerConfiguration. [default: all]",
)
_OVERCOMMIT = click.option(
    "--overcommit", type=Overcommit(), help="Factor by which requests are divided. [default: the factor of each trace]"
)
_NODES_SAVED = click.option(
    "--nodes-saved", is_flag=True, help="Also measure the number of nodes that each policy saves; takes longer."
)
_WINDOWS = {
    name: click.option(
        f"--{name.replace('_', '-')}", default=getattr(Windows, name), show_default=True, type=range_, help=help_,
    )
    for name, range_, help_ in (
        ("window_minutes", click.IntRange(1), "Window over which metrics are averaged."),
        ("interval_minutes", click.IntRange(1), "Interval between two fetches of metrics."),
        ("delay_minutes", click.IntRange(0, MAX_DELAY_MINUTES), "Age of metrics when they are fetched."),
        ("smoothing_minutes", click.IntRange(1), "Range of the CPU rate of each sample."),
    )
}  # fmt: skip


class _Folder(click.Path):
    """Click parameter type: path of a folder. Refuses an empty text, which ``Path`` reads as the current folder."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Convert the text of an option to a path."""
        if not os.fspath(value):
            self.fail("the folder name is empty; check for an empty shell variable", parameter, context)
        return super().convert(value, parameter, context)


def _jobs(_context: click.Context, _option: click.Parameter, value: int) -> int:
    """Refuse 0 processes. As in joblib, -1 stands for the number of processors, -2 for one less."""
    if value == 0:
        raise click.BadParameter("0 is not a number of processes")
    return value


_SHARED: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--trace",
        "traces",
        multiple=True,
        type=_Folder(path_type=Path),
        metavar="DIR...",
        help="Folder of a trace; repeatable; several folders may follow one --trace. [default: a synthetic world]",
    ),
    click.argument("more", nargs=-1, type=_Folder(path_type=Path), metavar="[DIR]..."),
    option("--seed", default=0, type=click.IntRange(0), help="Random seed of the choice among equally good nodes."),
    option(
        "--seeds",
        default=1,
        type=click.IntRange(1, 1000),
        help="Number of replays of each policy, with successive seeds; the measures are their means.",
    ),
    click.option(
        "--faults", type=_FILE, help="CSV file of faults in metrics: start_minute,end_minute,node,fault,value."
    ),
    *_WINDOWS.values(),
    click.option(
        "--events", type=_FILE, help="CSV file of nodes that fail or join; replaces events.csv of the traces."
    ),
    click.option("--autoscale", is_flag=True, help="Add nodes when pods do not fit, and remove idle ones."),
    option(
        "--lead-minutes", default=3, type=click.IntRange(0), help="Minutes until a node that --autoscale adds is ready."
    ),
    option("--spare-nodes", default=0, type=click.IntRange(0), help="Number of empty nodes that --autoscale keeps."),
    click.option(
        "--move-trigger",
        "move_triggers",
        multiple=True,
        type=click.Choice([each.value for each in Trigger]),
        help="Event that makes a moving policy look for pods to move; repeatable. [default: time]",
    ),
    renamed_option("--moves-at", "--move-trigger"),
    option(
        "--move-startup",
        "move_startup",
        default=0.0,
        type=click.FloatRange(0),
        help="Seconds from the eviction of a moved pod until its replacement works.",
    ),
    option("--jobs", default=1, callback=_jobs, help="Number of processes; -1 for all processors."),
    click.option(
        "--scheduler", default="", help="Address of a Dask scheduler to replay on, such as tcp://10.0.0.1:8786."
    ),
    click.option(
        "--resume-file",
        type=_FILE,
        help="File that stores finished replays; a later run with the same file continues from there.",
    ),
    renamed_option("--keep", "--resume-file"),
    output_option("text", "json", "yaml"),
)
_HTML = click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="File for a report with figures; its data is written as JSON to the same path with suffix .json.",
)


def shared_options(command: Command) -> Command:
    """Add the options that all commands with replays share to a command."""
    return reduce(lambda decorated, decorate: decorate(decorated), reversed(_SHARED), command)


@click.group()
def simulate() -> None:
    """Replay recorded pod usage with placement policies, and compare the policies.

    \b
    Example: trimaran simulate compare -o json
    """


simulate.add_command(import_)
simulate.add_command(check)


@simulate.command()
@shared_options
@_HTML
@option("--policy", default=CONGESTION, metavar="NAME|NAME=FILE", help="Policy to replay.")
@_OVERCOMMIT
@_NODES_SAVED
def run(policy: str, **options: Any) -> None:
    """Replay one policy. Output as JSON or YAML: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate run --trace worlds/a --policy default

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    _compare(policies=(policy,), **options)


@simulate.command(short_help="Replay several policies, and print a table of measures.")
@shared_options
@_HTML
@_POLICIES
@_OVERCOMMIT
@_NODES_SAVED
@click.option("--list", "listing", is_flag=True, help="List the policies.")
def compare(*, listing: bool, **options: Any) -> None:
    """Replay policies in one or more worlds, and print a table of the main measures.

    Output as JSON or YAML: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate compare --trace worlds/a worlds/b --policy default --policy congestion-cost -o json

    Exit status: 0 if all replays finished, 1 if they were interrupted, 2 if the input cannot be used.
    """
    if listing:
        echo_lines("\n".join(_known_policies()))
        return
    _compare(**options)


@simulate.command()
@shared_options
@_HTML
@_POLICIES
@option(
    "--overcommit",
    "factors",
    type=Factors(),
    default=_FACTORS,
    help="Factors to compare; each applies to CPU and memory.",
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
    default=_DIVISORS,
    help="Factors by which the requests are divided; each applies to CPU and memory.",
)
def overcommit(factors: tuple[float, ...], output: str, **shared: Any) -> None:
    """Show how far one may overcommit: what other requests would have done on recorded days.

    Each row is a rule by which pods are admitted: their requests divided by a factor, the requests that the watcher
    recommends, or the predicted peak of each node (n-sigma, sum-of-percentiles). Each cell has the value with the
    default scheduler, then with congestion-cost. Output as JSON or YAML: {world: {rule: {scheduler: {measure:
    number}}}}.

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
def generate(folder: Path, seed: int, nodes: int, hours: int, warm_up_hours: int | None, rollouts: float) -> None:
    """Write the trace of a synthetic world with published statistics.

    \b
    Example: trimaran simulate generate worlds/small --nodes 20 --hours 36
    """
    check_new(folder)
    if warm_up_hours is None:
        warm_up_hours = min(hours // 5, 12)
    if warm_up_hours >= hours:
        raise click.UsageError(f"--warm-up-hours {warm_up_hours} must be less than --hours {hours}")
    world = Synthetic(seed, nodes, 60 * hours, 60 * warm_up_hours, rollouts=rollouts)
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
    chosen = _policies(shared["policies"] or _known_policies())
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
            windows=Windows(**{name: shared[name] for name in _WINDOWS}),
            events=events,
            autoscaling=Autoscaling(shared["lead_minutes"], shared["spare_nodes"]) if shared["autoscale"] else None,
            move_triggers=tuple(map(Trigger, shared["move_triggers"])),
            startup_seconds=shared["move_startup"],
            faults=faults,
        )
        batch = ReplayBatch(
            folders, tuple(chosen), options, shared["jobs"], shared["scheduler"], shared["resume_file"],
            configurations=chosen, html=html, seeds=shared["seeds"],
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
    except (TraceError, WorkerError) as error:
        fail(error, 2)
    except MemoryError as error:
        fail(f"not enough memory: {error}; replay fewer at once (--jobs), or a shorter trace", 2)
    except ModuleNotFoundError as error:
        extra = {"distributed": "distributed", "matplotlib": "report"}.get(error.name or "", "simulator")
        fail(f"{error.name} is not installed: pip install 'trimaran[{extra}]'", 2)
    if html is not None:
        _write_report(sections, html)
    return sections


def _known_policies() -> list[str]:
    """Return the names of the policies in the catalogue; exit with status 2 if an installed plugin cannot be loaded."""
    try:
        return policy_names()
    except ValueError as error:
        fail(error, 2)


def _policies(written: Sequence[str]) -> dict[str, str]:
    """Return the KubeSchedulerConfiguration of each policy as JSON, by name; empty for a policy of the catalogue.

    Args:
        written: values of ``--policy``: the name of a policy in the catalogue, or ``NAME=FILE``.
    """
    known, chosen = _known_policies(), dict[str, str]()
    for text in written:
        name, has_file, file = text.partition("=")
        if has_file and (not name or name in known or name in chosen):
            problem = "is taken; choose another name" if name else "is empty; write NAME=FILE"
            raise click.UsageError(f"--policy {text}: the name {f'{name} ' if name else ''}{problem}")
        if not has_file and name not in known:
            raise click.UsageError(
                f"unknown policy {name}; policies are: {', '.join(known)}; NAME=FILE reads a KubeSchedulerConfiguration"
            )
        chosen[name] = _read_configuration(name, Path(file)) if has_file else ""
    return chosen


def _read_configuration(name: str, file: Path) -> str:
    """Return a KubeSchedulerConfiguration as JSON; exit with status 2 if it cannot be replayed."""
    with scheduler_file_or_exit(file) as read:
        configured_policy(name, read.document)
    return json.dumps(read.document)


def _open_report(path: Path) -> None:
    """Check that the report can be written, and create its folder; exit with status 2 if not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", 2)


def _write_report(sections: Sequence[ReportSection], path: Path) -> None:
    """Write the HTML report, and its data as JSON to the same path with suffix ``.json``."""
    from trimaran.simulator.report.page import write_report  # draws: an extra, and a second of imports

    if not any(section.comparison for section in sections):
        return  # interrupted before the first replay finished
    try:
        write_report(sections, path, f"trimaran {version('trimaran')}: {shlex.join(sys.argv[1:])}")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", 2)
