"""The watcher from outside, by its client: for the page in a process of its own."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from client.service import ServiceClient
from trimaran.dashboard.data import Data

_ADMITTED_SECONDS = 10.0
_MOST_READERS = 64


class _Known(NamedTuple):
    client: ServiceClient
    data: Data
    admitted_until: float


class OutsideReaders:
    """The watcher as each token sees it; those who came long ago are forgotten. Safe to use from several threads.

    Args:
        address: the watcher's.
        token_file: for all readers; None to ask each one, where the watcher asks.
        ca_file: certificate authorities to trust instead of the system's.
        client_certificate: a PEM file with a certificate and its key.
        clock: seconds that only grow.

    Raises:
        ValueError: the address is no HTTP address.
    """

    def __init__(
        self,
        address: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._options: dict[str, Any] = {"ca_file": ca_file, "client_certificate": client_certificate}
        self._address = address
        self._token_file = token_file
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._of(None)

    def admit(self, token: str | None) -> Data:
        """Return what a reader with this token sees; also where the watcher cannot be asked, as the screens say so.

        Raises:
            AccessDenied: the watcher wants another token.
            ValueError: no header can carry the token.
        """
        key, known = self._of(token)
        if self._clock() >= known.admitted_until:
            known.client.check_access()
            with self._lock:
                if key in self._known:
                    self._known[key] = known._replace(admitted_until=self._clock() + _ADMITTED_SECONDS)
        return known.data

    def _of(self, token: str | None) -> tuple[str, _Known]:
        key = hashlib.blake2b((token or "").encode("utf-8", "replace")).hexdigest()
        with self._lock:
            if key not in self._known:
                given = {"token": token} if token else {"token_file": self._token_file}
                client = ServiceClient(self._address, **given, **self._options)
                self._known[key] = _Known(client, Data(client), self._clock())
            self._known.move_to_end(key)
            while len(self._known) > _MOST_READERS:
                self._known.popitem(last=False)[1].client.close()
            return key, self._known[key]
