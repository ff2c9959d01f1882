"""Common structure of the services: open sockets as configured, warn of an open port, serve in a worker.

A service consists of a module ``service``, which the master process imports, and a module ``worker`` with the class
that does the work. Only ``start`` imports ``worker``, so the master stays small, and a worker that dies is replaced by
a fresh one.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

from runtime.server import serving
from runtime.server.access import AccessCheck
from runtime.server.serving import Listener
from runtime.server.tls import TlsContext

if TYPE_CHECKING:
    from runtime.server.fast_path import FastPath
    from runtime.settings.sections import ServerSettings

_log = logging.getLogger(__name__)


class Service(Protocol):
    """Work of a service in its worker process."""

    def start(self) -> "FastPath":
        """Start the work without waiting for it, and return the WSGI application."""

    def stop(self) -> None:
        """Stop the work."""


def open_access(
    server: "ServerSettings",
    *,
    open_routes: Iterable[str] = (),
    tokenless_routes: Iterable[str] = (),
    ports: Mapping[int, str] | None = None,
    clock: Callable[[], float] = time.time,
) -> AccessCheck:
    """Return the access check for the settings.

    Args:
        server: settings with tokens, certificates, and whether ``/metrics`` is open.
        open_routes: further routes that are open.
        tokenless_routes: routes whose handlers check tokens of another kind, as in :class:`AccessCheck`.
        ports: ports with restricted routes, and the prefix of these routes, as in :class:`AccessCheck`.
        clock: Unix time.

    Raises:
        SettingsError: the tokens cannot be used.
    """
    return AccessCheck(
        token=server.token.get_secret_value() if server.token else None,
        tokens_file=server.tokens_file,
        certificates=server.client_ca_file is not None,
        open_routes=[*open_routes, *(["/metrics"] if server.metrics_open else [])],
        tokenless_routes=tokenless_routes,
        ports=ports,
        clock=clock,
    )


def open_listener(server: "ServerSettings") -> Listener:
    """Listen on the configured address, with TLS if a certificate is configured.

    Raises:
        ServerError: the address is in use, or belongs to another machine.
        SettingsError: the certificates cannot be used.
    """
    tls = TlsContext(server.certificate, server.key, server.client_ca_file) if server.certificate else None
    return Listener(serving.listen(server.host, server.port), tls)


def host_of(listener: Listener) -> str:
    """Return the address that a listener is bound to."""
    return str(listener.sock.getsockname()[0])


def url_of(listener: Listener) -> str:
    """Return the URL of a listener, without a path."""
    host, port = listener.sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if listener.tls else 'http'}://{shown}:{port}"


def is_open_to_others(access: AccessCheck, listener: Listener) -> bool:
    """Return whether other machines can reach a port that requires no credentials."""
    return not (access.requires_credentials or ip_address(host_of(listener).partition("%")[0]).is_loopback)


def serve(
    service: Service, listeners: Sequence[Listener], *, threads: int, max_body_bytes: int = serving.MAX_BODY_BYTES
) -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        service: the worker's work.
        listeners: sockets to accept connections from.
        threads: requests that are processed at the same time.
        max_body_bytes: size limit of a request's body.
    """
    serving.serve(service.start, listeners, threads=threads, max_body_bytes=max_body_bytes, stop=service.stop)
