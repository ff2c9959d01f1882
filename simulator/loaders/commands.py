"""``trimaran simulate import``: a public data set as a trace."""

from pathlib import Path

import click

from client.options import fail
from simulator.loaders.alibaba2018 import Alibaba2018
from simulator.loaders.azure2019 import Azure2019
from simulator.loaders.building import Wanted, build
from simulator.loaders.dataset import Format
from simulator.loaders.google2011 import Google2011
from simulator.loaders.google2019 import Google2019
from simulator.loaders.openb import Openb
from simulator.loaders.planetlab import PlanetLab
from simulator.loaders.rows import LoadError, Source
from simulator.writing import check_new, write_or_fail

FORMATS: dict[str, Format] = {
    "alibaba2018": Alibaba2018(),
    "azure2019": Azure2019(),
    "google2011": Google2011(),
    "google2019": Google2019(),
    "openb": Openb(),
    "planetlab": PlanetLab(),
}


@click.command("import")
@click.argument("form", type=click.Choice(list(FORMATS)), metavar="FORMAT")
@click.argument("folder", type=click.Path(path_type=Path), metavar="SOURCE")
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--nodes", default=60, show_default=True, type=click.IntRange(1, 100_000), help="Machines, at most; drawn."
)
@click.option("--from-hour", default=0.0, show_default=True, type=click.FloatRange(0), help="Where the span begins.")
@click.option("--hours", default=60.0, show_default=True, type=click.FloatRange(0.1, 10_000), help="How long it is.")
@click.option("--warm-up-hours", default=12.0, show_default=True, type=click.FloatRange(0), help="Not measured.")
@click.option("--seed", default=0, show_default=True, help="Of what is drawn.")
def import_(
    form: str, folder: Path, out: Path, nodes: int, from_hour: float, hours: float, warm_up_hours: float, seed: int
) -> None:
    """Write a trace of a public data set, read from the folder that it was downloaded into.

    \b
    Formats: alibaba2018, azure2019, google2011, google2019, openb, planetlab
    Example: trimaran simulate import google2011 clusterdata-2011-2 worlds/google --nodes 60 --hours 60

    Files are read in a stream, packed or not; rows that cannot be read are counted. Ends with status 0 when the trace
    is written, 2 when the data cannot be used.
    """
    check_new(out)
    wanted = Wanted(nodes, round(60 * from_hour), round(60 * hours), round(60 * warm_up_hours), seed)
    if wanted.warm_up_minutes >= wanted.minutes:
        raise click.UsageError(f"--warm-up-hours {warm_up_hours:g} leaves nothing of --hours {hours:g}")
    try:
        source = Source(folder, FORMATS[form].title)
        trace, left = build(out.resolve().name, source, FORMATS[form], wanted)
    except LoadError as error:
        fail(error, 2)
    write_or_fail(trace, out)
    for name, count in source.bad.items():
        click.echo(f"trimaran: {name}: {count} rows cannot be read and are left out; {source.examples[name]}", err=True)
    if left.without_use:
        click.echo(f"trimaran: {left.without_use} pods are left out: nothing is told of their use", err=True)
    if trace.minutes < wanted.minutes:
        click.echo(
            f"trimaran: nothing is told after {trace.minutes / 60:g} of these {wanted.minutes / 60:g} hours: the trace "
            f"ends there, and its warm-up after {trace.warm_up_minutes / 60:.3g}",
            err=True,
        )
    factors = " and ".join(f"{factor:g}" for factor in trace.overcommit)
    click.echo(
        f"{out}: {len(trace.nodes)} nodes, {len(trace.pods)} pods, {trace.minutes} minutes; "
        f"overcommit {factors} of CPU and memory"
    )
