"""``trimaran simulate import``: convert a public data set to a trace that the simulator can replay."""

from pathlib import Path

import click

from runtime.terminal import echo
from trimaran.cli.options import FiniteRange, fail, option
from trimaran.cli.trace_output import check_new, history_days_option, write_or_fail
from trimaran.traces.loaders.alibaba2018 import Alibaba2018
from trimaran.traces.loaders.azure2019 import Azure2019
from trimaran.traces.loaders.building import ImportOptions, build_trace
from trimaran.traces.loaders.dataset import DatasetFormat
from trimaran.traces.loaders.google2011 import Google2011
from trimaran.traces.loaders.google2019 import Google2019
from trimaran.traces.loaders.openb import Openb
from trimaran.traces.loaders.planetlab import PlanetLab
from trimaran.traces.loaders.rows import DatasetFiles, LoadError
from trimaran.traces.trace import world_name

FORMATS: dict[str, DatasetFormat] = {
    "alibaba2018": Alibaba2018(),
    "azure2019": Azure2019(),
    "google2011": Google2011(),
    "google2019": Google2019(),
    "openb": Openb(),
    "planetlab": PlanetLab(),
}


@click.command("import", short_help="Convert a public data set into a trace.")
@click.argument("form", type=click.Choice(list(FORMATS)), metavar="FORMAT")
@click.argument("folder", type=click.Path(path_type=Path), metavar="SOURCE")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@option("--nodes", default=60, type=click.IntRange(1, 100_000), help="Largest number of machines, sampled at random.")
@option(
    "--from-hour",
    default=0.0,
    type=FiniteRange(0),
    help="Start of the imported time span, in hours after the start of the data set.",
)
@option("--hours", default=60.0, type=FiniteRange(0.1, 10_000), help="Length of the time span.")
@option(
    "--warm-up-hours",
    default=12.0,
    type=FiniteRange(0),
    help="First part of the time span, which replays do not measure.",
)
@option("--seed", default=0, help="Random seed of the sample of machines.")
@history_days_option
def import_(
    form: str, folder: Path, out: Path, nodes: int, from_hour: float, hours: float, warm_up_hours: float, seed: int,
    history_days: int,
) -> None:  # fmt: skip
    """Import a public data set from its downloaded files in SOURCE, and write it as a trace into OUT.

    \b
    Formats: alibaba2018, azure2019, google2011, google2019, openb, planetlab
    Example: trimaran simulate import google2011 clusterdata-2011-2 worlds/google --nodes 60 --hours 60

    Packed and unpacked files are read as a stream. Unreadable rows are left out and counted.

    Exit status: 0 if the trace is written, 2 if the data or an option cannot be used.
    """
    check_new(out)
    options = ImportOptions(
        nodes, round(60 * from_hour), round(60 * hours), round(60 * warm_up_hours), seed, history_days
    )
    if options.warm_up_minutes >= options.minutes:
        raise click.UsageError(f"--warm-up-hours {warm_up_hours:g} must be less than --hours {hours:g}")
    if (days := options.begin_minute // 1440) < history_days:
        raise click.UsageError(
            f"--history-days {history_days}: the data set has {days} whole days before --from-hour {from_hour:g}; "
            f"begin at hour {24 * history_days} or later"
        )
    try:
        source = DatasetFiles(folder, FORMATS[form].title)
        try:
            trace, without_use = build_trace(world_name(out), source, FORMATS[form], options)
        finally:
            _report(source)
    except LoadError as error:
        fail(error, 2)
    write_or_fail(trace, out)
    if without_use:
        echo(f"trimaran: {without_use} pods are left out: their use is not in the data set", err=True)
    if trace.minutes < options.minutes:
        echo(
            f"trimaran: the data set has only {_hours(trace.minutes)} of the requested {_hours(options.minutes)} "
            f"hours; the trace has these, with a warm-up of {_hours(trace.warm_up_minutes)} hours",
            err=True,
        )
    factors = " and ".join(f"{factor:g}" for factor in trace.overcommit)
    echo(
        f"{out}: {len(trace.nodes)} nodes, {len(trace.pods)} pods, {trace.minutes} minutes; "
        f"overcommit {factors} of CPU and memory"
    )


def _report(source: DatasetFiles) -> None:
    """Print what a format assumes about the files, and the number of unreadable rows."""
    for note in source.notes:
        echo(f"trimaran: {note}", err=True)
    for name, count in source.bad.items():
        echo(f"trimaran: {name}: {count} rows cannot be read and are left out; {source.examples[name]}", err=True)


def _hours(minutes: int) -> str:
    return f"{round(minutes / 60, 2):g}"
