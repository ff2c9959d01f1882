"""``trimaran extender``: serve; its commands write or check what kube-scheduler needs, and show what came of it."""

import signal
from pathlib import Path

import click
import yaml

from runtime import logs
from runtime.errors import SettingsError
from trimaran.cli.explain import regret
from trimaran.extender.settings import ExtenderSettings
from watcher.commands import (
    errors_or_exit,
    load_or_exit,
    log_level_option,
    setting_options,
    stopped_early,
    yaml_or_exit,
)


@click.group(invoke_without_command=True)
@click.option("--config", "configuration", help="The KubeSchedulerConfiguration whose plugins score.")
@click.option("--watcher", help="The watcher's address. [default: this process watches by itself]")
@click.option("--kube-config", help="A kubeconfig. [default: the pod's service account]")
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="The port to listen on. [default: 2021]")
@log_level_option
@setting_options
@click.pass_context
def extender(
    context: click.Context,
    configuration: str | None,
    watcher: str | None,
    kube_config: str | None,
    host: str | None,
    port: str | None,
    log_level: str | None,
    file: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Score nodes for a stock kube-scheduler: POST /prioritize.

    It scores by the plugins of a KubeSchedulerConfiguration that kube-scheduler does not have itself.
    """
    if context.invoked_subcommand is not None:
        return
    signal.signal(signal.SIGTERM, stopped_early)
    flags = {
        "extender.config": configuration, "extender.watcher": watcher, "extender.kube_config": kube_config,
        "server.host": host, "server.port": port, "log.level": log_level,
    }  # fmt: skip
    loaded = load_or_exit(ExtenderSettings, file, assignments, flags)
    settings = loaded.settings
    logs.configure(settings.log.level, settings.log.format)
    from trimaran.extender import service  # Flask and gunicorn are only needed here
    from watcher.providers.base import check_providers

    with errors_or_exit():
        if settings.extender.config is None:
            raise SettingsError(["extender.config: which plugins score? Name a file with --config"])
        profiles = service.read_profiles(settings.extender.config)
        if settings.extender.watcher is None:
            check_providers(settings)  # told here, not by a worker that dies
        service.serve(loaded, profiles)


@extender.command()
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--url", default="http://127.0.0.1:2021", show_default=True, help="Where kube-scheduler asks.")
@click.option("--ca-file", default="", help="The authority of an https URL, where kube-scheduler has the file.")
@click.option("--certificate", default="", help="A client certificate, where kube-scheduler has the file.")
@click.option("--key", default="", help="Its key, the same.")
@click.option("--timeout-ms", default=500, show_default=True, help="After which kube-scheduler goes on without.")
@click.option("--filter", "filters", is_flag=True, help="Have it filter too; see extender.filter.")
@click.option(
    "--no-safety-net",
    is_flag=True,
    help="Do not let NodeResourcesFit and NodeResourcesBalancedAllocation score where FILE does not name them.",
)
@click.option("--check", is_flag=True, help="Check FILE, which kube-scheduler reads already, and write nothing.")
def config(
    source: Path,
    url: str,
    ca_file: str,
    certificate: str,
    key: str,
    timeout_ms: int,
    *,
    filters: bool,
    no_safety_net: bool,
    check: bool,
) -> None:
    """Write a KubeSchedulerConfiguration for a stock kube-scheduler, from FILE with our plugins.

    \b
    Example: trimaran extender config scheduler.yaml --url https://trimaran-extender:2021 --ca-file /etc/ca.crt
    """
    from trimaran.extender import kube_scheduler  # only needed here

    with yaml_or_exit(source) as document:
        if not isinstance(document, dict):
            raise ValueError("is no KubeSchedulerConfiguration")  # noqa: TRY004  a user's mistake
        if check:
            given = click.get_current_context().get_parameter_source("url") is not click.core.ParameterSource.DEFAULT
            found = list(kube_scheduler.validate_config(document, url if given else ""))
            click.echo("\n".join(found) or "a stock kube-scheduler asks the extender with this")
            raise SystemExit(1 if found else 0)
        way = kube_scheduler.ExtenderEndpoint(url, ca_file, certificate, key, timeout_ms, filters)
        made = kube_scheduler.render_config(document, way, safety_net=not no_safety_net)
    click.echo(yaml.safe_dump(made, sort_keys=False), nl=False)


extender.add_command(regret)
