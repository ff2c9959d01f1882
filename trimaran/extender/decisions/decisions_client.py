"""HTTP client of the decisions API of a running extender, for the commands and the dashboard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import requests

from runtime import masking
from runtime.http.credentials import UnusableToken, read_token
from runtime.http.failures import describe
from runtime.http.session import BoundedSession

_TIMEOUT_SECONDS = 15.0


class DecisionsUnavailable(Exception):
    """Error of a request for decisions: the extender refuses the request, or is unreachable. The message says why.

    Attributes:
        status: status of the response; 0 without one.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DecisionsClient:
    """Thread-safe HTTP client of the decisions API of an extender.

    Args:
        address: URL of the extender.
        token_file: file with a bearer token, read again for every request.
        ca_file: CA certificates to trust instead of the system's.
        client_certificate: PEM file with a certificate and its key.
    """

    def __init__(
        self,
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
        self.address = address
        self._session = BoundedSession(
            authenticate,
            verify=str(ca_file) if ca_file else True,
            certificate=str(client_certificate) if client_certificate else None,
            follow_redirects=False,
        )

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Send a GET request to a route of the extender, and return the JSON object of the response.

        Raises:
            DecisionsUnavailable: the extender refuses the request, or is unreachable.
        """
        shown = masking.without_credentials(self.address)
        try:
            response = self._session.get(self.address.rstrip("/") + path, params=query, timeout=_TIMEOUT_SECONDS)
            document: dict[str, Any] = orjson.loads(response.content)
            if response.status_code != 200:
                raise DecisionsUnavailable(str(document["error"]["message"]), response.status_code)
        except (requests.RequestException, UnusableToken) as error:
            raise DecisionsUnavailable(f"the extender at {shown}: {describe(error).reason}") from None
        except (ValueError, KeyError, TypeError):
            raise DecisionsUnavailable(
                f"{shown} is not an extender: it answers {response.status_code} with unexpected content"
            ) from None
        return document


def regret_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the regret table, which compares chosen nodes with our best nodes, as rows of texts.

    Columns: scheduler, mode, number of pods, number of pods on our best node, mean load of the chosen nodes, mean load
    of the best nodes, mean regret (load of the chosen node minus load of the best node, points), its 95th percentile,
    number of hot chosen nodes, number of hot best nodes.

    Args:
        document: response of ``GET /regret``.
    """
    return [
        [
            row["scheduler"], row["mode"], str(row["pods"]), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
            f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}",
            str(row["chosen_hot"]), str(row["best_hot"]),
        ]
        for row in document["schedulers"]
    ]  # fmt: skip
