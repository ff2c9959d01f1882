"""``trimaran simulate``: replay what pods really used against any policy, and compare policies."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from simulator.autoscaling import Autoscaling
from simulator.comparison import Comparison, Kept, Task, make_all, world_names
from simulator.events import check_events, read_events
from simulator.faults import read_faults
from simulator.moving import Trigger
from simulator.policies.catalogue import policy_names
from simulator.replay import Options
from simulator.synthetic import Synthetic
from simulator.trace import TraceError, read_trace, write_trace

Command = TypeVar("Command", bound=Callable[..., Any])
_FACTORS = "1,1.2,1.4,1.6,1.8,2"


class Overcommit(click.ParamType[tuple[float, float]]):
    """A factor for both resources, or one for CPU and one for memory."""

    name = "factor[,factor]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Return the factors of CPU and of memory."""
        factors = _numbers(str(value))
        if not 1 <= len(factors) <= 2:
            self.fail(f"{value!r}: one number above 0, or two: for CPU and for memory", param, ctx)
        return factors[0], factors[-1]


class Factors(click.ParamType[tuple[float, ...]]):
    """Several factors."""

    name = "factor,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the factors."""
        factors = _numbers(str(value))
        if not factors:
            self.fail(f"{value!r}: numbers above 0, with commas between them", param, ctx)
        return factors


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

    def make(self) -> tuple[Comparison, bool]:
        """Make every replay that is not kept, and return what is done; and whether it is all, or Ctrl-C ended it."""
        for folder in self.folders:
            check_events(self.options.events or (), read_trace(folder).amounts())  # told before hours of work
        try:
            kept = Kept(self.keep, version("trimaran"))
        except OSError as error:
            raise click.UsageError(f"--keep {self.keep}: cannot be read and written: {error.strerror}") from None
        tasks = [
            Task(folder, policy, self.options, self.nodes_saved) for folder in self.folders for policy in self.policies
        ]
        done = {task: measures for task in tasks if (measures := kept.find(task)) is not None}
        missing = [task for task in tasks if task not in done]
        try:
            with click.progressbar(length=len(missing), label="replays", file=sys.stderr) as bar:
                for each in make_all(missing, self.jobs, self.scheduler):
                    kept.keep(each)
                    done[each.task] = each.measures
                    bar.update(1)
        except KeyboardInterrupt:
            click.echo(f"stopped: {len(done)} of {len(tasks)} replays are done", err=True)
        names, result = world_names(self.folders), Comparison()
        for task in tasks:
            if task in done:
                result.setdefault(names[task.folder], {})[task.policy] = dict(done[task])
        return result, len(done) == len(tasks)


def shared_options(command: Command) -> Command:
    """Add the options that say what is replayed."""
    for decorate in reversed(
        (
            click.option(
                "--trace", "traces", multiple=True, type=click.Path(path_type=Path), metavar="DIR...",
                help="A trace's folder; several times, or followed by more. [default: a synthetic world]",
            ),
            click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]..."),
            click.option("--policy", "chosen", multiple=True, help="Replay this one; several times. [default: all]"),
            click.option("--seed", default=0, show_default=True, help="Draws among equals."),
            click.option(
                "--faults", type=click.Path(path_type=Path, dir_okay=False),
                help="A list of what goes wrong with metrics, start_minute,end_minute,node,fault,value.",
            ),
            click.option(
                "--events", type=click.Path(path_type=Path, dir_okay=False),
                help="Nodes that fail and join, in place of the traces' own events.csv.",
            ),
            click.option("--autoscale", is_flag=True, help="Add nodes when pods do not fit, and take them away again."),
            click.option("--lead-minutes", default=3, show_default=True, type=click.IntRange(0), help="Of nodes."),
            click.option("--spare-nodes", default=0, show_default=True, type=click.IntRange(0), help="Kept empty."),
            click.option(
                "--moves-at", multiple=True, type=click.Choice([each.value for each in Trigger]),
                help="What policies that move pods look for moves at; several times. [default: time]",
            ),
            click.option("--jobs", default=1, show_default=True, help="Processes; -1 is one for each processor."),
            click.option("--scheduler", default="", help="A Dask scheduler to replay on: tcp://10.0.0.1:8786."),
            click.option(
                "--keep", type=click.Path(path_type=Path, dir_okay=False),
                help="Keep what is done in this file, and go on from it.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
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


@simulate.command()
@shared_options
@click.option("--overcommit", type=Overcommit(), help="What requests are divided by. [default: the trace's own]")
@click.option("--nodes-saved", is_flag=True, help="Measure also how many nodes each policy saves; takes longer.")
@click.option("--list", "listing", is_flag=True, help="List the policies.")
def compare(
    overcommit: tuple[float, float] | None, *, nodes_saved: bool, listing: bool, as_json: bool, **shared: Any
) -> None:
    """Replay every policy in every world: {world: {policy: {measure: number}}}.

    \b
    Example: trimaran simulate compare --trace worlds/a worlds/b --policy default --policy congestion-cost --json
    """
    if listing:
        click.echo("\n".join(policy_names()))
        return
    result, _ = _with_work(shared, lambda work: replace(work, nodes_saved=nodes_saved).make(), overcommit)
    click.echo(json.dumps(result, indent=1) if as_json else _table(result))


@simulate.command()
@shared_options
@click.option("--overcommit", "factors", type=Factors(), default=_FACTORS, show_default=True, help="Of both resources.")
def sweep(factors: tuple[float, ...], *, as_json: bool, **shared: Any) -> None:
    """Compare at several values of overcommit: {factor: {world: {policy: {measure: number}}}}.

    \b
    Example: trimaran simulate sweep --trace worlds/a --policy default --policy congestion-cost --jobs -1
    """

    def make(work: Work) -> dict[str, Comparison]:
        made = {}
        for factor in factors:
            result, is_all = replace(work, options=replace(work.options, overcommit=(factor, factor))).make()
            made[f"{factor:g}"] = result
            if not is_all:
                break
        return made

    result = _with_work(shared, make)
    if as_json:
        click.echo(json.dumps(result, indent=1))
    else:
        click.echo("\n\n".join(f"overcommit {factor}\n{_table(made)}" for factor, made in result.items()))


@simulate.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", default=0, show_default=True, help="Of everything that is drawn.")
@click.option("--nodes", default=60, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--hours", default=60, show_default=True, type=click.IntRange(2, 10_000))
@click.option("--warm-up-hours", default=12, show_default=True, type=click.IntRange(0))
@click.option("--rollouts", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Owners rolled anew.")
def generate(folder: Path, seed: int, nodes: int, hours: int, warm_up_hours: int, rollouts: float) -> None:
    """Write a synthetic world with published statistics."""
    if warm_up_hours >= hours:
        raise click.UsageError(f"a warm-up of {warm_up_hours} hours leaves nothing of {hours}")
    drawn = Synthetic(seed, nodes, 60 * hours, 60 * warm_up_hours, rollouts=rollouts)
    write_trace(drawn.trace(), folder)


Made = TypeVar("Made")


def _with_work(
    shared: Mapping[str, Any], make: Callable[[Work], Made], overcommit: tuple[float, float] | None = None
) -> Made:
    """Read the options that commands share, and make what is asked for; a synthetic world where none is named."""
    folders = (*shared["traces"], *shared["more"])
    known = policy_names()
    unknown = set(shared["chosen"]) - set(known)
    if unknown:
        raise click.UsageError(f"no policy is called {min(unknown)}; there are: {', '.join(known)}")
    chosen, keep = shared["chosen"] or tuple(known), shared["keep"]
    try:
        options = Options(
            seed=shared["seed"],
            overcommit=overcommit,
            events=read_events(shared["events"]) if shared["events"] else None,
            autoscaling=Autoscaling(shared["lead_minutes"], shared["spare_nodes"]) if shared["autoscale"] else None,
            move_triggers=tuple(map(Trigger, shared["moves_at"])),
            faults=read_faults(shared["faults"]) if shared["faults"] else (),
        )
        work = Work(folders, chosen, options, shared["jobs"], shared["scheduler"], keep)
        if folders:
            return make(work)
        with TemporaryDirectory() as directory:
            folder = Path(directory) / "synthetic-0"
            write_trace(Synthetic().trace(), folder)
            return make(replace(work, folders=(folder,)))
    except TraceError as error:
        click.echo(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        extra = "distributed" if error.name == "distributed" else "simulator"
        click.echo(f"trimaran: {error.name} is not installed: pip install trimaran[{extra}]", err=True)
        raise SystemExit(2) from None


def _numbers(text: str) -> tuple[float, ...]:
    """Return numbers above 0 with commas between them; none when any has no meaning."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return numbers if all(0 < number < float("inf") for number in numbers) else ()


def _table(result: Comparison) -> str:
    """Return measures side by side, a block for each world."""
    return "\n\n".join(_block(world, by_policy) for world, by_policy in result.items())


def _block(world: str, by_policy: Mapping[str, Mapping[str, float]]) -> str:
    names = list(next(iter(by_policy.values())))
    widths = [max(len(name), 12) for name in names]
    left = max(map(len, (world, *by_policy)))
    rows: list[Sequence[str]] = [names]
    rows += [[_number(measures[name]) for name in names] for measures in by_policy.values()]
    return "\n".join(
        f"{title:{left}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for title, row in zip((world, *by_policy), rows, strict=True)
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
