"""``trimaran nodes``: write on nodes how loaded they are."""

import signal
from pathlib import Path

import click

from runtime import logs
from runtime.errors import SettingsError
from trimaran.soft_taints.settings import NodesSettings
from watcher.commands import errors_or_exit, load_or_exit, log_level_option, setting_options, stopped_early


@click.command()
@click.option("--taints", is_flag=True, default=None, help="Taint hot nodes with PreferNoSchedule.")
@click.option("--windows", help="Annotate nodes with the load of these windows, such as 15m,5m.")
@click.option("--watcher", help="The watcher's address. [default: this process watches by itself]")
@click.option("--kube-config", help="A kubeconfig. [default: the pod's service account]")
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="The port to listen on. [default: 2022]")
@log_level_option
@click.option("--clear", is_flag=True, help="Take all that was written off all nodes, and end.")
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
    file: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Write on nodes how loaded they are: soft taints on hot ones, annotations.

    Makes a scheduler load-aware that nobody may touch. Of several processes one writes, by a Lease.

    \b
    Example: trimaran nodes --taints --windows 15m --watcher http://trimaran:2020
    """
    signal.signal(signal.SIGTERM, stopped_early)
    flags = {
        "nodes.taints": taints, "nodes.windows": windows, "nodes.watcher": watcher, "nodes.kube_config": kube_config,
        "server.host": host, "server.port": port, "log.level": log_level,
    }  # fmt: skip
    settings = load_or_exit(NodesSettings, file, assignments, flags).settings
    logs.configure(settings.log.level, settings.log.format)
    from trimaran.soft_taints import clearing, service  # Flask and gunicorn are only needed here
    from watcher.providers.base import check_providers

    with errors_or_exit():
        if clear:
            click.echo(f"trimaran: {clearing.clear(settings)} nodes were cleared")
            return
        if not (settings.nodes.taints or settings.nodes.windows):
            raise SettingsError(["nodes.taints, nodes.windows: nothing is to be written; give --taints or --windows"])
        if settings.nodes.watcher is None:
            check_providers(settings)  # told here, not by a worker that dies
        service.serve(settings)
