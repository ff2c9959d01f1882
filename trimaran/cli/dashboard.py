"""``trimaran dashboard``: serve the dashboard of a watcher in a process of its own."""

import signal
from pathlib import Path

import click

from client.connecting import WatcherCredentials
from runtime import logs
from runtime.settings.fields import http_address
from trimaran.cli.options import credential_options, fail, option, path_option
from watcher.commands import exit_early
from watcher.errors import WatcherError


def _http_address(_context: click.Context, _option: click.Parameter, address: str | None) -> str | None:
    try:
        return address and http_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
@click.option("--cluster", is_flag=True, help="Read node labels from the API server, with kubectl's configuration.")
@click.option(
    "--extender",
    envvar="TRIMARAN_EXTENDER_ADDRESS",
    show_envvar=True,
    callback=_http_address,
    help="Address of an extender, to show its decisions.",
)
@credential_options("extender", "extender-", "extender_access")
@click.option(
    "--rebalancer",
    envvar="TRIMARAN_REBALANCER_ADDRESS",
    show_envvar=True,
    callback=_http_address,
    help="Address of a rebalancer, to show its moves.",
)
@credential_options("rebalancer", "rebalancer-", "rebalancer_access")
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
    extender: str | None,
    extender_access: dict[str, Path | None],
    rebalancer: str | None,
    rebalancer_access: dict[str, Path | None],
    access: WatcherCredentials,
    *,
    cluster: bool,
    secure_cookie: bool,
) -> None:
    """Serve the dashboard: all nodes over a day, the quality of their data, and scores for a pod.

    If the watcher needs a token, each viewer signs in with it once. With --token-file nobody has to: anyone who can
    reach the dashboard can read everything. Labels, decisions and moves are read with the credentials given here, for
    all viewers.

    \b
    Example: trimaran dashboard --watcher http://127.0.0.1:2020     # then open http://127.0.0.1:2022
             trimaran dashboard --watcher http://trimaran:2020 --cluster --extender http://trimaran-extender:2021

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if an option cannot be used.
    """
    signal.signal(signal.SIGTERM, exit_early)
    try:
        from runtime.http.credentials import InvalidApiServerConfig
        from runtime.http.json_service import JsonService
        from trimaran.dashboard import service  # an extra
        from trimaran.dashboard.extender import Decisions
        from trimaran.dashboard.page_context import PageContext, open_labels
        from trimaran.dashboard.rebalancer import RebalancerState
    except ImportError as error:
        fail(f"the dashboard needs {error.name}: pip install 'trimaran[dashboard]'", status=2)
    logs.configure()
    try:
        viewers = service.open_access(address, access)
        decisions = Decisions(JsonService("extender", extender, **extender_access)) if extender else None
        labels = open_labels(cluster=cluster, nodes_file=nodes_file)
        moves = RebalancerState(JsonService("rebalancer", rebalancer, **rebalancer_access)) if rebalancer else None
        context = PageContext(nodes_file, pods_file, labels, decisions, moves)
        service.serve(viewers, context, host, port, secure=secure_cookie)
    except (ValueError, InvalidApiServerConfig) as error:
        fail(error, status=2)
    except WatcherError as error:
        fail(error, status=1)
