"""Exceptions of the bounded HTTP client, in addition to those of requests."""

import requests


class Canceled(requests.ConnectionError):
    """The call was canceled: its session was aborted or closed."""

    def __init__(self, *, request: requests.PreparedRequest) -> None:
        super().__init__("the call was canceled", request=request)


class TooLarge(requests.RequestException):
    """The response exceeds its size limit or the memory budget."""


class HandshakeTimeout(TimeoutError):
    """The server accepted the connection, but did not complete the TLS handshake in time."""


def too_large(max_bytes: float) -> TooLarge:
    """Return the error of a response that exceeds its size limit."""
    return TooLarge(f"the answer is larger than {max_bytes / 1024**2:g} MiB")
