"""Dashboard in the process of ``trimaran watch``, which reads the watcher without HTTP, under its access rules."""

import logging
import threading
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from flask import request

from client.errors import BY_CODE, AccessDenied, NoMetrics
from runtime.http.credentials import InvalidApiServerConfig
from runtime.http.json_service import JsonService
from runtime.kubernetes.workloads import Workload
from runtime.server.access import AccessCheck, Verdict
from trimaran.dashboard.app import create_app
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.labels import NodeLabels
from trimaran.dashboard.page_context import SERVICES, PageContext, open_cluster, open_services
from watcher.api.page import PAGE_PATH
from watcher.api.pod_access import CLOSED
from watcher.api.service import MAX_BODY_BYTES
from watcher.errors import NotServed
from watcher.history import History
from watcher.model import WatcherMetrics
from watcher.pipeline.watcher import Watcher
from watcher.pod_use_table import PodUseTable
from watcher.settings import Settings
from watcher.settings.sections import DashboardSettings
from watcher.usage.recommend.recommendation import recommended
from watcher.wire.workloads import WorkloadIndex, workload_items
from watcher.workload_table import ClusterTotals

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_log = logging.getLogger(__name__)


def page(watcher: Watcher, access: AccessCheck, settings: Settings) -> "WSGIApplication":
    """Return the dashboard's WSGI application. ``watcher.api.page`` calls this on a browser's first request.

    Args:
        watcher: watcher to show.
        access: access rules of the watcher's server.
        settings: settings of the watcher; the section ``dashboard`` names further data sources.
    """
    section, labels, cluster = settings.dashboard, NodeLabels(), None
    try:
        if section.cluster:
            labels, cluster = open_cluster(settings.provider.kube_config)
    except InvalidApiServerConfig as error:
        _log.warning("cannot read the cluster (dashboard.cluster)", extra={"reason": str(error)})
    services = open_services(partial(_open_service, section))
    context = PageContext(labels=labels, cluster=cluster, max_request_bytes=MAX_BODY_BYTES, **services)
    # The watcher's own tokens show all workloads; Kubernetes tokens need a review, which only the watcher's API does.
    why_hidden = ""
    if settings.workloads.access == "closed":
        why_hidden = CLOSED.message
    elif settings.workloads.access == "review" and not access.requires_token:
        why_hidden = (
            "workloads.access = review shows each viewer the workloads of some namespaces, which needs the viewer's "
            "token: open the workloads by trimaran dashboard --watcher URL, which sends it"
        )
    viewers = _EmbeddedAccess(watcher, access, why_hidden)
    return create_app(viewers, context, prefix=PAGE_PATH).wsgi_app


def _open_service(section: DashboardSettings, name: str) -> JsonService | None:
    """Return a client of the service ``name``; None if the settings have no address for it."""
    address = getattr(section, name)
    if not address:
        return None
    if name == "alerts":
        access = section.alerts_token_file, section.alerts_ca_file, section.alerts_client_certificate
    elif address.startswith("http:") and any(
        map(_is_encrypted, (section.extender, section.rebalancer, section.scheduler))
    ):
        access = None, None, None  # the token is meant for an https service, and http would send it unencrypted
    else:
        access = section.token_file, section.ca_file, section.client_certificate
    return JsonService(SERVICES[name], address, *access)


def _is_encrypted(address: str | None) -> bool:
    return (address or "").startswith("https:")


class _EmbeddedAccess:
    """Access control by the watcher's rules, for a token from the request or from a login session."""

    def __init__(self, watcher: Watcher, access: AccessCheck, why_hidden: str) -> None:
        self._access = access
        self._data = DashboardData(_EmbeddedReader(watcher, why_hidden))

    def admit(self, token: str | None) -> DashboardData:
        """Return the data of the watcher, the same for all admitted viewers.

        Raises:
            AccessDenied: the watcher's access rules reject the request.
        """
        header = {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
        verdict = self._access.check(PAGE_PATH, {**request.environ, **header})
        if verdict is not Verdict.ADMITTED:
            raise AccessDenied(verdict.value)
        return self._data


class _EmbeddedReader:
    """Reader of a watcher in the same process, with the interface of a client but without HTTP.

    Args:
        watcher: the watcher.
        why_hidden: why viewers see no workloads; "" if they see all.
    """

    def __init__(self, watcher: Watcher, why_hidden: str = "") -> None:
        self._watcher, self._why_hidden = watcher, why_hidden
        self._index: WorkloadIndex | None = None
        self._lock = threading.Lock()

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes in a window; None for the watcher's default window."""
        try:
            return self._watcher.published(window).metrics
        except NotServed as error:
            raise BY_CODE[error.code](str(error)) from error

    def windows(self) -> tuple[str, ...]:
        """Return the windows of the watcher."""
        return self._watcher.windows

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        """Return the history of all nodes over one day, for a metric type and an operator."""
        return self._watcher.history(None, type, operator)

    def findings(self) -> list[dict[str, Any]]:
        """Return the watcher's findings (problems of the metrics) as JSON objects, as ``GET /findings`` does."""
        findings: list[dict[str, Any]] = orjson.loads(orjson.dumps(self._watcher.findings()))
        return findings

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is unhealthy; empty if it is healthy."""
        return self._watcher.health().reasons

    def workload_document(self) -> dict[str, Any]:
        """Return all workloads with their containers and recommended requests, as ``GET /workloads`` does."""
        index = self._indexed()
        learned = self._watcher.workloads
        return {
            "timestamp": index.table.timestamp,
            "not_checked": list(learned.unchecked),
            "workloads": workload_items(index, index.workloads),
            "not_measured": [each.as_document() for each in learned.unmeasured],
        }

    def workload_detail(self, workload: Workload) -> dict[str, Any]:
        """Return a workload, as ``GET /workloads/<namespace>/<kind>/<name>`` does; empty if it is unknown."""
        index = self._indexed()
        if workload not in index.places:
            return {}
        (item,) = workload_items(index, [workload], self._watcher.workloads.daily(workload))
        return {"timestamp": index.table.timestamp, **item}

    def workload_totals(self) -> ClusterTotals:
        """Return capacity, requests and use of all pods together in the rounds of the last day."""
        totals = self._watcher.workloads.totals()
        if not len(totals):
            raise NoMetrics("no pod is measured: the first round is not complete, or no provider measures pods")
        return totals

    def pod_history(self, nodes: Collection[str]) -> PodUseTable:
        """Return the use of the pods on the given nodes over the last day, as ``GET /pods/history`` does."""
        self._check_pods()
        table = self._watcher.pod_use.table(nodes)
        if not table.timestamp:
            raise NoMetrics("no pod is measured: the first round is not complete, or no provider measures pods")
        return table

    def _check_pods(self) -> None:
        if self._why_hidden:
            raise AccessDenied(self._why_hidden)

    def _indexed(self) -> WorkloadIndex:
        """Return the workloads of the newest round.

        Raises:
            NoMetrics: no workload is known.
            AccessDenied: viewers of this dashboard may not see workloads; the message has the reason.
        """
        self._check_pods()
        learned = self._watcher.workloads
        table = learned.table()
        if not table.workloads and not learned.unmeasured:
            raise NoMetrics("no workload is measured: the first round is not complete, or no provider measures pods")
        with self._lock:
            if self._index is None or self._index.table is not table:
                self._index = WorkloadIndex.of(table, *recommended(learned))
            return self._index
