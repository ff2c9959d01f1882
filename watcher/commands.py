"""Commands of the watcher: ``trimaran watch``, and the output of ``trimaran config``."""

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from runtime import logs
from runtime.errors import SettingsError, SettingsProblems, TrimaranError
from runtime.masking import name_or_mask
from runtime.settings.loading import (
    InvalidSettings,
    LoadedSettings,
    Model,
    display,
    environment_variable,
    load,
    setting_names,
)
from runtime.terminal import echo, echo_lines
from watcher.providers.base import check_providers, known_providers, unknown_names
from watcher.settings import Settings, WatcherSettings

_log = logging.getLogger(__name__)
Command = TypeVar("Command", bound=Callable[..., Any])
ServiceSettings = TypeVar("ServiceSettings", bound=Settings)

_LOG_LEVELS = "Log level: panic, fatal, error, warning, info, debug or trace. [default: info]"


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
    model: type[Model],
    file: Path | None,
    assignments: tuple[str, ...],
    flags: dict[str, Any] | None = None,
    *,
    is_service: bool = False,
) -> LoadedSettings[Model]:
    """Load the settings; if they are invalid, print every problem and exit with status 2.

    Args:
        model: the settings model to load.
        file: the TOML file, if any.
        assignments: the values of ``--set``.
        flags: setting name to the value of the command-line option for it; None if the option was not given.
        is_service: report problems as entries of the log if ``log.format`` is ``json``.
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
    try:
        return load(model, values, file)
    except InvalidSettings as error:
        log_format = error.values.get("log", {}).get("format", "text") if is_service else "text"
        with errors_or_exit(log_format):
            raise SettingsError([*error.problems, *unknown_names(error.values)]) from error


class ServiceStart:
    """Command-line options of a service, which :func:`service_options` adds, with a method that loads the settings."""

    def __init__(self, flags: dict[str, Any], file: Path | None, assignments: tuple[str, ...]) -> None:
        self._flags, self._file, self._assignments = flags, file, assignments

    def load(
        self, model: type[ServiceSettings], flags: dict[str, Any] | None = None
    ) -> LoadedSettings[ServiceSettings]:
        """Load the settings and configure the log; with invalid settings exit with status 2.

        A handler of SIGTERM is set, because the first process of a container ignores SIGTERM without one, and gunicorn
        sets its own only after its imports. Until then, a stop would wait for the end of the grace period.

        Args:
            model: the settings model to load.
            flags: values of the command's other options, by setting.
        """
        signal.signal(signal.SIGTERM, exit_early)
        loaded = load_or_exit(model, self._file, self._assignments, {**self._flags, **(flags or {})}, is_service=True)
        logs.configure(loaded.settings.log.level, loaded.settings.log.format)
        return loaded


def service_options(port: int, *others: tuple[str, str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a service; the command gets them as its argument ``start``.

    Args:
        port: default port.
        others: options that set one setting each: option, setting, help.
    """
    options = (
        *others,
        ("--host", "server.host", "Address to listen on. [default: 127.0.0.1]"),
        ("--port", "server.port", f"Port to listen on. [default: {port}]"),
        ("--log-level", "log.level", _LOG_LEVELS),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_start(*arguments: Any, file: Path | None, assignments: tuple[str, ...], **given: Any) -> None:
            flags = {setting: given.pop(setting.replace(".", "_")) for _, setting, _ in options}
            command(*arguments, start=ServiceStart(flags, file, assignments), **given)

        decorated: Callable[..., None] = setting_options(with_start)
        for name, setting, text in reversed(options):
            decorated = click.option(name, setting.replace(".", "_"), help=text)(decorated)
        return decorated

    return decorate


@contextlib.contextmanager
def errors_or_exit(log_format: str = "text") -> Iterator[None]:
    """Print an error that the ``with`` block raises, and exit.

    The status is 2 for invalid settings (SettingsError) and 1 for any other TrimaranError.

    Args:
        log_format: format of the log; with ``json`` each problem is an entry of the log.
    """
    try:
        yield
    except TrimaranError as error:
        problems = error.problems if isinstance(error, SettingsError) else ()
        if log_format == "json":
            logs.configure("info", "json")
            for problem in problems:
                _log.error("a setting cannot be used", extra={"problem": problem})
            if not problems:
                _log.error(str(error))
        else:
            echo_lines(f"trimaran: {error}", err=True)
        raise SystemExit(2 if problems else 1) from None


@click.command()
@service_options(
    2020,
    (
        "--provider",
        "provider.name",
        "The metrics provider. [default: the metrics server in a cluster, else this machine]",
    ),
    ("--address", "provider.address", "The provider's address."),
    (
        "--interval",
        "watch.interval_seconds",
        "Time from one fetch to the next: seconds, or a duration such as 5m. [default: 60]",
    ),
    ("--store", "store.path", "The SQLite file for snapshots and history, which survives a crash."),
)
def watch(start: ServiceStart) -> None:
    """Watch every node's load and serve it: GET /watcher, GET /watcher/<host>.

    The default provider is the metrics server in a cluster, and this machine elsewhere. trimaran config lists all
    settings.

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if the settings are invalid.
    """
    settings = start.load(WatcherSettings).settings
    import_sqlite_utils()
    from watcher.api import service  # imports gunicorn, which only this command needs

    with errors_or_exit(settings.log.format):
        problems = SettingsProblems()
        with problems.collect():
            check_providers(settings)  # report problems here, not in a worker that dies
        with problems.collect():
            service.open_access(settings.server)
        problems.raise_any()
        service.serve(settings)


def import_sqlite_utils() -> None:
    """Import sqlite-utils without pandas and numpy, which it imports if they are installed.

    Both packages serve column types that are not used here, cost memory and delay a restart. None in ``sys.modules``
    makes their import fail for the whole process, so call this before the process starts threads.
    """
    absent = {"numpy", "pandas"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        import sqlite_utils  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


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
