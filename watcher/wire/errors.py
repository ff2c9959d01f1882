"""What is said when there are no metrics: the error bodies of the API, and what a reader raises."""

from enum import StrEnum

import orjson


class ErrorCode(StrEnum):
    """The ``code`` of an error body."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NO_METRICS = "no_metrics"
    STALE = "stale"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_WINDOW = "unknown_window"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_LARGE = "too_large"
    INTERNAL = "internal"


class WireError(ValueError):
    """A payload is not what the contract says. The message names the place in it."""


def encode_error(code: str, message: str) -> bytes:
    """Encode the error body that goes with every status but 200 and 304."""
    # A message may quote what a client sent, which need not be valid Unicode.
    text = message.encode("utf-8", "replace").decode()
    return orjson.dumps({"error": {"code": code, "message": text}})
