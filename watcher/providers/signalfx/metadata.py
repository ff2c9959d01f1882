"""Series metadata of SignalFx, which name the node of each series; read through the signalfx package and cached."""

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

MOST_SERIES = 10_000  # maximum in one response, however many match
_MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class SeriesHosts:
    """Hosts of a metric's series.

    Attributes:
        hosts: series id to the value of the node's dimension.
        missing: the number of matching series that could not be read.
        began: time of the request on the monotonic clock.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    began: float = float("-inf")


class MetadataCache:
    """Cache of the hosts that the series of each metric belong to; an expired entry is read again when it is needed.

    Args:
        address: the API's address.
        session: the HTTP session, with its limits, certificates and credentials, for the package's client.
        queries: metric to the query for its series.
        dimension: the dimension that holds the node's name.
        keep_seconds: how long an entry is valid.
    """

    def __init__(
        self, address: str, session: ProviderSession, queries: Mapping[str, str], dimension: str, keep_seconds: float
    ) -> None:
        self._shown = without_credentials(address)
        self._client = _client(address, session)
        self._queries = dict(queries)
        self._dimension = dimension
        self._keep_seconds = keep_seconds
        self._entries = dict.fromkeys(queries, SeriesHosts())
        self._locks = {metric: threading.Lock() for metric in queries}

    def names(self, metric: str, deadline: Deadline, newer_than: float = float("-inf")) -> SeriesHosts:
        """Return the hosts of a metric's series, from the cache or from SignalFx.

        Only one thread at a time reads the hosts of a metric; other threads wait for the result.

        Args:
            metric: a metric that has a query.
            deadline: the time to stop waiting.
            newer_than: time on the monotonic clock, seconds; an entry that was requested earlier is read again.

        Raises:
            TimeoutError: the deadline has passed.
        """
        lock = self._locks[metric]
        if not lock.acquire(timeout=deadline.remaining_seconds()):
            raise TimeoutError
        try:
            if self._entries[metric].began < max(newer_than, time.monotonic() - self._keep_seconds):
                self._entries[metric] = self._read(self._queries[metric], deadline)
            return self._entries[metric]
        finally:
            lock.release()

    def last(self, metric: str) -> SeriesHosts:
        """Return the cached hosts of a metric's series, even if the entry has expired; empty if it was never read."""
        return self._entries[metric]

    def page(self, query: str, offset: int, limit: int, deadline: Deadline) -> tuple[list[dict[str, Any]], int, bool]:
        """Return one page of a query's results, the number of all results, and whether that number may be too low."""
        seconds = deadline.remaining_seconds()
        if not seconds:
            raise TimeoutError
        # The package does not quote the query in the URL, so an & would end it.
        answer = self._client.search_metric_time_series(
            quote(query, safe=""), offset=offset, limit=limit, timeout=seconds
        )
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list):
            raise ProviderAnswerError(f"SignalFx at {self._shown}: /v2/metrictimeseries answered without results")
        count = answer.get("count")
        total = count if isinstance(count, int) else offset + len(results)
        return (
            [result if isinstance(result, dict) else {} for result in results],
            total,
            answer.get("partialCount") is True,
        )

    def _read(self, query: str, deadline: Deadline) -> SeriesHosts:
        began = time.monotonic()
        hosts: dict[str, str] = {}
        received, count = 0, 0
        for _ in range(_MOST_PAGES):
            try:
                results, count, more = self.page(query, received, MOST_SERIES, deadline)
            except requests.HTTPError as error:
                if received and error.response is not None and error.response.status_code == 400:
                    break  # the API refuses offsets above its limit
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
        """Client of the package that uses the provider's session."""

        def __init__(self) -> None:
            super().__init__(token="", endpoint=address)
            self._session.close()
            self._session: requests.Session = session

    return Client()
