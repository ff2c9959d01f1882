"""``trimaran scheduler``: place pods by their schedulerName, without a kube-scheduler, or compare with one."""

from typing import TYPE_CHECKING, NoReturn

import click

from runtime.errors import SettingsProblems
from runtime.kubernetes.paths import NODES, PODS
from runtime.terminal import echo
from trimaran.cli.options import controller_options
from trimaran.scheduler.service.settings import SchedulerSettings
from watcher.commands import ServiceStart, errors_or_exit

if TYPE_CHECKING:
    from trimaran.cluster.settings import ClusterSection

_LIST_SECONDS = 120.0


@click.command()
@click.option(
    "--shadow", "--dry-run", is_flag=True, help="Bind nothing: decide for the pods of a running scheduler, and compare."
)
@click.option("--check", is_flag=True, help="Only check that the scheduler's nodes are its own, and exit.")
@controller_options(
    2025,
    ("--config", "scheduler.config", "KubeSchedulerConfiguration with the profiles."),
    ("--name", "scheduler.name", "Without a file: schedulerName of the pods to place, with the default profile."),
)
def scheduler(start: ServiceStart, *, shadow: bool, check: bool) -> None:
    """Place the pods that name this scheduler (spec.schedulerName), by kube-scheduler's rules and by load.

    Of several replicas one places pods, the leader by a Lease. Without metrics it places pods by their requests.

    \b
    Examples:
      trimaran scheduler --name trimaran --watcher http://trimaran:2020
      trimaran scheduler --name default-scheduler --shadow   # binds nothing; GET /shadow

    Exit status: 0 if stopped by a signal, 1 if it cannot listen or --check finds a problem, 2 if the settings are
    invalid. A worker process that loses the Lease ends with status 5, and the next one waits for the Lease.
    """
    settings = start.load(SchedulerSettings, {"scheduler.mode": "shadow" if shadow else None}).settings
    from trimaran.scheduler.service import service  # Flask and gunicorn are only needed here

    with errors_or_exit(settings.log.format):
        problems = SettingsProblems()
        with problems.collect():
            setup = service.setup_of(settings.scheduler)
        with problems.collect():
            if not check:
                settings.cluster.check_watcher(settings)  # fail here, not in a worker process
        problems.raise_any()
        if check:
            _check(settings.cluster, setup.scheduler_names)
        service.serve(settings)


def _check(access: "ClusterSection", names: tuple[str, ...]) -> NoReturn:
    """Print the problems of the scheduler's nodes, and exit with status 1 if there are any."""
    from runtime.http.failures import describe
    from runtime.http.gather import Deadline
    from runtime.kubernetes.api import REQUEST_FAILURES
    from runtime.kubernetes.objects import Node, Pod
    from trimaran.scheduler.plugins.preemption.shared_nodes import node_sharing

    api, deadline = access.open_api(), Deadline.after(_LIST_SECONDS)
    try:
        nodes = [Node.from_k8s(each) for each in api.list_items(NODES, deadline)]
        sharing = node_sharing(nodes, map(Pod.from_k8s, api.list_items(PODS, deadline)), names)
    except (*REQUEST_FAILURES, ValueError) as error:
        echo(f"trimaran: the cluster cannot be read: {describe(error).reason}", err=True)
        raise SystemExit(1) from None
    problems = sharing.problems()
    for line in problems or [f"{len(sharing.own)} nodes have pods of this scheduler only, and a NoSchedule taint"]:
        echo(line)
    raise SystemExit(1 if problems else 0)
