"""Which node each of SignalFx' series is about: its metadata, read through the signalfx package and kept."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
from signalfx.rest import SignalFxRestClient

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError
from watcher.providers.session import ProviderSession
from watcher.settings import without_credentials

MOST_SERIES = 10_000  # that one answer has, however many match
_MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class SeriesHosts:
    """Which host each series of a metric is about.

    Attributes:
        hosts: series id to the value of the node's dimension.
        missing: how many series there are beyond those that could be read.
        began: when they were asked for, on the monotonic clock.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    began: float = float("-inf")


class MetadataCache:
    """The names of some metrics' series, each read when it is asked for and what is kept is too old.

    Args:
        address: where the API is.
        session: whose bounds, certificates and credentials the package's client is to have.
        queries: metric to the query for its series.
        dimension: the one that holds the node's name.
        keep_seconds: how long names are good for.
    """

    def __init__(
        self, address: str, session: ProviderSession, queries: Mapping[str, str], dimension: str, keep_seconds: float
    ) -> None:
        self._shown = without_credentials(address)
        self._client = _client(address, session)
        self._queries = dict(queries)
        self._dimension = dimension
        self._keep_seconds = keep_seconds
        self._kept = dict.fromkeys(queries, SeriesHosts())
        self._locks = {metric: threading.Lock() for metric in queries}

    def names(self, metric: str, deadline: Deadline, newer_than: float = float("-inf")) -> SeriesHosts:
        """Return the names; one thread reads them, the others wait for it.

        Args:
            metric: one of those with a query.
            deadline: when to stop waiting.
            newer_than: a moment on the monotonic clock; names that were asked for before it are read anew.
        """
        lock = self._locks[metric]
        if not lock.acquire(timeout=deadline.remaining_seconds()):
            raise TimeoutError
        try:
            if self._kept[metric].began < max(newer_than, time.monotonic() - self._keep_seconds):
                self._kept[metric] = self._read(self._queries[metric], deadline)
            return self._kept[metric]
        finally:
            lock.release()

    def last(self, metric: str) -> SeriesHosts:
        """Return the names as last read, however old."""
        return self._kept[metric]

    def page(self, query: str, offset: int, limit: int, deadline: Deadline) -> tuple[list[dict[str, Any]], int, bool]:
        """Return some results of a query, how many there are in all, and whether there may be more than that."""
        seconds = deadline.remaining_seconds()
        if not seconds:
            raise TimeoutError
        # The package puts the query into the address as it is: an & would end it.
        answer = self._client.search_metric_time_series(
            quote(query, safe=""), offset=offset, limit=limit, timeout=seconds
        )
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list):
            raise ProviderAnswerError(f"SignalFx at {self._shown}: /v2/metrictimeseries answered without results")
        count = answer.get("count")
        total = count if isinstance(count, int) else offset + len(results)
        return [each if isinstance(each, dict) else {} for each in results], total, answer.get("partialCount") is True

    def _read(self, query: str, deadline: Deadline) -> SeriesHosts:
        began = time.monotonic()
        hosts: dict[str, str] = {}
        received, count = 0, 0
        for _ in range(_MOST_PAGES):
            try:
                results, count, more = self.page(query, received, MOST_SERIES, deadline)
            except requests.HTTPError as error:
                if received and error.response is not None and error.response.status_code == 400:
                    break  # no page begins beyond the limit
                raise
            received += len(results)
            for result in results:
                key, dimensions = result.get("id"), result.get("dimensions")
                host = dimensions.get(self._dimension) if isinstance(dimensions, dict) else None
                if isinstance(key, str) and isinstance(host, str) and host:
                    hosts[key] = host
            if not results or (received >= count and not more):
                break
        return SeriesHosts(hosts, max(0, count - received), began)


def _client(address: str, session: ProviderSession) -> Any:
    class Client(SignalFxRestClient):  # type: ignore[misc]  # the package has no types
        """The package's client, which makes a session of its own, over ours."""

        def __init__(self) -> None:
            super().__init__(token="", endpoint=address)
            self._session.close()
            self._session: requests.Session = session

    return Client()
