"""A thin Kubernetes API client: requests with a token, objects as dicts."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import requests

Object = dict[str, Any]
_THREADS = 8
#: The clients of this process; see the fixture in ``tests/e2e/conftest.py``.
clients: "WeakSet[Api]" = WeakSet()


class Api:
    """A client of a cluster's API with one user's rights; thread-safe.

    Args:
        url: address of the API server.
        authority: file with the CA certificate to trust.
        token: bearer token of the user; without one requests are anonymous.
    """

    def __init__(self, url: str, authority: Path, token: str = "") -> None:
        self.url = url
        self.token = token
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy of this machine between tests and their cluster
        self._session.verify = str(authority)
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_THREADS))
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        clients.add(self)

    def close(self) -> None:
        """Close the connections; the next request opens one again."""
        self._session.close()

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request.

        Raises:
            requests.HTTPError: status of 400 or above; the message includes the response body.
        """
        response = self._session.request(method, self.url + path, timeout=60, **options)
        if response.status_code >= 400:
            raise requests.HTTPError(
                f"{method} {path}: {response.status_code} {response.text[:500]}", response=response
            )
        return response

    def get(self, path: str, **parameters: Any) -> Object:
        """Return an object or a list."""
        body: Object = self.request("GET", path, params=parameters).json()
        return body

    def items(self, path: str, **parameters: Any) -> list[Object]:
        """Return the items of a list in the API's order, which is by name."""
        items: list[Object] = self.get(path, **parameters)["items"]
        return items

    def create(self, *objects: Mapping[str, Any]) -> list[Object]:
        """Create objects in parallel, in no particular order; return the created objects."""

        def post(manifest: Mapping[str, Any]) -> Object:
            created: Object = self.request("POST", collection(manifest), json=manifest).json()
            return created

        if len(objects) == 1:
            return [post(objects[0])]
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(post, objects))

    def patch(self, path: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch to an object or to its ``/status``; return the changed object."""
        headers = {"Content-Type": "application/merge-patch+json"}
        changed: Object = self.request("PATCH", path, json=change, headers=headers).json()
        return changed

    def delete(self, path: str) -> None:
        """Delete an object or a whole collection, without a grace period."""
        self.request("DELETE", path, params={"gracePeriodSeconds": 0})


def collection(manifest: Mapping[str, Any]) -> str:
    """Return the API path to create an object under, with the namespace from its metadata, if any."""
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    kind = manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def path_of(existing: Mapping[str, Any]) -> str:
    """Return the API path of an object."""
    return f"{collection(existing)}/{existing['metadata']['name']}"


def names(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the objects' names."""
    return [item["metadata"]["name"] for item in objects]
