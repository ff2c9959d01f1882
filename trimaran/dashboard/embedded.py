"""Dashboard in the process of ``trimaran watch``: it reads the watcher directly, and applies its access rules."""

import logging
from typing import TYPE_CHECKING, Any

import orjson
from flask import request

from client.errors import BY_CODE, AccessDenied
from runtime.http.credentials import InvalidApiServerConfig
from runtime.server.access import AccessCheck, Verdict
from trimaran.dashboard.app import create_app
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import NodeLabels
from trimaran.dashboard.page_context import PageContext, open_labels
from trimaran.extender.decisions.decisions_client import DecisionsClient
from watcher.api.page import PAGE_PATH
from watcher.api.service import MAX_BODY_BYTES
from watcher.errors import NotServed
from watcher.history import History
from watcher.model import WatcherMetrics
from watcher.pipeline.watcher import Watcher
from watcher.settings import Settings

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
    section, decisions, labels = settings.dashboard, None, NodeLabels()
    if section.extender:
        extender = DecisionsClient(
            section.extender,
            section.extender_token_file,
            section.extender_ca_file,
            section.extender_client_certificate,
        )
        decisions = Decisions(extender)
    try:
        labels = open_labels(cluster=section.cluster, kube_config=settings.provider.kube_config)
    except InvalidApiServerConfig as error:
        _log.warning("cannot read node labels from the cluster (dashboard.cluster)", extra={"reason": str(error)})
    context = PageContext(labels=labels, decisions=decisions, max_request_bytes=MAX_BODY_BYTES)
    return create_app(_EmbeddedAccess(watcher, access), context, prefix=PAGE_PATH).wsgi_app


class _EmbeddedAccess:
    """Access control by the watcher's rules, for a token from the request or from a login session."""

    def __init__(self, watcher: Watcher, access: AccessCheck) -> None:
        self._access = access
        self._data = DashboardData(_EmbeddedReader(watcher))

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
    """Reader of a watcher in the same process, with the interface of a client but without HTTP."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

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
