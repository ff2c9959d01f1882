"""``trimaran nodes``: controller that marks nodes with their load by PreferNoSchedule taints and annotations."""

import signal
from pathlib import Path

import click

from runtime import logs
from runtime.errors import SettingsError, SettingsProblems
from runtime.terminal import echo
from trimaran.soft_taints.settings import NodesSettings
from watcher.commands import errors_or_exit, exit_early, load_or_exit, log_level_option, setting_options


@click.command()
@click.option("--taints", is_flag=True, default=None, help="Taint hot nodes with PreferNoSchedule.")
@click.option("--windows", help="Annotate nodes with their load in these windows, such as 15m,5m.")
@click.option("--watcher", help="Address of a watcher. [default: an embedded watcher]")
@click.option("--kube-config", help="Kubeconfig file. [default: the pod's service account]")
@click.option("--host", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="Port to listen on. [default: 2023]")
@log_level_option
@click.option("--clear", is_flag=True, help="Remove all taints and annotations of trimaran from all nodes, and exit.")
@click.option("--force", is_flag=True, help="With --clear: do not wait until the replica that writes has stopped.")
@setting_options
def nodes(
    taints: bool | None,
    windows: str | None,
    watcher: str | None,
    kube_config: str | None,
    host: str | None,
    port: str | None,
    log_level: str | None,
    *,
    clear: bool,
    force: bool,
    file: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Mark nodes with their load: soft taints on hot nodes, and annotations.

    Makes an unmodified scheduler load-aware. Of several replicas, only the leader (by a Lease) writes.

    \b
    Example: trimaran nodes --taints --windows 15m --watcher http://trimaran:2020

    --clear waits for up to 45 seconds (three times nodes.lease_seconds) for the replica that writes to stop.

    Exit status: 0 if stopped by a signal or cleared, 1 if it cannot listen or clear, 2 if the settings are invalid.
    """
    signal.signal(signal.SIGTERM, exit_early)
    flags = {
        "nodes.taints": taints, "nodes.windows": windows, "nodes.watcher": watcher, "nodes.kube_config": kube_config,
        "server.host": host, "server.port": port, "log.level": log_level,
    }  # fmt: skip
    if force and not clear:
        raise click.UsageError("--force goes with --clear")
    settings = load_or_exit(NodesSettings, file, assignments, flags, is_service=True).settings
    logs.configure(settings.log.level, settings.log.format)
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
            settings.nodes.check_watcher(settings, "nodes")  # fail here, not in a worker process
        problems.raise_any()
        service.serve(settings)
