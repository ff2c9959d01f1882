"""A thin way to the Kubernetes API: requests with a token, objects as dicts."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

Object = dict[str, Any]
_THREADS = 8


class Api:
    """The API of a cluster as one user sees it. Threads may share it.

    Args:
        url: where it is.
        authority: the certificate to trust.
        token: the user's; without one requests are anonymous.
    """

    def __init__(self, url: str, authority: Path, token: str = "") -> None:
        self.url = url
        self.token = token
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of this machine has no business here
        self._session.verify = str(authority)
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_THREADS))
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request.

        Raises:
            requests.HTTPError: the answer's status is 400 or above; the message says what the API said.
        """
        response = self._session.request(method, self.url + path, timeout=30, **options)
        if response.status_code >= 400:
            raise requests.HTTPError(
                f"{method} {path}: {response.status_code} {response.text[:500]}", response=response
            )
        return response

    def get(self, path: str, **parameters: Any) -> Object:
        """Return an object or a list."""
        found: Object = self.request("GET", path, params=parameters).json()
        return found

    def items(self, path: str, **parameters: Any) -> list[Object]:
        """Return the items of a list, in the API's order, that of their names."""
        items: list[Object] = self.get(path, **parameters)["items"]
        return items

    def create(self, *objects: Mapping[str, Any]) -> list[Object]:
        """Create objects, several at a time, in no particular order; return them as the API made them."""

        def post(wanted: Mapping[str, Any]) -> Object:
            made: Object = self.request("POST", collection(wanted), json=wanted).json()
            return made

        if len(objects) == 1:
            return [post(objects[0])]
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(post, objects))

    def patch(self, path: str, change: Mapping[str, Any]) -> Object:
        """Merge a change into an object; return what it became. ``/status`` is a path of its own."""
        headers = {"Content-Type": "application/merge-patch+json"}
        changed: Object = self.request("PATCH", path, json=change, headers=headers).json()
        return changed

    def delete(self, path: str) -> None:
        """Delete an object, or all of a collection, at once."""
        self.request("DELETE", path, params={"gracePeriodSeconds": 0})


def collection(wanted: Mapping[str, Any]) -> str:
    """Return the path that an object is created under; it is in a namespace when its metadata name one."""
    version, namespace = wanted["apiVersion"], wanted["metadata"].get("namespace")
    kind = wanted["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def path_of(existing: Mapping[str, Any]) -> str:
    """Return the path of an object."""
    return f"{collection(existing)}/{existing['metadata']['name']}"


def names(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the objects' names."""
    return [each["metadata"]["name"] for each in objects]
