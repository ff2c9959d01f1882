"""``trimaran dashboard``: serve the dashboard of a watcher in a process of its own."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from client.connecting import WatcherCredentials
from runtime import logs
from runtime.extras import install_command
from runtime.settings.fields import http_address
from trimaran.cli.options import Decorator, credential_options, fail, option, path_option
from watcher.commands import exit_early
from watcher.errors import WatcherError


def _http_address(_context: click.Context, _option: click.Parameter, address: str | None) -> str | None:
    try:
        return address and http_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _service_options(name: str, text: str) -> Decorator:
    """Return a decorator that adds the options for the address and the credentials of a service to a command."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        address = click.option(
            f"--{name}",
            envvar=f"TRIMARAN_{name.upper()}_ADDRESS",
            show_envvar=True,
            callback=_http_address,
            help=f"Address of {text}.",
        )
        return address(credential_options(name, f"{name}-", f"{name}_access")(command))

    return decorate


@click.command()
@click.option(
    "--watcher",
    "address",
    envvar="TRIMARAN_WATCHER_ADDRESS",
    show_envvar=True,
    required=True,
    help="Address of the watcher.",
)
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", default=2022, help="Port to listen on.")
@path_option("--nodes", "nodes_file", help="Output of kubectl get nodes -o yaml, for the Pod page and the node labels.")
@path_option("--pods", "pods_file", help="Output of kubectl get pods -A -o yaml, for the Pod page.")
@click.option(
    "--cluster", is_flag=True, help="Read labels, nodes and pods from the API server, with kubectl's configuration."
)
@_service_options("extender", "an extender, to show its decisions")
@_service_options("rebalancer", "a rebalancer, to show its moves")
@_service_options("scheduler", "trimaran scheduler, to show what it places")
@_service_options("alerts", "a Prometheus with trimaran's rules, to show their alerts")
@click.option(
    "--secure-cookie", is_flag=True, help="Mark the cookie as HTTPS-only; for use behind a proxy that terminates TLS."
)
@credential_options("watcher")
def dashboard(
    address: str,
    host: str,
    port: int,
    nodes_file: Path | None,
    pods_file: Path | None,
    access: WatcherCredentials,
    *,
    cluster: bool,
    secure_cookie: bool,
    **services: Any,
) -> None:
    """Serve the dashboard: all nodes over a day, the quality of their data, and scores for a pod.

    If the watcher needs a token, each viewer signs in with it once. With --token-file nobody has to: anyone who can
    reach the dashboard can read everything. The cluster, decisions, moves and alerts are read for all viewers with the
    credentials given here.

    \b
    Example: trimaran dashboard --watcher http://127.0.0.1:2020     # then open http://127.0.0.1:2022
             trimaran dashboard --watcher http://trimaran:2020 --cluster --extender http://trimaran-extender:2021

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if an option cannot be used.
    """
    signal.signal(signal.SIGTERM, exit_early)
    try:
        from runtime.http.credentials import InvalidApiServerConfig
        from runtime.http.json_service import JsonService
        from trimaran.dashboard import service  # needs the extra dashboard
        from trimaran.dashboard.page_context import (
            SERVICES,
            PageContext,
            check_files,
            labels_of_file,
            open_cluster,
            open_services,
        )
    except ImportError as error:
        fail(f"the dashboard needs {error.name}: {install_command('dashboard')}", status=2)
    logs.configure()
    try:
        viewers = service.open_access(address, access)
        check_files(nodes_file, pods_file)

        def client(name: str) -> JsonService | None:
            address = services[name]
            return JsonService(SERVICES[name], address, **services[f"{name}_access"]) if address else None

        labels, live = open_cluster() if cluster else (labels_of_file(nodes_file), None)
        context = PageContext(nodes_file, pods_file, labels, live, **open_services(client))
        service.serve(viewers, context, host, port, secure=secure_cookie)
    except (ValueError, InvalidApiServerConfig) as error:
        fail(error, status=2)
    except WatcherError as error:
        fail(error, status=1)
