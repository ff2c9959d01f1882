"""Commands of the watcher: ``trimaran watch``, ``trimaran doctor``, and the output of ``trimaran config``."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from runtime import logs
from runtime.errors import SettingsError, TrimaranError
from runtime.masking import name_or_mask
from runtime.settings.loading import LoadedSettings, Model, display, environment_variable, load, setting_names
from runtime.terminal import colorize, echo, echo_document, echo_lines, output_option
from watcher.providers.base import check_providers, known_providers
from watcher.settings import Settings, WatcherSettings

Command = TypeVar("Command", bound=Callable[..., Any])

log_level_option = click.option(
    "--log-level", help="Log level: panic, fatal, error, warning, info, debug or trace. [default: info]"
)


def setting_options(command: Command) -> Command:
    """Add the options ``--settings`` and ``--set`` to a command."""
    command = click.option(
        "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Set a setting; repeatable."
    )(command)
    return click.option(
        "--settings",
        "file",
        type=click.Path(path_type=Path),
        help="A TOML file with settings. [env: TRIMARAN_SETTINGS]",
    )(command)


def load_or_exit(
    model: type[Model], file: Path | None, assignments: tuple[str, ...], flags: dict[str, Any] | None = None
) -> LoadedSettings[Model]:
    """Load the settings; if they are invalid, print every problem and exit with status 2.

    Args:
        model: the settings model to load.
        file: the TOML file, if any.
        assignments: the values of ``--set``.
        flags: setting name to the value of the command-line option for it; None if the option was not given.
    """
    values = {name: value for name, value in (flags or {}).items() if value is not None}
    given_flags = set(values)
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name.count(".") != 1:
            shown = f"{name_or_mask(name)}=..." if equals else "a text without ="  # it may contain a secret
            raise click.UsageError(f"--set needs SECTION.KEY=VALUE, such as server.port=2021, not {shown}")
        if name not in given_flags:
            values[name] = value  # the last --set of a setting wins
    with errors_or_exit():
        return load(model, values, file)


@contextlib.contextmanager
def errors_or_exit() -> Iterator[None]:
    """Print an error that the ``with`` block raises, and exit.

    The status is 2 for invalid settings (SettingsError) and 1 for any other TrimaranError.
    """
    try:
        yield
    except SettingsError as error:
        echo_lines(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
    except TrimaranError as error:
        echo(f"trimaran: {error}", err=True)
        raise SystemExit(1) from None


@click.command()
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="The port to listen on. [default: 2020]")
@click.option("--provider", help="The metrics provider. [default: the metrics server in a cluster, else this machine]")
@click.option("--address", help="The provider's address.")
@click.option("--interval", help="Time from one fetch to the next: seconds, or a duration such as 5m. [default: 60]")
@click.option("--store", help="The SQLite file for snapshots and history, which survives a crash.")
@log_level_option
@setting_options
def watch(
    host: str | None,
    port: str | None,
    provider: str | None,
    address: str | None,
    interval: str | None,
    store: str | None,
    log_level: str | None,
    file: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Watch every node's load and serve it: GET /watcher, GET /watcher/<host>.

    The default provider is the metrics server in a cluster, and this machine elsewhere. trimaran config lists all
    settings.

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if the settings are invalid.
    """
    # The first process of a container ignores SIGTERM until it has a handler, and gunicorn installs its own only after
    # its imports. Without this handler, a process stopped before that would be killed only after the grace period.
    signal.signal(signal.SIGTERM, exit_early)
    flags = {
        "server.host": host, "server.port": port, "provider.name": provider, "provider.address": address,
        "watch.interval_seconds": interval, "store.path": store, "log.level": log_level,
    }  # fmt: skip
    settings = load_or_exit(WatcherSettings, file, assignments, flags).settings
    logs.configure(settings.log.level, settings.log.format)
    from watcher.api import service  # imports gunicorn, which only this command needs

    with errors_or_exit():
        check_providers(settings)  # report problems here, not in a worker that dies
        service.serve(settings)


def show_settings(file: Path | None, assignments: tuple[str, ...]) -> None:
    """Print the effective settings and the source of each; secrets are masked.

    Exits with status 2 if a provider cannot be built from the settings, for example because its name is unknown.
    """
    loaded = load_or_exit(WatcherSettings, file, assignments)
    rows = []
    for name in setting_names(WatcherSettings):
        section, _, key = name.partition(".")
        value = display(getattr(getattr(loaded.settings, section), key))
        rows.append((name, value, loaded.origins.get(name, "default"), environment_variable(name)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, value, origin, env in rows:
        echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin:<{widths[2]}}  {env}")
    echo()
    echo(f"providers: {', '.join(sorted(known_providers()))}")
    with errors_or_exit():
        check_providers(loaded.settings)


def exit_early(_number: int, _frame: object) -> NoReturn:
    """Exit the process: the handler of SIGTERM until gunicorn installs its own."""
    raise SystemExit(0)


@click.command()
@click.option("--provider", help="The metrics provider to check. [default: the provider in the settings]")
@click.option("--address", help="The provider's address.")
@click.option(
    "--nodes",
    "nodes_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Output of kubectl get nodes -o yaml. The check lists nodes without metrics, and metrics without a node.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="The same check with the nodes of the Kubernetes API, through a kubeconfig or the pod's service account.",
)
@click.option(
    "--watcher", "running", metavar="URL", help="Check the running watcher at this URL instead of the providers."
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the bearer token for --watcher.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    help="PEM file with the certificate authorities to trust for --watcher.",
)
@click.option(
    "--client-certificate",
    type=click.Path(path_type=Path),
    help="PEM file with the client certificate for --watcher and its private key.",
)
@click.option("-v", "--verbose", is_flag=True, help="List the details of each step, such as the node of each series.")
@output_option("text", "json", "yaml")
@setting_options
def doctor(
    provider: str | None,
    address: str | None,
    nodes_file: Path | None,
    running: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
    file: Path | None,
    assignments: tuple[str, ...],
    output: str,
    *,
    cluster: bool,
    verbose: bool,
) -> None:
    """Check the metrics provider, its fallbacks and the store step by step, or with --watcher a running watcher.

    For each problem, names the setting that fixes it.

    \b
    Example: trimaran doctor --provider Prometheus --address http://prometheus:9090 --cluster --verbose
             trimaran doctor --watcher http://trimaran:2020 --cluster

    Exit status: 0 if all checks pass, 1 if a check fails, 2 if the settings are invalid.
    """
    from watcher.doctor import examine  # only this command needs it
    from watcher.doctor.remote_watcher import WatcherConnection, examine_watcher

    flags = {"provider.name": provider, "provider.address": address}
    settings = load_or_exit(WatcherSettings, file, assignments, flags).settings
    nodes = _node_names(nodes_file, settings if cluster else None)
    if running:
        steps = examine_watcher(WatcherConnection(running, token_file, ca_file, client_certificate), nodes)
    else:
        steps = examine(settings, nodes=nodes)
    checks = []
    for check in steps:
        checks.append(check)
        if output == "text":
            word = colorize("ok  ", "green") if check.ok else colorize("FAIL", "red")
            echo(word, f"  {check.step}: {check.message}{'' if check.ok else _remedy(check.setting)}")
            for detail in check.details if verbose else ():
                echo(f"        {detail}")
    failed = sum(not check.ok for check in checks)
    if output != "text":
        echo_document(checks, output)
    else:
        echo()
        echo(f"{'all steps passed' if not failed else f'{failed} of {len(checks)} steps failed'}")
    raise SystemExit(1 if failed else 0)


def _remedy(setting: str) -> str:
    """Return text that names the setting, with its environment variable, or the option that fixes a failed check.

    Return an empty text if no setting or option is known to fix it.
    """
    if "." in setting:
        return f"  -> {setting} ({environment_variable(setting)})"
    return f"  -> {setting}" if setting.startswith("--") else ""


def _node_names(file: Path | None, cluster_settings: Settings | None) -> frozenset[str]:
    """Return the names of the nodes in a file or in the cluster; an empty set if both arguments are None.

    Exits with status 2 if the nodes cannot be read.
    """
    from runtime.kubernetes.manifests import ManifestError
    from watcher.doctor.node_names import NodeListError, list_node_names, read_node_names  # only this command needs it

    if file is not None and cluster_settings is not None:
        raise click.UsageError("--nodes and --cluster both list the nodes: give only one of them")
    try:
        if cluster_settings is not None:
            return list_node_names(cluster_settings)
        return frozenset() if file is None else read_node_names(file)
    except (ManifestError, NodeListError) as error:
        echo(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
