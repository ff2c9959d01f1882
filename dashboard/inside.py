"""The page as a part of ``trimaran watch``: it reads the watcher that it is in, for those whom that one admits."""

from typing import TYPE_CHECKING, Any

import orjson
from flask import request

from client.errors import BY_CODE, AccessDenied
from dashboard.app import create_app
from dashboard.data import Data
from watcher.errors import NotServed
from watcher.history import History
from watcher.model import WatcherMetrics
from watcher.pipeline.watcher import Watcher
from watcher.server.access import Access, Verdict
from watcher.server.page import PLACE
from watcher.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


def page(watcher: Watcher, access: Access, _settings: Settings) -> "WSGIApplication":
    """Return the page; ``watcher.server.page`` has it made when a browser first asks.

    Args:
        watcher: what is shown.
        access: judges who may look.
    """
    return create_app(_InsideReaders(watcher, access), place=PLACE).wsgi_app


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
