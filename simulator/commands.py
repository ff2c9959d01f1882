"""``trimaran simulate``: replay what pods really used against any policy, and compare policies."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from simulator.comparison import Comparison, Kept, Task, make_all, world_names
from simulator.policies.catalogue import policy_names
from simulator.replay import Options
from simulator.trace import TraceError, read_trace
from simulator.watching import Watching


class Overcommit(click.ParamType[tuple[float, float]]):
    """A factor for both resources, or one for CPU and one for memory."""

    name = "factor[,factor]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Return the factors of CPU and of memory."""
        try:
            factors = [float(part) for part in str(value).split(",")]
            if len(factors) > 2 or not all(0 < factor < float("inf") for factor in factors):
                raise ValueError  # noqa: TRY301  told below
        except ValueError:
            self.fail(f"{value!r}: one number above 0, or two: for CPU and for memory", param, ctx)
        return factors[0], factors[-1]


@click.group()
def simulate() -> None:
    """Replay what pods really used against any policy, and compare policies."""


@simulate.command()
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR...",
    help="A trace's folder; may be given several times, and be followed by more.",
)
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="[DIR]...")
@click.option("--policy", "chosen", multiple=True, help="Compare these only; see `--list`. [default: all]")
@click.option("--overcommit", type=Overcommit(), help="What requests are divided by. [default: the trace's own]")
@click.option("--seed", default=0, show_default=True, help="Draws among equals.")
@click.option("--jobs", default=1, show_default=True, help="Processes to replay in; -1 is one for each processor.")
@click.option("--scheduler", default="", help="A Dask scheduler, such as tcp://10.0.0.1:8786, to replay on.")
@click.option("--keep", type=click.Path(path_type=Path), help="A file of what is done; given again, goes on from it.")
@click.option("--json", "as_json", is_flag=True, help="Print {world: {policy: {measure: number}}}.")
@click.option("--list", "listing", is_flag=True, help="List the policies.")
def compare(
    traces: tuple[Path, ...],
    more: tuple[Path, ...],
    chosen: tuple[str, ...],
    overcommit: tuple[float, float] | None,
    seed: int,
    jobs: int,
    scheduler: str,
    keep: Path | None,
    *,
    as_json: bool,
    listing: bool,
) -> None:
    r"""Replay every policy in every world.

    \b
    Example: trimaran simulate compare --trace worlds/a worlds/b --policy default --policy congestion-cost --json
    """
    if listing:
        click.echo("\n".join(policy_names()))
        return
    folders = [*traces, *more]
    if not folders:
        raise click.UsageError("which traces? Name folders with --trace")
    unknown = set(chosen) - set(policy_names())
    if unknown:
        raise click.UsageError(f"no policy is called {min(unknown)}; there are: {', '.join(policy_names())}")
    options = Options(seed=seed, overcommit=overcommit, watching=Watching())
    tasks = [Task(folder, policy, options) for folder in folders for policy in chosen or policy_names()]
    try:
        for folder in folders:
            read_trace(folder)  # told before hours of work
        result = _make(tasks, Kept(keep, version("trimaran")), jobs, scheduler, world_names(folders))
    except TraceError as error:
        click.echo(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(json.dumps(result, indent=1) if as_json else _table(result))


def _make(tasks: Sequence[Task], kept: Kept, jobs: int, scheduler: str, names: Mapping[Path, str]) -> Comparison:
    """Make what is not kept; Ctrl-C ends it with what is done."""
    found = {task: kept.find(task) for task in tasks}
    missing = [task for task, measures in found.items() if measures is None]
    done: dict[tuple[Path, str], Mapping[str, float]] = {
        (task.folder, task.policy): measures for task, measures in found.items() if measures is not None
    }
    try:
        with click.progressbar(length=len(missing), label="replays", file=sys.stderr) as bar:
            for each in make_all(missing, jobs, scheduler):
                kept.keep(each)
                done[each.task.folder, each.task.policy] = each.measures
                bar.update(1)
    except KeyboardInterrupt:
        click.echo(f"stopped: {len(done)} of {len(tasks)} replays are done", err=True)
    result: Comparison = {}
    for task in tasks:
        measures = done.get((task.folder, task.policy))
        if measures is not None:
            result.setdefault(names[task.folder], {})[task.policy] = dict(measures)
    return result


def _table(result: Comparison) -> str:
    """Return measures side by side, a block for each world."""
    blocks = []
    for world, by_policy in result.items():
        names = list(next(iter(by_policy.values())))
        widths = [max(len(name), 12) for name in names]
        left = max(map(len, by_policy))
        lines = [f"{world:{left}}  " + "  ".join(f"{n:>{w}}" for n, w in zip(names, widths, strict=True))]
        for policy, measures in by_policy.items():
            cells = (
                f"{measures[n]:>{w}.{0 if measures[n] % 1 == 0 else 2}f}" for n, w in zip(names, widths, strict=True)
            )
            lines.append(f"{policy:{left}}  " + "  ".join(cells))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
