"""The page as a part of ``trimaran watch``: it reads the watcher that it is in, for those whom that one admits."""

import logging
from typing import TYPE_CHECKING, Any

import orjson
from flask import request

from client.errors import BY_CODE, AccessDenied
from runtime.kubernetes.credentials import UnusableAccess
from runtime.server.access import Access, Verdict
from trimaran.dashboard.app import create_app
from trimaran.dashboard.data import Data
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import Labels
from trimaran.dashboard.page_context import Beside, labels_from
from trimaran.extender.decisions.decisions_client import Extender
from watcher.api.page import PLACE
from watcher.api.service import MAX_BODY_BYTES
from watcher.errors import NotServed
from watcher.history import History
from watcher.model import WatcherMetrics
from watcher.pipeline.watcher import Watcher
from watcher.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_log = logging.getLogger(__name__)


def page(watcher: Watcher, access: Access, settings: Settings) -> "WSGIApplication":
    """Return the page; ``watcher.api.page`` has it made when a browser first asks.

    Args:
        watcher: what is shown.
        access: judges who may look.
        settings: the watcher's, whose section ``dashboard`` names what is shown beside it.
    """
    own, decisions, labels = settings.dashboard, None, Labels()
    if own.extender:
        extender = Extender(
            own.extender, own.extender_token_file, own.extender_ca_file, own.extender_client_certificate
        )
        decisions = Decisions(extender)
    try:
        labels = labels_from(cluster=own.cluster, kube_config=settings.provider.kube_config)
    except UnusableAccess as error:
        _log.warning("the page has no labels of the cluster (dashboard.cluster)", extra={"reason": str(error)})
    beside = Beside(labels=labels, decisions=decisions, most_pasted_bytes=MAX_BODY_BYTES)
    return create_app(_InsideReaders(watcher, access), beside, place=PLACE).wsgi_app


class _InsideReaders:
    """Whoever the watcher answers, whether the token comes with the request or from a session."""

    def __init__(self, watcher: Watcher, access: Access) -> None:
        self._access = access
        self._data = Data(_Inside(watcher))

    def admit(self, token: str | None) -> Data:
        """Return what everybody sees who is admitted.

        Raises:
            AccessDenied: the watcher's rules do not admit this reader.
        """
        given = {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
        verdict = self._access.judge(PLACE, {**request.environ, **given})
        if verdict is not Verdict.ADMITTED:
            raise AccessDenied(verdict.value)
        return self._data


class _Inside:
    """A watcher, read as a client reads it, without encoding and decoding."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics."""
        try:
            return self._watcher.published(window).metrics
        except NotServed as error:
            raise BY_CODE[error.code](str(error)) from error

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        """Return a day of one metric of all nodes."""
        return self._watcher.history(None, type, operator)

    def findings(self) -> list[dict[str, Any]]:
        """Return what is wrong with the metrics, as ``GET /findings`` says it."""
        found: list[dict[str, Any]] = orjson.loads(orjson.dumps(self._watcher.findings()))
        return found

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy."""
        return self._watcher.health().reasons
