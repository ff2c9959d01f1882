"""A running extender, asked what it decided: for the commands and the page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import requests

from runtime import masking
from runtime.http.failures import describe
from runtime.http.session import BoundedSession
from runtime.kubernetes.credentials import UnusableToken, read_token

_TIMEOUT_SECONDS = 15.0


class NoAnswer(Exception):
    """The extender refuses, or cannot be asked; the message says why."""


class Extender:
    """Reads an extender's decisions. Safe to use from several threads.

    Args:
        address: its address.
        token_file: a file with a token, read anew for every request.
        ca_file: certificate authorities to trust instead of the system's.
        client_certificate: a PEM file with a certificate and its key.
    """

    def __init__(
        self,
        address: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
    ) -> None:
        """Prepare; nothing is sent yet."""

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

    def ask(self, path: str, **query: str) -> dict[str, Any]:
        """Return what an answer holds.

        Raises:
            NoAnswer: there is none.
        """
        shown = masking.without_credentials(self.address)
        try:
            answer = self._session.get(self.address.rstrip("/") + path, params=query, timeout=_TIMEOUT_SECONDS)
            found: dict[str, Any] = orjson.loads(answer.content)
            if answer.status_code != 200:
                raise NoAnswer(str(found["error"]["message"]))
        except (requests.RequestException, UnusableToken) as error:
            raise NoAnswer(f"the extender at {shown}: {describe(error).reason}") from None
        except (ValueError, KeyError, TypeError):
            raise NoAnswer(f"{shown} is no extender: it answers {answer.status_code} with something else") from None
        return found


def regret_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of regrets as texts.

    Columns: scheduler, mode, pods, pods on the best node, load of the chosen nodes, of the best, regret, its 95th
    percentile, chosen nodes that were hot, best ones that were.
    """
    return [
        [
            row["scheduler"], row["mode"], str(row["pods"]), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
            f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}",
            str(row["chosen_hot"]), str(row["best_hot"]),
        ]
        for row in found["schedulers"]
    ]  # fmt: skip
