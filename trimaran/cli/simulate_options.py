"""Options that all commands of ``trimaran simulate`` with replays share."""

import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from runtime.terminal import output_option
from trimaran.cli.options import option, renamed_option
from trimaran.planning.move_triggers import Trigger
from trimaran.simulator.overcommit_options import Overcommit
from trimaran.simulator.windows import MAX_DELAY_MINUTES, Windows

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)
FACTORS = "1,1.2,1.4,1.6,1.8,2"
DIVISORS = "1,1.25,1.5,2,3"
policies_option = click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|NAME=FILE|NAME=standalone:FILE",
    help="Policy to replay; repeatable. With a FILE, the policy of a KubeSchedulerConfiguration, which kube-scheduler "
    "and the extender carry out, or standalone: trimaran scheduler. [default: all]",
)
overcommit_option = click.option(
    "--overcommit", type=Overcommit(), help="Factor by which requests are divided. [default: the factor of each trace]"
)
nodes_saved_option = click.option(
    "--nodes-saved", is_flag=True, help="Also measure the number of nodes that each policy saves; takes longer."
)
WINDOW_OPTIONS = {
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


class OnceCommand(click.Command):
    """Command that refuses an option given twice, unless the option is repeatable.

    click takes the last value: a second ``--policy`` of ``run`` would silently replace the first one.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the arguments and parse them."""
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for parameter in given:
            if isinstance(parameter, click.Option) and not parameter.multiple and given.count(parameter) > 1:
                raise click.UsageError(f"{parameter.opts[0]} is given twice, but takes one value", ctx)
        return super().parse_args(ctx, args)


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
        raise click.BadParameter("must not be 0; -1 starts one process per processor")
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
    *WINDOW_OPTIONS.values(),
    click.option(
        "--events", type=_FILE, help="CSV file of nodes that fail or join; replaces events.csv of the traces."
    ),
    click.option(
        "--objects",
        type=_FILE,
        help="YAML file of further objects of the cluster, such as ElasticQuotas, for standalone policies.",
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
    click.option(
        "--ceiling/--no-ceiling",
        default=True,
        show_default=True,
        help="Limit the use of pods to their node's CPU, and let jobs end later; otherwise pods use what they demand.",
    ),
    click.option(
        "--learned-use",
        is_flag=True,
        help="Let policies of the form NAME=FILE score pods by the learned use of their workloads, as with "
        "extender.learned_use, instead of by requests. Does not change policies of the catalogue.",
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
html_option = click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="File for a report with figures; its data is written as JSON to the same path with suffix .json.",
)


def shared_options(command: Command) -> Command:
    """Add the options that all commands with replays share to a command."""
    return reduce(lambda decorated, decorate: decorate(decorated), reversed(_SHARED), command)
