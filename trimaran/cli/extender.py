"""``trimaran extender``: serve the scheduler extender.

Subcommands: ``config`` converts a configuration for a stock kube-scheduler, ``regret`` compares the load of the chosen
nodes with that of the extender's best nodes.
"""

import signal
from pathlib import Path

import click

from runtime import logs
from runtime.errors import SettingsError
from runtime.terminal import echo, echo_yaml
from trimaran.cli.explain import regret
from trimaran.cli.options import option
from trimaran.extender.settings import ExtenderSettings
from watcher.commands import (
    errors_or_exit,
    exit_early,
    load_or_exit,
    log_level_option,
    setting_options,
    yaml_or_exit,
)


@click.group(invoke_without_command=True)
@click.option("--config", "configuration", help="KubeSchedulerConfiguration with the plugins to score by.")
@click.option("--watcher", help="Address of a watcher. [default: an embedded watcher]")
@click.option("--kube-config", help="Kubeconfig file. [default: the pod's service account]")
@click.option("--host", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="Port to listen on. [default: 2021]")
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
    """Serve a scheduler extender that scores nodes for a stock kube-scheduler (POST /prioritize).

    The extender runs the plugins of a KubeSchedulerConfiguration that kube-scheduler itself does not have.

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if the settings are invalid.
    """
    if context.invoked_subcommand is not None:
        return
    signal.signal(signal.SIGTERM, exit_early)
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
            raise SettingsError(["extender.config: no file; name a KubeSchedulerConfiguration with --config"])
        profiles = service.read_profiles(settings.extender.config, settings.extender.score_factor)
        if settings.extender.watcher is None:
            check_providers(settings)  # fail here, not in a worker process
        service.serve(loaded, profiles)


@extender.command(short_help="Convert a configuration for kube-scheduler with the extender.")
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@option("--url", default="http://127.0.0.1:2021", help="URL of the extender for kube-scheduler.")
@click.option(
    "--ca-file", default="", help="Certificate authority of an https URL, as a path on kube-scheduler's host."
)
@click.option("--certificate", default="", help="Client certificate, as a path on kube-scheduler's host.")
@click.option("--key", default="", help="Key of the client certificate, as a path on kube-scheduler's host.")
@option("--timeout-ms", default=500, help="Timeout after which kube-scheduler ignores the extender.")
@click.option(
    "--filter",
    "filters",
    is_flag=True,
    help="Let the extender also filter nodes for kube-scheduler; see extender.filter.",
)
@click.option(
    "--check", is_flag=True, help="Only check that FILE is a valid kube-scheduler configuration that uses the extender."
)
def config(
    source: Path,
    url: str,
    ca_file: str,
    certificate: str,
    key: str,
    timeout_ms: int,
    *,
    filters: bool,
    check: bool,
) -> None:
    """Convert FILE, a configuration with trimaran's plugins, for a stock kube-scheduler with the extender.

    \b
    Example: trimaran extender config scheduler.yaml --url https://trimaran-extender:2021 --ca-file /etc/ca.crt
    """
    from trimaran.extender import kube_scheduler  # only needed here

    with yaml_or_exit(source) as document:
        if not isinstance(document, dict):
            raise ValueError("is not a KubeSchedulerConfiguration")  # noqa: TRY004  a user's mistake
        if check:
            has_url = click.get_current_context().get_parameter_source("url") is not click.core.ParameterSource.DEFAULT
            problems = list(kube_scheduler.validate_config(document, url if has_url else ""))
            for problem in problems or ["the configuration is valid, and uses the extender"]:
                echo(problem)
            raise SystemExit(1 if problems else 0)
        endpoint = kube_scheduler.ExtenderEndpoint(url, ca_file, certificate, key, timeout_ms, filters)
        rendered = kube_scheduler.render_config(document, endpoint)
    echo_yaml(rendered)


extender.add_command(regret)
