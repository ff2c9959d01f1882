"""Access to a watcher over HTTP, for a dashboard that runs in its own process."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from client.service import ServiceClient
from trimaran.dashboard.data import DashboardData

_ADMITTED_SECONDS = 10.0
_MAX_TOKENS = 64


class _TokenClient(NamedTuple):
    client: ServiceClient
    data: DashboardData
    admitted_until: float


class RemoteAccess:
    """Access control by a watcher over HTTP, with one client per viewer's token. Thread-safe.

    At most 64 clients stay open: the least recently used are closed.

    Args:
        address: URL of the watcher.
        token_file: file with a token for all viewers; None to let each viewer sign in, if the watcher needs a token.
        ca_file: certificate authorities to trust instead of the system's.
        client_certificate: PEM file with a certificate and its key.
        clock: monotonic time in seconds.

    Raises:
        ValueError: the address is not an HTTP URL.
    """

    def __init__(
        self,
        address: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the client for viewers without a token; no request is sent yet."""
        self._options: dict[str, Any] = {"ca_file": ca_file, "client_certificate": client_certificate}
        self._address = address
        self._token_file = token_file
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, _TokenClient] = OrderedDict()
        self._client_of(None)

    def admit(self, token: str | None) -> DashboardData:
        """Return the data that a viewer with this token may see.

        If the watcher cannot be reached the viewer is admitted, and the pages show the error.

        Raises:
            AccessDenied: the watcher does not accept the token.
            ValueError: the token has characters that an HTTP header cannot carry.
        """
        key, client = self._client_of(token)
        if self._clock() >= client.admitted_until:
            client.client.check_access()
            with self._lock:
                if key in self._clients:
                    self._clients[key] = client._replace(admitted_until=self._clock() + _ADMITTED_SECONDS)
        return client.data

    def _client_of(self, token: str | None) -> tuple[str, _TokenClient]:
        key = hashlib.blake2b((token or "").encode("utf-8", "replace")).hexdigest()
        with self._lock:
            if key not in self._clients:
                credentials = {"token": token} if token else {"token_file": self._token_file}
                client = ServiceClient(self._address, **credentials, **self._options)
                self._clients[key] = _TokenClient(client, DashboardData(client), self._clock())
            self._clients.move_to_end(key)
            while len(self._clients) > _MAX_TOKENS:
                self._clients.popitem(last=False)[1].client.close()
            return key, self._clients[key]
