"""A ConfigMap in which a program keeps its records.

Every write sends the resource version of the last read or write. If two replicas both act as leader, for example after
a suspension, the second write therefore fails, and its replica reads the data of the first.
"""

from collections.abc import Mapping
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.paths import list_path, object_path

_SECONDS = 10.0


class ConfigMap:
    """Client of one ConfigMap.

    Args:
        api: Kubernetes API.
        namespace: namespace of the ConfigMap.
        name: name of the ConfigMap.
        labels: labels of the ConfigMap.
    """

    def __init__(self, api: Sender, namespace: str, name: str, labels: Mapping[str, str] | None = None) -> None:
        self._api, self._list = api, list_path("ConfigMap", namespace)
        self._path = object_path("ConfigMap", name, namespace)
        self._metadata = {"name": name, "namespace": namespace, **({"labels": dict(labels)} if labels else {})}
        self._version = ""  # resource version of the last read or write; "" if the ConfigMap does not exist

    def __str__(self) -> str:
        return f"ConfigMap {self._metadata['namespace']}/{self._metadata['name']}"

    def read(self) -> Mapping[str, Any] | None:
        """Return the data; None if there is no ConfigMap.

        Raises:
            requests.RequestException, OSError: see ``REQUEST_FAILURES``.
        """
        self._version = ""
        try:
            found = object_requests.read(self._api, self._path, Deadline.after(_SECONDS))
        except REQUEST_FAILURES as error:
            if describe(error).status != requests.codes.not_found:
                raise
            return None
        self._version = _version_of(found)
        data = found.get("data") or {}
        return data if isinstance(data, Mapping) else {}

    def write(self, data: Mapping[str, str]) -> bool:
        """Replace the data that was read or written last; return False if another process has changed it since.

        Raises:
            requests.RequestException, OSError: see ``REQUEST_FAILURES``; the write may have succeeded.
        """
        metadata = {**self._metadata, **({"resourceVersion": self._version} if self._version else {})}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        write, path = (object_requests.replace, self._path) if self._version else (object_requests.create, self._list)
        changed = {requests.codes.conflict, *([requests.codes.not_found] if self._version else [])}
        try:
            self._version = _version_of(write(self._api, path, body, Deadline.after(_SECONDS)))
        except REQUEST_FAILURES as error:
            if describe(error).status in changed:
                return False
            raise
        return True


def _version_of(document: Any) -> str:
    match document:
        case {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}}:
            return version
    raise UnexpectedResponse("the API server's response is not a ConfigMap")
