"""What the page shows, read from a watcher by its client, and kept for a moment, as several people may look at once."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from client.errors import ClientError, NoMetrics, UnknownWindow
from client.service import ServiceClient
from watcher.history import History, Steps
from watcher.model import WatcherMetrics

T = TypeVar("T")
_WINDOWS = ("15m", "10m", "5m")
_FRESH_SECONDS = 10.0
_HISTORY_SECONDS = 60.0
_MOST_READERS = 64


class Data:
    """A watcher as one reader may see it. Safe to use from several threads.

    Args:
        client: with the reader's credentials.
        clock: seconds that only grow; tests inject their own.
    """

    def __init__(self, client: ServiceClient, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet."""
        self._client = client
        self._clock = clock
        self._kept: dict[Any, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def snapshot(self) -> WatcherMetrics:
        """Return the newest snapshot of the watcher's choice.

        Raises:
            ClientError: there is none.
        """
        return self._keep("snapshot", _FRESH_SECONDS, self._client.metrics)

    def windows(self) -> Mapping[str, WatcherMetrics]:
        """Return the newest snapshot of each window that the watcher keeps and has."""
        return self._keep("windows", _FRESH_SECONDS, self._read_windows)

    def history(self, type_: str, operator: str) -> History:
        """Return a day of one metric of all nodes; empty where the watcher keeps none."""

        def read() -> History:
            try:
                return self._client.history(type=type_, operator=operator)
            except (ClientError, ValueError):  # an older watcher, or one in Go
                return History((), Steps(0, 60, 1), ())

        return self._keep(("history", type_, operator), _HISTORY_SECONDS, read)

    def findings(self) -> list[dict[str, Any]]:
        """Return what is wrong; nothing where the watcher cannot say."""
        return self._keep("findings", _FRESH_SECONDS, self._client.findings)

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy."""
        return self._keep("health", _FRESH_SECONDS, self._client.health)

    def check_access(self) -> None:
        """Do nothing where the watcher lets this reader in, or cannot be asked at all.

        Raises:
            AccessDenied: it wants another token.
        """
        self._keep("admitted", _FRESH_SECONDS, self._client.check_access)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read_windows(self) -> Mapping[str, WatcherMetrics]:
        found = {}
        for window in _WINDOWS:
            try:
                found[window] = self._client.metrics(window)
            except (UnknownWindow, NoMetrics):
                continue
        return found

    def _keep(self, key: Any, seconds: float, read: Callable[[], T]) -> T:
        with self._lock:  # one reads, the others wait for that
            read_at, value = self._kept.get(key, (0.0, None))
            if value is None or self._clock() - read_at >= seconds:
                value = read()
                self._kept[key] = self._clock(), value
            found: T = value
            return found


class Readers:
    """The watcher as each token sees it; those who came long ago are forgotten.

    Args:
        address: the watcher's.
        token_file: for all readers; None to ask each one, where the watcher asks.
        ca_file: certificate authorities to trust instead of the system's.
        client_certificate: a PEM file with a certificate and its key.
    """

    def __init__(
        self, address: str, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None
    ) -> None:
        """Prepare; nothing is sent yet.

        Raises:
            ValueError: the address is no HTTP address.
        """
        self._options: dict[str, Any] = {"ca_file": ca_file, "client_certificate": client_certificate}
        self._address = address
        self._token_file = token_file
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Data] = OrderedDict()
        self.of(None)

    def of(self, token: str | None) -> Data:
        """Return what a reader with this token sees.

        Raises:
            ValueError: no header can carry the token.
        """
        key = hashlib.blake2b((token or "").encode("utf-8", "replace")).hexdigest()
        with self._lock:
            if key not in self._known:
                given = {"token": token} if token else {"token_file": self._token_file}
                self._known[key] = Data(ServiceClient(self._address, **given, **self._options))
            self._known.move_to_end(key)
            while len(self._known) > _MOST_READERS:
                self._known.popitem(last=False)[1].close()
            return self._known[key]


def aligned(names: tuple[str, ...], history: History, type_: str, operator: str) -> NDArray[np.float32]:
    """Return a history's values for these nodes in their order, nodes x steps; NaN where there is nothing."""
    values = np.full((len(names), history.steps.count), np.nan, np.float32)
    if history.series:
        rows = {name: row for row, name in enumerate(history.nodes)}
        known = [(row, rows[name]) for row, name in enumerate(names) if name in rows]
        if known:
            ours, theirs = zip(*known, strict=True)
            values[list(ours)] = history.of(type_, operator)[list(theirs)]
    return values
