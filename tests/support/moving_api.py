"""An in-memory fake of the API server for moves: pods, evictions, a ConfigMap and Events, with faults on demand."""

import copy
from typing import TYPE_CHECKING, Any

import orjson
import requests
from support.rebalancing import World

from trimaran.rebalancer.ledger import Ledger
from trimaran.rebalancer.ledger_store import LedgerStore

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = tuple[int, dict[str, Any], dict[str, str]]


class MovingApi:
    """A fake API over the pods of a world.

    Attributes:
        world: the cluster; an evicted pod leaves it.
        maps: ConfigMap by path.
        events: all Events, in order.
        sent: method and path of each request that changes something, in order.
        evicted: UIDs of the evicted pods, in order.
        fault: returns status, body and headers of the answer to a request, or None to answer it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.maps: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.sent: list[str] = []
        self.evicted: list[str] = []
        self.fault: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self._version = 0

    @property
    def store(self) -> LedgerStore:
        """A new store of the ledger, as of another process."""
        return LedgerStore(self, "trimaran", "trimaran-rebalancer")

    def ledger(self) -> Ledger:
        """Return the stored ledger."""
        return self.store.read()

    def send(
        self, method: str, path: str, _deadline: object, body: Any = None, _content_type: str = "application/json"
    ) -> Any:
        """Apply a request as the API server does; return the response body."""
        if method != "GET":
            self.sent.append(f"{method} {path.rpartition('/')[2] if '/pods/' not in path else path[len('/api/v1/') :]}")
        fault = self.fault(method, path)
        if fault is not None:
            raise error(*fault)
        if path.endswith("/events"):
            self.events.append(body)
            return body
        if "/configmaps" in path:
            return self._config_map(method, path, body)
        return self._pod(method, path, body)

    def _config_map(self, method: str, path: str, body: Any) -> Any:
        path = f"{path}/{body['metadata']['name']}" if method == "POST" else path
        stored = self.maps.get(path)
        if (method == "POST") != (stored is None):
            raise error(409 if method == "POST" else 404)
        if method == "GET":
            return copy.deepcopy(stored)
        if stored is not None and body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise error(409)
        self._version += 1
        changed = copy.deepcopy(body)
        changed["metadata"]["resourceVersion"] = str(self._version)
        self.maps[path] = changed
        return copy.deepcopy(changed)

    def _pod(self, method: str, path: str, body: Any) -> Any:
        name = path.split("/pods/")[1].partition("/")[0]
        found = next((each for each in self.world.pods if each["metadata"]["name"] == name), None)
        if found is None:
            raise error(404)
        if method == "GET":
            return copy.deepcopy(found)
        uid = body["metadata"].get("uid") if method == "PATCH" else body["deleteOptions"]["preconditions"]["uid"]
        if uid != found["metadata"]["uid"]:
            raise error(409)
        if method == "PATCH":
            notes = {**found["metadata"]["annotations"], **body["metadata"]["annotations"]}
            found["metadata"]["annotations"] = {key: text for key, text in notes.items() if text is not None}
            return found
        self.world.pods.remove(found)
        self.world.gone.append(found)
        self.evicted.append(uid)
        return {"kind": "Status", "status": "Success"}


def error(
    status: int, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> requests.RequestException:
    """Return the error of a response; status 0 is a broken connection."""
    if not status:
        return requests.ConnectionError("broken")
    response = requests.Response()
    response.status_code = status
    response._content = orjson.dumps(body or {})
    response.headers.update(headers or {})
    return requests.HTTPError(str(status), response=response)
