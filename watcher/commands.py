"""The commands of the watcher: ``trimaran watch`` and ``trimaran doctor``, and what shows the settings."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from runtime import logs
from runtime.errors import SettingsError, TrimaranError
from runtime.settings.loading import Loaded, Model, display, every_setting, load, variable
from runtime.terminal import echo_document, output_option, painted
from watcher.providers.base import check_providers, known_providers
from watcher.settings import Settings, WatcherSettings

Command = TypeVar("Command", bound=Callable[..., Any])

log_level_option = click.option(
    "--log-level", help="panic, fatal, error, warning, info, debug or trace. [default: info]"
)


def setting_options(command: Command) -> Command:
    """Give a command ``--settings`` and ``--set``, the way to every setting."""
    command = click.option(
        "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Set any setting; may be repeated."
    )(command)
    return click.option(
        "--settings",
        "file",
        type=click.Path(path_type=Path),
        help="A TOML file with settings. [env: TRIMARAN_SETTINGS]",
    )(command)


def load_or_exit(
    model: type[Model], file: Path | None, assignments: tuple[str, ...], flags: dict[str, Any] | None = None
) -> Loaded[Model]:
    """Load the settings, or end with status 2 and every problem.

    Args:
        model: whose settings.
        file: the TOML file, if any.
        assignments: what ``--set`` was given.
        flags: other flags by setting; those that are None were not given.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    flags_given = set(given)
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name.count(".") != 1:
            raise click.UsageError(f"--set wants SECTION.KEY=VALUE, such as server.port=2021, not {assignment!r}")
        if name not in flags_given:
            given[name] = value  # of two the last one wins
    with errors_or_exit():
        return load(model, given, file)


@contextlib.contextmanager
def yaml_or_exit(file: Path) -> Iterator[Any]:
    """Yield what a YAML file holds; end with status 2 where it, or a value that the block finds, is wrong."""
    import yaml  # a watcher needs none

    try:
        with click.open_file(str(file), "rb") as opened:
            document = yaml.safe_load(opened.read())
        yield document
    except OSError as error:
        click.echo(f"trimaran: {file} cannot be read: {error.strerror}", err=True)
        raise SystemExit(2) from None
    except (yaml.YAMLError, ValueError) as error:
        click.echo(f"trimaran: {file}: {error}", err=True)
        raise SystemExit(2) from None


@contextlib.contextmanager
def errors_or_exit() -> Iterator[None]:
    """End with status 2 where the settings cannot be used, with status 1 where something else went wrong."""
    try:
        yield
    except SettingsError as error:
        click.echo(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
    except TrimaranError as error:
        click.echo(f"trimaran: {error}", err=True)
        raise SystemExit(1) from None


@click.command()
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", help="The port to listen on. [default: 2020]")
@click.option("--provider", help="The metrics provider. [default: this machine, or the metrics server in a cluster]")
@click.option("--address", help="The provider's address.")
@click.option("--interval", help="Time from one fetch to the next, such as 5m, or seconds. [default: 60]")
@click.option("--store", help="The SQLite file that survives a crash.")
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

    Without a provider it watches this machine. All settings: trimaran config.
    """
    # The first process of a container ignores SIGTERM until it has a handler, and gunicorn's comes with its imports:
    # stopped before that, it would be killed only after the whole grace period.
    signal.signal(signal.SIGTERM, stopped_early)
    flags = {
        "server.host": host, "server.port": port, "provider.name": provider, "provider.address": address,
        "watch.interval_seconds": interval, "store.path": store, "log.level": log_level,
    }  # fmt: skip
    settings = load_or_exit(WatcherSettings, file, assignments, flags).settings
    logs.configure(settings.log.level, settings.log.format)
    from watcher.api import service  # gunicorn is only needed here

    with errors_or_exit():
        check_providers(settings)  # told here, not by a worker that dies
        service.serve(settings)


def show_settings(file: Path | None, assignments: tuple[str, ...]) -> None:
    """Print the effective settings and where each came from; secrets are masked.

    Ends with status 2 where a provider cannot be built from them: a name that is not known, say.
    """
    loaded = load_or_exit(WatcherSettings, file, assignments)
    rows = []
    for name in every_setting(WatcherSettings):
        section, _, key = name.partition(".")
        value = display(getattr(getattr(loaded.settings, section), key))
        rows.append((name, value, loaded.origins.get(name, "default"), variable(name)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, value, origin, env in rows:
        click.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin:<{widths[2]}}  {env}")
    click.echo(f"\nproviders: {', '.join(sorted(known_providers()))}")
    with errors_or_exit():
        check_providers(loaded.settings)


def stopped_early(_number: int, _frame: object) -> NoReturn:
    """End the process: SIGTERM's handler until gunicorn has its own."""
    raise SystemExit(0)


@click.command()
@click.option("--provider", help="The metrics provider. [default: the settings']")
@click.option("--address", help="The provider's address.")
@click.option(
    "--nodes",
    "nodes_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The cluster's nodes, as kubectl get nodes -o yaml writes them: which have no metrics, which metrics no node?",
)
@click.option(
    "--cluster", is_flag=True, help="The same, asked of the cluster's API server as kubectl or a pod reaches it."
)
@click.option("--watcher", "running", help="Examine the watcher that runs there.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with that watcher's bearer token.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust for it.")
@click.option(
    "--client-certificate", type=click.Path(path_type=Path), help="A PEM file with a certificate and its key for it."
)
@click.option("-v", "--verbose", is_flag=True, help="List what is behind each step: which series is which node, say.")
@output_option("text", "json", "yaml")
@click.option("--json", "as_json", is_flag=True, hidden=True, help="The same as -o json.")
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
    as_json: bool,
) -> None:
    """Check every provider step by step, and name the setting that mends what is wrong.

    \b
    Example: trimaran doctor --provider Prometheus --address http://prometheus:9090 --cluster --verbose
             trimaran doctor --watcher http://trimaran:2020 --cluster

    Ends with status 0 when all is well, 1 when something is wrong, 2 when the settings cannot be used.
    """
    from watcher.doctor import examine  # only needed here
    from watcher.doctor.remote_watcher import WatcherConnection, examine_watcher

    flags = {"provider.name": provider, "provider.address": address}
    settings = load_or_exit(WatcherSettings, file, assignments, flags).settings
    nodes = _node_names(nodes_file, settings if cluster else None)
    if running:
        steps = examine_watcher(WatcherConnection(running, token_file, ca_file, client_certificate), nodes)
    else:
        steps = examine(settings, nodes=nodes)
    checks = []
    output = "json" if as_json else output
    for check in steps:
        checks.append(check)
        if output == "text":
            word = painted("ok  ", "green") if check.ok else painted("FAIL", "red")
            click.echo(f"{word}  {check.step}: {check.message}{'' if check.ok else _mending(check.setting)}")
            for detail in check.details if verbose else ():
                click.echo(f"        {detail}")
    bad = sum(not check.ok for check in checks)
    if output != "text":
        echo_document(checks, output)
    else:
        click.echo(f"\n{'all is well' if not bad else f'{bad} of {len(checks)} steps failed'}")
    raise SystemExit(1 if bad else 0)


def _mending(setting: str) -> str:
    """Say which setting, with its variable, or which option mends a step; nothing where it is none of both."""
    if "." in setting:
        return f"  -> {setting} ({variable(setting)})"
    return f"  -> {setting}" if setting.startswith("--") else ""


def _node_names(file: Path | None, of_cluster: Settings | None) -> frozenset[str]:
    """Return the names of the nodes in a file, or of the cluster; nothing where neither is asked for.

    Ends with status 2 where they cannot be told.
    """
    from runtime.kubernetes.manifests import FileError
    from watcher.doctor.node_names import NodeListError, list_node_names, read_node_names  # only needed here

    if file is not None and of_cluster is not None:
        raise click.UsageError("--nodes and --cluster both say which nodes there are: give one")
    try:
        if of_cluster is not None:
            return list_node_names(of_cluster)
        return frozenset() if file is None else read_node_names(file)
    except (FileError, NodeListError) as error:
        click.echo(f"trimaran: {error}", err=True)
        raise SystemExit(2) from None
