"""HTTP client for the JSON routes of the project's services, such as an extender or a rebalancer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson
import requests

from runtime import masking
from runtime.http.credentials import UnusableToken, read_token
from runtime.http.failures import describe
from runtime.http.session import BoundedSession

_TIMEOUT_SECONDS = 15.0
_TRIES = 6  # with two replicas, all six tries miss the leader once in 64 times
T = TypeVar("T")


class ServiceUnavailable(Exception):
    """The service refuses a request, or is unreachable. The message has the reason.

    Attributes:
        status: status of the response; 0 without one.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class JsonService:
    """Thread-safe HTTP client of a service that answers in JSON.

    Args:
        name: name of the service for people, such as ``extender``.
        address: URL of the service.
        token_file: file with a bearer token, read again for every request.
        ca_file: CA certificates to trust instead of the system's.
        client_certificate: PEM file with a certificate and its key.
    """

    def __init__(
        self,
        name: str,
        address: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
    ) -> None:
        """Prepare the session; no request is sent."""

        def authenticate(request: requests.PreparedRequest) -> None:
            if token_file is not None:
                request.headers["Authorization"] = f"Bearer {read_token(token_file)}"

        masking.register_address_secrets(address)
        self.name, self.address = name, address
        self._session = BoundedSession(
            authenticate,
            verify=str(ca_file) if ca_file else True,
            certificate=str(client_certificate) if client_certificate else None,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Send a GET request to a route of the service, and return the JSON object of the response.

        Raises:
            ServiceUnavailable: the service refuses the request, or is unreachable.
        """
        status, content = self._send(path, query)
        try:
            document: dict[str, Any] = orjson.loads(content)
            if status != 200:
                raise ServiceUnavailable(str(document["error"]["message"]), status)
        except (ValueError, KeyError, TypeError):
            raise self._unexpected(status) from None
        return document

    def text(self, path: str) -> str:
        """Send a GET request to a route of the service, and return the text of the response, such as its metrics.

        Raises the same error as :meth:`get`.
        """
        status, content = self._send(path, {})
        if status != 200:
            raise self._unexpected(status)
        return content.decode("utf-8", "replace")

    def ask_leader(self, read: Callable[[], T], leads: Callable[[T], bool]) -> T:
        """Read the state of the leading replica; if six tries do not reach the leader, return the last state read.

        A Kubernetes Service chooses a replica for each connection, so each try opens a new connection.

        Args:
            read: reads the state of a replica.
            leads: returns whether a state is that of the leader.
        """
        state = read()
        for _ in range(_TRIES - 1):
            if leads(state):
                break
            self._session.reconnect()
            state = read()
        return state

    def _send(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        try:
            response = self._session.get(self.address.rstrip("/") + path, params=query, timeout=_TIMEOUT_SECONDS)
        except (requests.RequestException, UnusableToken) as error:
            shown = masking.without_credentials(self.address)
            raise ServiceUnavailable(f"the {self.name} at {shown}: {describe(error).reason}") from None
        return response.status_code, response.content

    def _unexpected(self, status: int) -> ServiceUnavailable:
        shown, article = masking.without_credentials(self.address), "an" if self.name[0] in "aeiou" else "a"
        return ServiceUnavailable(f"{shown} is not {article} {self.name}: it answers {status} with unexpected content")
