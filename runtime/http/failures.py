"""What goes wrong with HTTP, in few neutral words: requests', urllib3's and the system's errors are told apart here.

Whoever asked makes an error of its own of it, with the setting or option that mends it.
"""

import contextlib
import http.client
import ssl
from dataclasses import dataclass
from enum import StrEnum

import requests
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import TimeoutError as TransportTimeout

from runtime import masking
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken
from runtime.http.errors import Canceled, HandshakeTimeout, TooLarge
from runtime.http.session import CrossHostRedirect, UnexpectedResponse

_LONGEST = 300
# What OpenSSL calls an answer that is not TLS, in its several versions.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
_TLS_ALERT = "\x15\x03"  # what a TLS server says to somebody who does not speak it


class FailureKind(StrEnum):
    """Kinds of failures."""

    CREDENTIALS = "credentials"  # there are none that could be sent; nothing was
    INVALID_HEADER = "invalid header"  # nor with this
    NO_ROUTE = "no route"
    CANCELED = "canceled"  # by us
    TIMEOUT = "timeout"
    HANDSHAKE_TIMEOUT = "handshake timeout"  # late, and not even that
    UNREACHABLE = "unreachable"
    CONNECTION_RESET = "connection reset"
    NOT_HTTP = "not HTTP"
    NOT_TLS = "not TLS"
    UNTRUSTED_CERTIFICATE = "untrusted certificate"  # the server's certificate
    TLS_ERROR = "tls error"
    ERROR_STATUS = "error status"
    REDIRECT = "redirect"
    TOO_LARGE = "too large"
    BAD_ENCODING = "bad encoding"  # not compressed as it says
    NOT_JSON = "not JSON"
    UNEXPECTED_RESPONSE = "unexpected response"  # not what is answered there
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, or none of use.

    Attributes:
        kind: what kind.
        reason: one line, without secrets.
        status: of the answer, where it is that: 400 or above.
    """

    kind: FailureKind
    reason: str
    status: int = 0


def describe(error: BaseException) -> Failure:
    """Return what an error means that was raised on the way to an answer or in reading it."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return Failure(FailureKind.ERROR_STATUS, status_line(error.response), error.response.status_code)
    known = next((kind for error_type, kind in _BY_ERROR if isinstance(error, error_type)), None)
    if known is not None:
        return Failure(known, _WORDS.get(known) or masking.to_line(error))
    root = root_cause(error)
    kind = _kind_of(root)
    if kind is FailureKind.OTHER:
        return Failure(kind, masking.to_line(f"{type(error).__name__}: {error}"))
    not_http = isinstance(root, http.client.BadStatusLine) and not isinstance(root, ConnectionResetError)
    return Failure(kind, "its answer is not HTTP" if not_http else masking.to_line(_words_of(root)))


def status_line(response: requests.Response) -> str:
    """Return status, reason, and what the body says of an error, as common APIs have it."""
    line = f"{response.status_code} {masking.to_line(response.reason, _LONGEST)}"
    with contextlib.suppress(ValueError, AttributeError):
        body = response.json()
        text = body.get("error") or body.get("message") or body.get("errors")
        text = text.get("message", text) if isinstance(text, dict) else text
        line += f": {masking.to_line(text, _LONGEST)}" if text else ""
    return line


def root_cause(error: BaseException) -> BaseException:
    """Return the innermost reason: requests wraps urllib3's errors, which wrap the system's."""
    seen: list[BaseException] = []  # causes may go in a circle
    while True:
        seen.append(error)
        reason = getattr(error, "reason", None)
        inner = (
            reason
            if isinstance(reason, BaseException)
            else next((each for each in error.args if isinstance(each, BaseException)), None)
        )
        if inner is None and isinstance(error.__cause__, OSError):
            inner = error.__cause__  # urllib3 has put the system's words into its own
        if inner is None or any(inner is each for each in seen):
            return error
        error = inner


#: What the error itself tells, then what its innermost reason does; the first that fits.
_BY_ERROR: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (UnusableToken, FailureKind.CREDENTIALS),
    (InvalidApiServerConfig, FailureKind.NO_ROUTE),
    (requests.exceptions.InvalidHeader, FailureKind.INVALID_HEADER),
    (UnexpectedResponse, FailureKind.UNEXPECTED_RESPONSE),
    (Canceled, FailureKind.CANCELED),
    (CrossHostRedirect, FailureKind.REDIRECT),
    (requests.JSONDecodeError, FailureKind.NOT_JSON),
    (requests.exceptions.ContentDecodingError, FailureKind.BAD_ENCODING),
)
_BY_ROOT: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (TooLarge, FailureKind.TOO_LARGE),
    (HandshakeTimeout, FailureKind.HANDSHAKE_TIMEOUT),
    (TimeoutError, FailureKind.TIMEOUT),
    (TransportTimeout, FailureKind.TIMEOUT),
    (requests.Timeout, FailureKind.TIMEOUT),
    (ssl.SSLCertVerificationError, FailureKind.UNTRUSTED_CERTIFICATE),
    (ssl.SSLError, FailureKind.TLS_ERROR),
    (ConnectionResetError, FailureKind.CONNECTION_RESET),
    (http.client.BadStatusLine, FailureKind.NOT_HTTP),
    (requests.RequestException, FailureKind.UNREACHABLE),
    (TransportError, FailureKind.UNREACHABLE),
    (http.client.HTTPException, FailureKind.UNREACHABLE),
    (OSError, FailureKind.UNREACHABLE),
)

#: In the place of words that quote what must not be said, or say nothing.
_WORDS = {
    FailureKind.INVALID_HEADER: "a header cannot be sent: it has a line break, or begins with a space",
    FailureKind.BAD_ENCODING: "it is not compressed as it says",
}


def _kind_of(root: BaseException) -> FailureKind:
    kind = next((kind for error_type, kind in _BY_ROOT if isinstance(root, error_type)), FailureKind.OTHER)
    if kind is FailureKind.TLS_ERROR and getattr(root, "reason", None) in _NOT_TLS:
        return FailureKind.NOT_TLS
    if kind is FailureKind.NOT_HTTP and _TLS_ALERT in str(root):
        return FailureKind.CONNECTION_RESET
    return kind


def _words_of(root: BaseException) -> object:
    return root if isinstance(root, ssl.SSLError) else getattr(root, "strerror", None) or root
