"""HTTP client of the JSON routes of another service of ours, such as an extender or a rebalancer."""

from pathlib import Path
from typing import Any

import orjson
import requests

from runtime import masking
from runtime.http.credentials import UnusableToken, read_token
from runtime.http.failures import describe
from runtime.http.session import BoundedSession

_TIMEOUT_SECONDS = 15.0


class ServiceUnavailable(Exception):
    """Error of a request: the service refuses it, or is unreachable. The message says why.

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

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Send a GET request to a route of the service, and return the JSON object of the response.

        Raises:
            ServiceUnavailable: the service refuses the request, or is unreachable.
        """
        shown = masking.without_credentials(self.address)
        try:
            response = self._session.get(self.address.rstrip("/") + path, params=query, timeout=_TIMEOUT_SECONDS)
            document: dict[str, Any] = orjson.loads(response.content)
            if response.status_code != 200:
                raise ServiceUnavailable(str(document["error"]["message"]), response.status_code)
        except (requests.RequestException, UnusableToken) as error:
            raise ServiceUnavailable(f"the {self.name} at {shown}: {describe(error).reason}") from None
        except (ValueError, KeyError, TypeError):
            article = "an" if self.name[0] in "aeiou" else "a"
            raise ServiceUnavailable(
                f"{shown} is not {article} {self.name}: it answers {response.status_code} with unexpected content"
            ) from None
        return document
