"""Options and exits that commands share: the watcher's address and credentials, errors, renamed options."""

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from client.connecting import WatcherClient, WatcherCredentials
from client.errors import AccessDenied, BadSettings
from client.service import ServiceClient

Command = TypeVar("Command", bound=Callable[..., Any])
_ACCESS = (
    click.option("--token-file", type=click.Path(path_type=Path), help="A file with the watcher's bearer token."),
    click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust."),
    click.option(
        "--client-certificate", type=click.Path(path_type=Path), help="A PEM file with a certificate and its key."
    ),
)
_WATCHER = click.option(
    "--watcher",
    "address",
    envvar="TRIMARAN_WATCHER_ADDRESS",
    show_envvar=True,
    help="The watcher's address. [default: none; the command embeds a watcher and says so]",
)


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the watcher's credentials to a command, which receives them as ``access``."""

    @wraps(command)
    def with_access(
        *arguments: Any,
        token_file: Path | None,
        ca_file: Path | None,
        client_certificate: Path | None,
        **options: Any,
    ) -> None:
        access = WatcherCredentials(token_file=token_file, ca_file=ca_file, client_certificate=client_certificate)
        command(*arguments, access=access, **options)

    found: Callable[..., None] = with_access
    for option in reversed(_ACCESS):
        found = option(found)
    return found


def watcher_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the watcher's address and credentials; :func:`connected` takes both."""
    return _WATCHER(access_options(command))


def connected(address: str | None, access: WatcherCredentials | None = None) -> WatcherClient:
    """Return a client, or exit with status 2. Without an address, embed a watcher and say so on stderr."""
    # Errors are printed once, at the end. Without a handler Python would print the watcher's warnings as raw text.
    logging.getLogger("watcher").addHandler(logging.NullHandler())
    try:
        if not address:
            from client.library import LibraryClient  # imports the whole watcher

            client = LibraryClient()
            machine = ", this machine" if client.source == "Host" else ""
            click.echo(
                f"trimaran: no --watcher (TRIMARAN_WATCHER_ADDRESS): embedding one that reads {client.source}{machine}",
                err=True,
            )
            return client
        return ServiceClient(address, **access) if access else ServiceClient(address)
    except (BadSettings, ValueError) as error:
        fail(error, status=2)


def renamed_option(old: str, new: str) -> Callable[[Command], Command]:
    """Refuse the old name of an option with an error that names the new one."""

    def refuse(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{old} was renamed: use {new}")

    return click.option(old, hidden=True, expose_value=False, callback=refuse)


def fail(error: Exception | str, status: int) -> NoReturn:
    """Print one line on stderr and exit."""
    hint = "; see --token-file and --client-certificate" if isinstance(error, AccessDenied) else ""
    click.echo(f"trimaran: {error}{hint}", err=True)
    raise SystemExit(status)
