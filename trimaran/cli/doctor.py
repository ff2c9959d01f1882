"""``trimaran doctor``: step-by-step checks of the metrics providers, or of a running service."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runtime.settings.loading import environment_variable
from runtime.terminal import colorize, echo, echo_document, output_option
from watcher.commands import load_or_exit, setting_options
from watcher.settings import Settings, WatcherSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watcher.providers.base import Check


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
@click.option("--extender", metavar="URL", help="Check the running extender at this URL instead of the providers.")
@click.option("--scheduler", metavar="URL", help="Check the running trimaran scheduler at this URL, and its nodes.")
@click.option("--rebalancer", metavar="URL", help="Check the running rebalancer at this URL, and its rights.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the bearer token for the service.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust for the service.")
@click.option(
    "--client-certificate",
    type=click.Path(path_type=Path),
    help="PEM file with a certificate and its key.",
)
@click.option(
    "--worth-it",
    is_flag=True,
    help="Say whether load-aware placement is likely to help, from the cluster's nodes and pods and the metrics of the "
    "provider or of --watcher.",
)
@click.option("-v", "--verbose", is_flag=True, help="List the details of each step, such as the node of each series.")
@output_option("text", "json", "yaml")
@setting_options
def doctor(
    provider: str | None,
    address: str | None,
    nodes_file: Path | None,
    running: str | None,
    extender: str | None,
    scheduler: str | None,
    rebalancer: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
    file: Path | None,
    assignments: tuple[str, ...],
    output: str,
    *,
    cluster: bool,
    worth_it: bool,
    verbose: bool,
) -> None:
    """Check the metrics provider, its fallbacks and the store step by step, or a running service.

    For each problem, names the setting that fixes it.

    \b
    Example: trimaran doctor --provider Prometheus --address http://prometheus:9090 --cluster --verbose
             trimaran doctor --watcher http://trimaran:2020 --cluster
             trimaran doctor --extender https://trimaran-extender:2021 --ca-file ca.crt --client-certificate client.pem
             trimaran doctor --scheduler http://trimaran-standalone:2025
             trimaran doctor --rebalancer http://trimaran-rebalancer:2024
             trimaran doctor --worth-it --watcher http://trimaran:2020

    Exit status: 0 if all checks pass, 1 if a check fails, 2 if the settings are invalid. With --worth-it: 0 if a gain
    is likely, 3 if none is, 4 if harm is, 1 if the cluster or its load cannot be read.
    """
    services = {"--extender": extender, "--scheduler": scheduler, "--rebalancer": rebalancer}
    given = [option for option, url in services.items() if url is not None]
    if worth_it and (given or nodes_file):
        raise click.UsageError(f"--worth-it reads the cluster: leave out {', '.join(services)} and --nodes")
    if given and (running is not None or nodes_file or cluster or len(given) > 1):
        others = ", ".join(option for option in services if option != given[0])
        raise click.UsageError(
            f"{given[0]} checks one service alone: leave out {others}, --watcher, --nodes and --cluster"
        )
    flags = {"provider.name": provider, "provider.address": address}
    settings = load_or_exit(WatcherSettings, file, assignments, flags).settings
    if worth_it:
        from trimaran.cli.worth_it import report_benefit  # only this option needs it

        raise SystemExit(report_benefit(settings, running, (token_file, ca_file, client_certificate), output))
    nodes = _node_names(nodes_file, settings if cluster else None)
    access = (token_file, ca_file, client_certificate)
    if given:
        steps = _service(given[0], str(services[given[0]]), access)
    else:
        steps = _watcher(running, access, nodes) if running is not None else _providers(settings, nodes)
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


def _service(option: str, address: str, access: tuple[Path | None, ...]) -> "Iterator[Check]":
    """Return the checks of the running service at an address; the option, such as ``--extender``, names its kind."""
    from watcher.doctor.remote_service import ServiceConnection  # only this command needs the imports here

    connection = ServiceConnection(address, *access)
    match option:
        case "--extender":
            from trimaran.extender.examination import examine_extender

            return examine_extender(connection)
        case "--scheduler":
            from trimaran.scheduler.service.examination import examine_scheduler

            return examine_scheduler(connection)
        case _:
            from trimaran.rebalancer.examination import examine_rebalancer

            return examine_rebalancer(connection)


def _watcher(address: str, access: tuple[Path | None, ...], nodes: frozenset[str]) -> "Iterator[Check]":
    from watcher.doctor.remote_service import ServiceConnection  # only this command needs them
    from watcher.doctor.remote_watcher import examine_watcher

    return examine_watcher(ServiceConnection(address, *access), nodes)


def _providers(settings: Settings, nodes: frozenset[str]) -> "Iterator[Check]":
    from watcher.doctor import examine  # only this command needs it

    return examine(settings, nodes=nodes)


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
