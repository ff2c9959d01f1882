"""Report of ``trimaran doctor --worth-it``: whether load-aware placement is likely to help in a cluster."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from client.connecting import WatcherClient
from client.errors import BadSettings, ClientError, NoMetrics
from client.library import LibraryClient
from client.service import ServiceClient
from runtime.errors import SettingsError
from runtime.http.credentials import InvalidApiServerConfig
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes import api as kubernetes
from runtime.kubernetes.paths import NODES, PODS
from runtime.terminal import colorize, echo, echo_document, echo_table
from scoring import Node, NodeTable, Pod
from trimaran.cli.options import fail
from trimaran.planning.benefit import COOL_PERCENT, HOT_PERCENT, BenefitVerdict, PlacementBenefit, placement_benefit
from watcher.model import WatcherMetrics
from watcher.providers.session import open_kubernetes
from watcher.settings import ProviderSettings, Settings

STATUS = {BenefitVerdict.GAIN: 0, BenefitVerdict.UNKNOWN: 1, BenefitVerdict.NONE: 3, BenefitVerdict.HARM: 4}
_COLORS = {BenefitVerdict.GAIN: "green", BenefitVerdict.HARM: "red"}
_LIST_SECONDS = 120.0
_WAIT_SECONDS = 60.0  # sources that are sampled need two samples
_RETRY_SECONDS = 1.0
_UNCERTAINTY = (
    "One moment of one cluster: ask again at the busiest hour of the day. The thresholds are those of replayed worlds, "
    "not of production; only a field trial (trimaran extender trial) measures the gain here."
)


def report_benefit(
    settings: Settings, watcher: str | None, access: tuple[Path | None, Path | None, Path | None], output: str
) -> int:
    """Print the expected benefit of load-aware placement in the cluster, and return the exit status.

    Args:
        settings: settings of a watcher, for access to the cluster and, if ``watcher`` is None, to the provider.
        watcher: URL of a running watcher; None to read the metrics from the provider.
        access: token file, CA file and client certificate for the watcher.
        output: ``text``, ``json`` or ``yaml``.
    """
    nodes = _read_cluster(settings)
    snapshot = _read_metrics(settings, watcher, access)
    benefit = placement_benefit(nodes, snapshot)
    if output == "text":
        _show(benefit)
    else:
        echo_document(benefit.as_document(), output)
    return STATUS[benefit.verdict]


def _read_cluster(settings: Settings) -> NodeTable:
    """Return the nodes and pods of the cluster; exit with status 1 or 2 if they cannot be read."""
    try:
        file = settings.provider.kube_config or kubernetes.default_kubeconfig()
        with contextlib.closing(open_kubernetes(ProviderSettings(kube_config=file))) as api:
            deadline = Deadline.after(_LIST_SECONDS)
            nodes = [Node.from_k8s(item) for item in api.list_items(NODES, deadline)]
            return NodeTable(nodes, (Pod.from_k8s(item) for item in api.list_items(PODS, deadline)))
    except SettingsError as error:
        fail("; ".join(error.problems), 2)
    except InvalidApiServerConfig as error:
        fail(error, 2)
    except kubernetes.REQUEST_FAILURES as error:
        reason = describe(error).reason
        fail(f"the API server did not list nodes and pods, which needs the right to list both: {reason}", 1)
    except ValueError as error:
        fail(f"the answer of the API server cannot be read: {error}", 1)


def _read_metrics(
    settings: Settings, watcher: str | None, access: tuple[Path | None, Path | None, Path | None]
) -> WatcherMetrics | None:
    """Return the metrics of a watcher or of the provider; if there are none, print the reason and return None."""
    deadline = time.monotonic() + (0 if watcher else _WAIT_SECONDS)
    try:
        with _client(settings, watcher, access) as client:
            while True:
                try:
                    return client.metrics()
                except NoMetrics:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(_RETRY_SECONDS)
    except (BadSettings, ValueError) as error:
        fail(error, 2)
    except ClientError as error:
        echo(f"trimaran: {error}", err=True)
        return None


@contextlib.contextmanager
def _client(
    settings: Settings, watcher: str | None, access: tuple[Path | None, Path | None, Path | None]
) -> Iterator[WatcherClient]:
    if watcher:
        token_file, ca_file, certificate = access
        client: WatcherClient = ServiceClient(
            watcher, token_file=token_file, ca_file=ca_file, client_certificate=certificate
        )
    else:
        client = LibraryClient(settings)
    with client:
        yield client


def _show(benefit: PlacementBenefit) -> None:
    verdict = benefit.verdict
    echo("load-aware placement: " + colorize(verdict.value, _COLORS.get(verdict, "yellow")))
    echo(f"  {benefit.reason}")
    echo()
    echo_table(["FIGURE", "VALUE", "MEANING"], list(_rows(benefit)))
    echo()
    echo(_UNCERTAINTY)


def _rows(benefit: PlacementBenefit) -> Iterator[list[str]]:
    figures = benefit.figures
    yield ["nodes", str(figures.nodes), "nodes that accept pods; cordoned ones are left out"]
    yield ["measured", f"{figures.measured:.0%}", "of these nodes have a CPU load in the metrics"]
    for name, each in (("CPU", figures.cpu), ("memory", figures.memory)):
        yield [f"{name} requested", f"{each.requested:.0%}", "requests of the pods / allocatable"]
        yield [f"{name} limits", f"{each.limits:.0%}", "limits of the pods / capacity; above 100 % is overcommit"]
        yield [f"{name} used", _percent(each.use), "use / capacity of the measured nodes"]
        over_use = "-" if each.over_use is None else f"{each.over_use:.2f}"
        yield [f"{name} requests / use", over_use, "far from 1: balanced requests are not balanced load"]
    yield ["full nodes", f"{figures.full:.0%}", "have no room for a pod of average requests, whatever their load"]
    yield ["hot nodes", f"{figures.hot:.0%}", f"have a CPU load of {HOT_PERCENT:.0f} % or more"]
    yield ["cool nodes", f"{figures.cool:.0%}", f"have a CPU load below {COOL_PERCENT:.0f} %"]
    yield ["spread", f"{figures.spread:.1f}", "standard deviation of the nodes' CPU load, percentage points"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
