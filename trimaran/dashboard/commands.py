"""``trimaran dashboard``: the page, in a process of its own."""

import signal
from pathlib import Path

import click

from runtime import logs
from runtime.settings.fields import http_address
from trimaran.cli.options import Access, access_options, fail
from watcher.commands import stopped_early
from watcher.errors import WatcherError
from watcher.settings import LogSettings


def _http_address(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    try:
        return given and http_address(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "--watcher", "address", envvar="TRIMARAN_WATCHER_ADDRESS", show_envvar=True, required=True, help="Its address."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=2022, show_default=True, help="The port to listen on.")
@click.option(
    "--nodes", "nodes_file", type=click.Path(path_type=Path), help="kubectl get nodes -o yaml, for one pod and labels."
)
@click.option("--pods", "pods_file", type=click.Path(path_type=Path), help="kubectl get pods -A -o yaml, for one pod.")
@click.option("--cluster", is_flag=True, help="Filter by the labels that the API server has, reached as by kubectl.")
@click.option(
    "--extender",
    envvar="TRIMARAN_EXTENDER_ADDRESS",
    show_envvar=True,
    callback=_http_address,
    help="The address of an extender, whose decisions are shown.",
)
@click.option("--extender-token-file", type=click.Path(path_type=Path), help="A file with a token for it.")
@click.option("--extender-ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust for it.")
@click.option(
    "--extender-client-certificate", type=click.Path(path_type=Path), help="A PEM file with certificate and key for it."
)
@click.option("--secure-cookie", is_flag=True, help="The page is reached by HTTPS alone, behind a proxy.")
@access_options
def dashboard(
    address: str,
    host: str,
    port: int,
    nodes_file: Path | None,
    pods_file: Path | None,
    extender: str | None,
    extender_token_file: Path | None,
    extender_ca_file: Path | None,
    extender_client_certificate: Path | None,
    access: Access,
    *,
    cluster: bool,
    secure_cookie: bool,
) -> None:
    """Serve the page: every node at one look, over a day; how far to trust it; where a pod would go.

    Where the watcher asks for a token, each reader is asked for it once. With --token-file nobody is asked: whoever
    reaches the page reads everything. Labels and decisions are read with what is given here, for all readers.

    \b
    Example: trimaran dashboard --watcher http://127.0.0.1:2020     # then open http://127.0.0.1:2022
             trimaran dashboard --watcher http://trimaran:2020 --cluster --extender http://trimaran-extender:2021

    Ends with status 0 when it is stopped, with 1 when it cannot listen, with 2 when it cannot be asked so.
    """
    signal.signal(signal.SIGTERM, stopped_early)
    try:
        from runtime.kubernetes.credentials import UnusableAccess  # noqa: PLC0415
        from trimaran.dashboard import service  # noqa: PLC0415  an extra
        from trimaran.dashboard.extender import Decisions  # noqa: PLC0415
        from trimaran.dashboard.page_context import Beside, labels_from  # noqa: PLC0415
        from trimaran.extender.decisions.decisions_client import Extender  # noqa: PLC0415
    except ImportError as error:
        fail(f"the page needs {error.name}: pip install 'trimaran[dashboard]'", status=2)
    logs.configure(LogSettings())
    try:
        readers = service.open_readers(address, access)
        ways = extender_token_file, extender_ca_file, extender_client_certificate
        decisions = Decisions(Extender(extender, *ways)) if extender else None
        labels = labels_from(cluster=cluster, nodes_file=nodes_file)
        service.serve(readers, Beside(nodes_file, pods_file, labels, decisions), host, port, secure=secure_cookie)
    except (ValueError, UnusableAccess) as error:
        fail(error, status=2)
    except WatcherError as error:
        fail(error, status=1)
