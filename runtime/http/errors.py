"""Exceptions of the bounded HTTP client, in addition to those of requests."""

import requests


class Canceled(requests.ConnectionError):
    """The call was cancelled: its session was told to end its calls, or is closed."""

    def __init__(self, *, request: requests.PreparedRequest) -> None:
        super().__init__("the call was cancelled", request=request)


class TooLarge(requests.RequestException):
    """The response exceeds its size limit, or the memory budget is spent."""


class HandshakeTimeout(TimeoutError):
    """The server accepted the connection, but did not answer the TLS handshake in time."""


def too_large(max_bytes: float) -> TooLarge:
    """Return the error of a response that exceeds its size limit."""
    return TooLarge(f"the answer is larger than {max_bytes / 1024**2:g} MiB")
