"""Storage of the ledger in a ConfigMap.

Every write has the resource version that was read before. So of two replicas that both take themselves for the leader,
as after a suspension, one fails before it evicts, and reads again what the other wrote.
"""

import logging
from typing import Any, Final

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from trimaran.rebalancer.ledger import Ledger

KEY: Final = "ledger"
_SECONDS = 10.0
_log = logging.getLogger(__name__)


class LedgerConflict(Exception):
    """Another process wrote the ledger: read it again before the next write."""


class UnreadableLedger(Exception):
    """The ConfigMap has no readable ledger; nothing may move until a person deletes it."""


class LedgerStore:
    """ConfigMap with the ledger.

    Args:
        api: Kubernetes API.
        namespace: namespace of the ConfigMap.
        name: name of the ConfigMap.
    """

    def __init__(self, api: Sender, namespace: str, name: str) -> None:
        self._api = api
        self._list = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path, self._metadata = f"{self._list}/{name}", {"name": name, "namespace": namespace}
        self._version = ""
        self.where = f"ConfigMap {namespace}/{name}"

    def read(self) -> Ledger:
        """Return the ledger; an empty one if there is no ConfigMap.

        Raises:
            UnreadableLedger: the ConfigMap holds something else.
            requests.RequestException, OSError: see ``REQUEST_FAILURES``.
        """
        try:
            found = self._api.send("GET", self._path, Deadline.after(_SECONDS))
        except REQUEST_FAILURES as error:
            if describe(error).status != requests.codes.not_found:
                raise
            self._version = ""
            return Ledger()
        self._version = _version_of(found)
        try:
            return Ledger.from_json((found.get("data") or {})[KEY])
        except KeyError:
            why = f"the {self.where} has no key {KEY!r}; nothing is moved. Delete it to begin with empty caps"
            raise UnreadableLedger(why) from None
        except ValueError as error:
            raise UnreadableLedger(
                f"the {self.where} cannot be read: {error}; nothing is moved. Delete it to begin with empty caps"
            ) from error

    def write(self, ledger: Ledger) -> None:
        """Write the ledger over the version that was read or written last, without old moves if it is too long.

        Raises:
            LedgerConflict: another process wrote it since.
            requests.RequestException, OSError: see ``REQUEST_FAILURES``; the write may have succeeded.
        """
        fitting = ledger.fitting()
        if left_out := len(ledger.records) - len(fitting.records):
            _log.warning("the ledger is too long: its oldest moves no longer count", extra={"moves": left_out})
        body: dict[str, Any] = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(self._metadata), "data": {KEY: fitting.to_json()},
        }  # fmt: skip
        method, path = ("PUT", self._path) if self._version else ("POST", self._list)
        if self._version:
            body["metadata"]["resourceVersion"] = self._version
        try:
            self._version = _version_of(self._api.send(method, path, Deadline.after(_SECONDS), body))
        except REQUEST_FAILURES as error:
            if describe(error).status in {requests.codes.conflict, requests.codes.not_found}:
                raise LedgerConflict(f"another process wrote the {self.where}") from error
            raise


def _version_of(document: Any) -> str:
    match document:
        case {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}}:
            return version
    raise UnexpectedResponse("the response is not a ConfigMap")
