"""Lists and watches of objects' metadata without their specifications, as a ListWatch for a reflector.

The API server sends ``PartialObjectMetadata``: a tenth of the size of a ReplicaSet or Job, without its pod template.
"""

from collections.abc import Iterator

from runtime.http.gather import Deadline
from runtime.kubernetes.api import KubernetesApi, ListPage, WatchEvent

_FORM = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
_LIST, _OBJECT = _FORM.format("PartialObjectMetadataList"), _FORM.format("PartialObjectMetadata")


class MetadataApi:
    """ListWatch that reads only the metadata of objects."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield a list page by page, as :meth:`KubernetesApi.pages` does."""
        return self._api.pages(path, deadline, page_seconds=page_seconds, accept=_LIST, **query)

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield the events since a version, as :meth:`KubernetesApi.watch` does."""
        return self._api.watch(path, resource_version, idle_seconds, accept=_OBJECT, **query)

    def abort(self) -> None:
        """Cancel all current requests and watches of the client."""
        self._api.abort()
