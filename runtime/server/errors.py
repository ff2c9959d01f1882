"""Error bodies of every HTTP API: ``{"error": {"code": "...", "message": "..."}}``."""

from enum import StrEnum

import orjson


class ErrorCode(StrEnum):
    """Values of ``code`` in the error bodies of all APIs; an API may have further codes."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_LARGE = "too_large"
    INTERNAL = "internal"
    NOT_ALIVE = "not_alive"
    NOT_READY = "not_ready"


def encode_error(code: str, message: str) -> bytes:
    """Encode the body of a response whose status is neither 200 nor 304."""
    # The message may quote a client, and clients need not send valid Unicode.
    text = message.encode("utf-8", "replace").decode()
    return orjson.dumps({"error": {"code": code, "message": text}})
