"""HTTP client of a running extender's decisions, for the commands and the dashboard."""

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
    """Error of a request for decisions; the message says why the extender refuses or is unreachable."""


class DecisionsClient:
    """Thread-safe client of an extender's decisions.

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

        self.address = address
        self._session = BoundedSession(
            authenticate,
            verify=str(ca_file) if ca_file else True,
            certificate=str(client_certificate) if client_certificate else None,
            follow_redirects=False,
        )

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return the JSON object of a route.

        Raises:
            DecisionsUnavailable: the extender refuses the request, or is unreachable.
        """
        shown = masking.without_credentials(self.address)
        try:
            response = self._session.get(self.address.rstrip("/") + path, params=query, timeout=_TIMEOUT_SECONDS)
            document: dict[str, Any] = orjson.loads(response.content)
            if response.status_code != 200:
                raise DecisionsUnavailable(str(document["error"]["message"]))
        except (requests.RequestException, UnusableToken) as error:
            raise DecisionsUnavailable(f"the extender at {shown}: {describe(error).reason}") from None
        except (ValueError, KeyError, TypeError):
            raise DecisionsUnavailable(
                f"{shown} is not an extender: it answers {response.status_code} with unexpected content"
            ) from None
        return document


def regret_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the regret table as texts.

    Columns: scheduler, mode, pods, pods on our best node, load of the chosen nodes, load of the best nodes, regret, its
    95th percentile, hot chosen nodes, hot best nodes.
    """
    return [
        [
            row["scheduler"], row["mode"], str(row["pods"]), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
            f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}",
            str(row["chosen_hot"]), str(row["best_hot"]),
        ]
        for row in document["schedulers"]
    ]  # fmt: skip
