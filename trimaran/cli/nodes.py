"""``trimaran nodes``: controller that marks nodes with their load by PreferNoSchedule taints and annotations."""

import click

from runtime.errors import SettingsError, SettingsProblems
from runtime.terminal import echo
from trimaran.cli.options import controller_options
from trimaran.soft_taints.settings import NodesSettings
from watcher.commands import ServiceStart, errors_or_exit


@click.command()
@click.option("--taints", is_flag=True, default=None, help="Taint hot nodes with PreferNoSchedule.")
@click.option("--clear", is_flag=True, help="Remove all taints and annotations of trimaran from all nodes, and exit.")
@click.option("--force", is_flag=True, help="With --clear: do not wait until the replica that writes has stopped.")
@controller_options(
    2023, ("--windows", "nodes.windows", "Annotate nodes with their load in these windows, such as 15m,5m.")
)
def nodes(start: ServiceStart, *, taints: bool | None, clear: bool, force: bool) -> None:
    """Mark nodes with their load: soft taints on hot nodes, and annotations.

    Makes an unmodified scheduler load-aware. Of several replicas, only the leader (by a Lease) writes.

    \b
    Example: trimaran nodes --taints --windows 15m --watcher http://trimaran:2020

    --clear waits for up to 45 seconds (three times the duration of the Lease) for the replica that writes to stop.

    Exit status: 0 if stopped by a signal or cleared, 1 if it cannot listen or clear, 2 if the settings are invalid.
    """
    if force and not clear:
        raise click.UsageError("--force needs --clear")
    settings = start.load(NodesSettings, {"nodes.taints": taints}).settings
    from trimaran.soft_taints import clearing, service  # Flask and gunicorn are only needed here

    with errors_or_exit(settings.log.format):
        if clear:
            echo(f"trimaran: {clearing.clear(settings, force=force)}")
            return
        problems = SettingsProblems()
        with problems.collect():
            if not (settings.nodes.taints or settings.nodes.windows):
                raise SettingsError(["nodes.taints, nodes.windows: nothing to write; give --taints or --windows"])
        with problems.collect():
            settings.cluster.check_watcher(settings)  # fail here, not in a worker process
        problems.raise_any()
        service.serve(settings)
