"""``trimaran simulate``: replay what pods really used against any policy, and compare policies."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from trimaran.cli.import_traces import import_
from trimaran.cli.options import fail, renamed_option
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.comparison import SchedulerError
from trimaran.simulator.faults import read_faults
from trimaran.simulator.moving.base import Trigger
from trimaran.simulator.overcommit_options import Factors, Overcommit
from trimaran.simulator.policies.catalogue import CONGESTION, policy_names
from trimaran.simulator.replay import ReplayOptions
from trimaran.simulator.replay_batch import ReplayBatch
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.text import tables
from trimaran.simulator.windows import MAX_DELAY_MINUTES, Windows
from trimaran.traces.events import read_events
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import TraceError, absolute_path, write_trace

Command = TypeVar("Command", bound=Callable[..., Any])
_FACTORS = "1,1.2,1.4,1.6,1.8,2"
_POLICIES = click.option("--policy", "chosen", multiple=True, help="Replay this one; several times. [default: all]")
_OVERCOMMIT = click.option(
    "--overcommit", type=Overcommit(), help="What requests are divided by. [default: the trace's own]"
)
_NODES_SAVED = click.option(
    "--nodes-saved", is_flag=True, help="Measure also how many nodes each policy saves; takes longer."
)
_WINDOWS = {
    name: click.option(
        f"--{name.replace('_', '-')}", default=getattr(Windows, name), show_default=True, type=of, help=said,
    )
    for name, of, said in (
        ("window_minutes", click.IntRange(1), "What metrics are averaged over."),
        ("interval_minutes", click.IntRange(1), "From one fetch of metrics to the next."),
        ("delay_minutes", click.IntRange(0, MAX_DELAY_MINUTES), "How old metrics are when they are fetched."),
        ("smoothing_minutes", click.IntRange(1), "What each sample of CPU is a rate over."),
    )
}  # fmt: skip


class _Folder(click.Path):
    """A folder's path, which is not empty: as Path has it, that would be the current folder."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("a trace's folder has no name; is a variable of the shell empty?", parameter, context)
        return super().convert(value, parameter, context)


def _jobs(context: click.Context, option: click.Parameter, value: int) -> int:
    """Refuse 0, which has no meaning; below it counts from all processors, as joblib does."""
    if value == 0:
        raise click.BadParameter("0 processes replay nothing", context, option)
    return value


def shared_options(command: Command) -> Command:
    """Add the options that say what is replayed."""
    for decorate in reversed(
        (
            click.option(
                "--trace", "traces", multiple=True, type=_Folder(path_type=Path), metavar="DIR...",
                help="A trace's folder; several times, or followed by more. [default: a synthetic world]",
            ),
            click.argument("more", nargs=-1, type=_Folder(path_type=Path), metavar="[DIR]..."),
            click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Draws among equals."),
            click.option(
                "--faults", type=click.Path(path_type=Path, dir_okay=False),
                help="A list of what goes wrong with metrics, start_minute,end_minute,node,fault,value.",
            ),
            *_WINDOWS.values(),
            click.option(
                "--events", type=click.Path(path_type=Path, dir_okay=False),
                help="Nodes that fail and join, in place of the traces' own events.csv.",
            ),
            click.option("--autoscale", is_flag=True, help="Add nodes when pods do not fit, and take them away again."),
            click.option("--lead-minutes", default=3, show_default=True, type=click.IntRange(0), help="Of nodes."),
            click.option("--spare-nodes", default=0, show_default=True, type=click.IntRange(0), help="Kept empty."),
            click.option(
                "--move-trigger", "move_triggers", multiple=True, type=click.Choice([each.value for each in Trigger]),
                help="Event on which policies that move pods look for moves; repeatable. [default: time]",
            ),
            renamed_option("--moves-at", "--move-trigger"),
            click.option(
                "--jobs", default=1, show_default=True, callback=_jobs, help="Processes; -1 is one for each processor."
            ),
            click.option("--scheduler", default="", help="A Dask scheduler to replay on: tcp://10.0.0.1:8786."),
            click.option(
                "--resume-file", type=click.Path(path_type=Path, dir_okay=False),
                help="File that stores finished replays; a later run with the same file continues from there.",
            ),
            renamed_option("--keep", "--resume-file"),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option(
                "--html", type=click.Path(path_type=Path, dir_okay=False, writable=True),
                help="Write a report with pictures; what it shows stands in a file beside it, as JSON.",
            ),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


@click.group()
def simulate() -> None:
    """Replay what pods really used against any policy, and compare policies.

    \b
    Example: trimaran simulate compare --json
    """


simulate.add_command(import_)


@simulate.command()
@shared_options
@click.option("--policy", default=CONGESTION, show_default=True, help="The one to replay.")
@_OVERCOMMIT
@_NODES_SAVED
def run(policy: str, **options: Any) -> None:
    """Replay one policy: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate run --trace worlds/a --policy default

    Ends with status 0 when every replay is done, 1 when it was stopped before, 2 when the input cannot be used.
    """
    _compare(chosen=(policy,), **options)


@simulate.command()
@shared_options
@_POLICIES
@_OVERCOMMIT
@_NODES_SAVED
@click.option("--list", "listing", is_flag=True, help="List the policies.")
def compare(*, listing: bool, **options: Any) -> None:
    """Replay every policy in every world: {world: {policy: {measure: number}}}; a table has the main measures.

    \b
    Example: trimaran simulate compare --trace worlds/a worlds/b --policy default --policy congestion-cost --json

    Ends with status 0 when every replay is done, 1 when it was stopped before, 2 when the input cannot be used.
    """
    if listing:
        click.echo("\n".join(policy_names()))
        return
    _compare(**options)


@simulate.command()
@shared_options
@_POLICIES
@click.option("--overcommit", "factors", type=Factors(), default=_FACTORS, show_default=True, help="Of both resources.")
def sweep(factors: tuple[float, ...], *, as_json: bool, **shared: Any) -> None:
    """Compare at several values of overcommit: {factor: {world: {policy: {measure: number}}}}.

    \b
    Example: trimaran simulate sweep --trace worlds/a --policy default --policy congestion-cost --jobs -1

    Ends with status 0 when every replay is done, 1 when it was stopped before, 2 when the input cannot be used.
    """
    made = _with_work(shared, lambda batch: batch.run([(factor, factor) for factor in factors]))
    whole = all(each.whole for each in made)
    made = [each for each in made if each.comparison]  # all, unless it was stopped
    if as_json:
        click.echo(json.dumps({each.label: each.comparison for each in made}, indent=1))
    else:
        click.echo("\n\n".join(f"overcommit {each.label}\n{tables(each.comparison)}" for each in made))
    raise SystemExit(0 if whole else 1)


@simulate.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of everything that is drawn.")
@click.option("--nodes", default=60, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--hours", default=60, show_default=True, type=click.IntRange(2, 10_000))
@click.option(
    "--warm-up-hours", type=click.IntRange(0), help="Not measured. [default: a fifth of the hours, at most 12]"
)
@click.option("--rollouts", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Owners rolled anew.")
def generate(folder: Path, seed: int, nodes: int, hours: int, warm_up_hours: int | None, rollouts: float) -> None:
    """Write a synthetic world with published statistics.

    \b
    Example: trimaran simulate generate worlds/small --nodes 20 --hours 36
    """
    check_new(folder)
    if warm_up_hours is None:
        warm_up_hours = min(hours // 5, 12)
    if warm_up_hours >= hours:
        raise click.UsageError(f"a warm-up of {warm_up_hours} hours leaves nothing of {hours}")
    drawn = Synthetic(seed, nodes, 60 * hours, 60 * warm_up_hours, rollouts=rollouts)
    write_or_fail(drawn.trace(), folder)


def _compare(*, overcommit: tuple[float, float] | None, nodes_saved: bool, as_json: bool, **shared: Any) -> None:
    """Replay at one overcommit, and print the measures."""
    if nodes_saved and shared["autoscale"]:
        raise click.UsageError("--nodes-saved takes nodes away, and --autoscale would bring them back: leave out one")
    (made,) = _with_work(shared, lambda batch: replace(batch, nodes_saved=nodes_saved).run([overcommit]))
    click.echo(json.dumps(made.comparison, indent=1) if as_json else tables(made.comparison))
    raise SystemExit(0 if made.whole else 1)


def _with_work(shared: Mapping[str, Any], make: Callable[[ReplayBatch], list[ReportSection]]) -> list[ReportSection]:
    """Read the options that commands share, make what is asked for, and write its report.

    A synthetic world is compared in where none is named.
    """
    folders = tuple({absolute_path(folder): folder for folder in (*shared["traces"], *shared["more"])}.values())
    known = policy_names()
    unknown = set(shared["chosen"]) - set(known)
    if unknown:
        raise click.UsageError(f"no policy is called {min(unknown)}; there are: {', '.join(known)}")
    html: Path | None = shared["html"]
    if html is not None and html.suffix == ".json":
        raise click.UsageError(f"--html {html}: the JSON beside it would have this name; call it {html.stem}.html")
    try:
        options = ReplayOptions(
            seed=shared["seed"],
            windows=Windows(**{name: shared[name] for name in _WINDOWS}),
            events=read_events(shared["events"]) if shared["events"] else None,
            autoscaling=Autoscaling(shared["lead_minutes"], shared["spare_nodes"]) if shared["autoscale"] else None,
            move_triggers=tuple(map(Trigger, shared["move_triggers"])),
            faults=read_faults(shared["faults"]) if shared["faults"] else (),
        )
        work = ReplayBatch(
            folders, tuple(dict.fromkeys(shared["chosen"] or known)), options, shared["jobs"], shared["scheduler"],
            shared["resume_file"], html=html,
        )  # fmt: skip
        if html is not None:
            import_module("matplotlib")  # told before hours of work, as is where nothing can be written
            _open_report(html)
        with TemporaryDirectory() as directory:
            if not folders:
                folder = Path(directory) / "synthetic-0"
                write_trace(Synthetic().trace(), folder)
                work = replace(work, folders=(folder,))
            made = make(work)
    except (TraceError, SchedulerError) as error:
        fail(error, 2)
    except MemoryError as error:
        fail(f"not enough memory: {error}; replay fewer at once (--jobs), or a shorter trace", 2)
    except ModuleNotFoundError as error:
        extra = {"distributed": "distributed", "matplotlib": "report"}.get(error.name or "", "simulator")
        fail(f"{error.name} is not installed: pip install trimaran[{extra}]", 2)
    if html is not None:
        _write_report(made, html)
    return made


def _open_report(path: Path) -> None:
    """See that a page can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", 2)


def _write_report(made: Sequence[ReportSection], path: Path) -> None:
    """Write the page, and beside it what it shows as JSON."""
    from trimaran.simulator.report.page import document, page  # draws: an extra, and a second of imports

    if not any(each.comparison for each in made):
        return  # stopped before anything was done
    try:
        path.write_text(page(made, f"trimaran {version('trimaran')}: {shlex.join(sys.argv[1:])}"), encoding="utf-8")
        path.with_suffix(".json").write_text(json.dumps(document(made), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", 2)
