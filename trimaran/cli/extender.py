"""``trimaran extender``: serve the scheduler extender.

Subcommands: ``config`` converts a configuration for a stock kube-scheduler, ``regret`` compares the load of the chosen
nodes with that of the extender's best nodes, ``trial`` shows the report of a field trial.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from runtime.errors import SettingsError, SettingsProblems
from runtime.parsing import read_bounded
from runtime.terminal import echo, echo_yaml
from trimaran.cli.explain import regret
from trimaran.cli.options import (
    allow_option,
    controller_options,
    judge,
    kube_scheduler_option,
    kubernetes_version_option,
    option,
    report_newest_version,
    scheduler_file_or_exit,
)
from trimaran.cli.trial import trial
from trimaran.extender.settings import ExtenderSettings
from trimaran.plugins import uncalled
from watcher.commands import ServiceStart, errors_or_exit

if TYPE_CHECKING:
    from trimaran.kube_scheduler.findings import StartVerdict
    from trimaran.scheduler_file import SchedulerFile

_CONFIGZ_SECONDS = 10.0


@click.group(invoke_without_command=True)
@controller_options(2021, ("--config", "extender.config", "KubeSchedulerConfiguration with the plugins to score by."))
@click.pass_context
def extender(context: click.Context, start: ServiceStart) -> None:
    """Serve a scheduler extender that scores nodes for a stock kube-scheduler (POST /prioritize).

    The extender runs the plugins of a KubeSchedulerConfiguration that kube-scheduler itself does not have.

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if the settings are invalid.
    """
    if context.invoked_subcommand is not None:
        return
    loaded = start.load(ExtenderSettings)
    settings = loaded.settings
    from trimaran.extender import service  # Flask and gunicorn are only needed here

    with errors_or_exit(settings.log.format):
        section, problems = settings.extender, SettingsProblems()
        with problems.collect():
            if section.config is None:
                raise SettingsError(["extender.config: no file; name a KubeSchedulerConfiguration with --config"])
            profiles = service.read_profiles(section.config, section.allow_plugins)
        with problems.collect():
            settings.cluster.check_watcher(settings)  # fail here, not in a worker process
        problems.raise_any()
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
@kubernetes_version_option
@allow_option
@click.option(
    "--check", is_flag=True, help="Only check that FILE is a valid kube-scheduler configuration that uses the extender."
)
@kube_scheduler_option
@click.option(
    "--configz",
    metavar="URL|FILE",
    help="With --check: compare FILE with the configuration of a running kube-scheduler, from its /configz.",
)
def config(
    source: Path,
    url: str,
    ca_file: str,
    certificate: str,
    key: str,
    timeout_ms: int,
    kubernetes_version: str | None,
    allow: tuple[str, ...],
    kube_scheduler: Path | None,
    *,
    filters: bool,
    check: bool,
    configz: str | None,
) -> None:
    """Convert FILE, a configuration with trimaran's plugins, for a stock kube-scheduler with the extender.

    All weights are written times 10, so that kube-scheduler decides as before while the extender is in shadow, down or
    removed. They are written by name, so the version of kube-scheduler must be given (kubectl version). The result is
    checked by the rules of that version, or by the kube-scheduler of --kube-scheduler, before it is written.

    \b
    Examples:
      trimaran extender config scheduler.yaml --kubernetes-version 1.37 --url https://extender:2021 --ca-file ca.crt
      kubectl get --raw /api/v1/namespaces/kube-system/pods/https:kube-scheduler-NODE:10259/proxy/configz |
        trimaran extender config kube-scheduler.yaml --kubernetes-version 1.37 --check --configz -

    Exit status: 0 if the file was written or is valid, 1 if --check finds a problem or a difference, 2 if the input
    cannot be used or kube-scheduler would not start with the result.
    """
    from trimaran.extender.kube_scheduler import ExtenderEndpoint, disabled_defaults, render_config
    from trimaran.kube_scheduler.go_yaml import as_text

    if configz is not None and not check:
        raise click.UsageError("--configz needs --check")
    if kubernetes_version is None and not check:
        raise click.UsageError(
            "--kubernetes-version is needed: the plugins that score by default differ between versions"
        )
    with scheduler_file_or_exit(source) as file:
        document = file.document
        if check:
            _check(file, url, configz, kubernetes_version, allow, kube_scheduler)
        endpoint = ExtenderEndpoint(url, ca_file, certificate, key, timeout_ms, filters)
        rendered = render_config(document, endpoint, str(kubernetes_version), allow)
        _refuse(judge(kube_scheduler, str(kubernetes_version), allow)(as_text(rendered)))
        for disabled in disabled_defaults(document, str(kubernetes_version)):
            why = "kube-scheduler does not score by them in shadow either; remove the entries to keep the defaults"
            echo(f"trimaran: {disabled}: {why}", err=True)
        for dropped in uncalled(document):
            echo(f"trimaran: warning: {dropped}", err=True)
    echo_yaml(rendered)


def _refuse(verdict: "StartVerdict") -> None:
    """Raise a ValueError if kube-scheduler refuses the converted file; else print the values that were not checked."""
    if verdict.missing:
        raise ValueError(f"profiles: kube-scheduler has no plugin {', '.join(verdict.missing)}, and does not start")
    if verdict.refused:
        raise ValueError(f"{verdict.refused[0]}: kube-scheduler does not start with this file")
    _report_unchecked(verdict)


def _report_unchecked(verdict: "StartVerdict") -> None:
    for problem in verdict.unchecked:
        echo(f"trimaran: not checked: {problem}", err=True)


def _check(
    file: "SchedulerFile",
    url: str,
    configz: str | None,
    kubernetes_version: str | None,
    allow: Collection[str],
    kube_scheduler: Path | None,
) -> NoReturn:
    """Print the problems of a file for kube-scheduler, and exit with status 0 if there are none, else 1."""
    from scoring.kubernetes_version import LATEST_VERSION
    from trimaran.extender.batching import batching_notice
    from trimaran.extender.configz import differences, read_configz
    from trimaran.extender.kube_scheduler import validate_config

    has_url = click.get_current_context().get_parameter_source("url") is not click.core.ParameterSource.DEFAULT
    if kubernetes_version is None:
        report_newest_version()
        kubernetes_version = LATEST_VERSION
    document, answer = file.document, judge(kube_scheduler, kubernetes_version, allow)(file.text)
    problems = [f"{each}: kube-scheduler does not start with this file" for each in answer.refused]
    if not problems:  # validate_config expects values of the right types
        problems += validate_config(document, url if has_url else "", allow, kubernetes_version)
    problems += [f"profiles: kube-scheduler has no plugin {each}, and does not start" for each in answer.missing]
    verdict = "the configuration is valid, and uses the extender"
    if answer.unchecked:
        verdict = f"no problem was found, and the file uses the extender; {answer.row}"
    if configz is not None:
        try:
            running = read_configz(_read(configz))
        except ValueError as error:
            raise ValueError(f"--configz {configz}: {error}") from None
        problems += differences(document, running, kubernetes_version, allow)
        verdict += "; the running kube-scheduler has it"
    for problem in problems or [verdict]:
        echo(problem)
    if notice := batching_notice(document, kubernetes_version):
        echo(f"trimaran: {notice}", err=True)
    raise SystemExit(1 if problems else 0)


def _read(source: str) -> bytes:
    """Return the content of a URL, or of a file; ``-`` is standard input.

    Raises:
        ValueError: the URL or the file cannot be read.
    """
    if not source.startswith(("http://", "https://")):
        try:
            with click.open_file(source, "rb") as opened:
                return read_bounded(opened)
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from None
    import requests

    from runtime.http.failures import describe

    try:
        with requests.get(source, timeout=_CONFIGZ_SECONDS, stream=True) as response:
            response.raise_for_status()
            response.raw.decode_content = True
            return read_bounded(response.raw)
    except (requests.RequestException, OSError) as error:
        raise ValueError(f"cannot be read: {describe(error).reason}") from None


extender.add_command(regret)
extender.add_command(trial)
