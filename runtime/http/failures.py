"""Classification of HTTP failures, from the exceptions of requests, urllib3 and the operating system.

Callers turn a failure into an exception of their own, which names the setting or option to change.
"""

import http.client
import ssl
from dataclasses import dataclass, replace
from enum import StrEnum

import requests
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import TimeoutError as TransportTimeout

from runtime import masking
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken
from runtime.http.errors import Canceled, HandshakeTimeout, TooLarge
from runtime.http.session import CrossHostRedirect, UnexpectedResponse

_LONGEST = 300
_MOST_MESSAGES = 5
_MESSAGE_NAMES = ("message", "error", "errors", "reason", "detail", "details", "error_description", "title")
# OpenSSL's reasons for a response that is not TLS, in its various versions.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
_TLS_ALERT = "\x15\x03"  # start of a TLS alert, which a TLS server sends to a client that does not speak TLS


class FailureKind(StrEnum):
    """Kind of an HTTP failure, by which callers choose an exception and a hint."""

    CREDENTIALS = "credentials"  # no usable credentials, so nothing was sent
    INVALID_HEADER = "invalid header"  # a header cannot be sent, so nothing was sent
    NO_ROUTE = "no route"  # no usable address or credentials of an API server
    CANCELED = "canceled"  # by this process
    TIMEOUT = "timeout"
    HANDSHAKE_TIMEOUT = "handshake timeout"  # the TLS handshake was not completed in time
    UNREACHABLE = "unreachable"
    CONNECTION_RESET = "connection reset"
    NOT_HTTP = "not HTTP"
    NOT_TLS = "not TLS"
    UNTRUSTED_CERTIFICATE = "untrusted certificate"  # of the server
    TLS_ERROR = "tls error"
    ERROR_STATUS = "error status"  # 400 or above
    REDIRECT = "redirect"  # to another host
    TOO_LARGE = "too large"
    BAD_ENCODING = "bad encoding"  # the body does not match its Content-Encoding
    NOT_JSON = "not JSON"
    UNEXPECTED_RESPONSE = "unexpected response"  # valid, but not in the form that the API documents
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a call has no usable response.

    Attributes:
        kind: the kind of failure.
        reason: one line of text, without secrets; it ends with the proxy, if there is one.
        status: the response's status of 400 or above; 0 for other failures.
        proxy: text that names the proxy of the request, without credentials; empty without a proxy.
    """

    kind: FailureKind
    reason: str
    status: int = 0
    proxy: str = ""


def describe(error: BaseException) -> Failure:
    """Classify an exception that was raised while a request was sent or its response was read."""
    failure = _classify(error)
    source = error.response if isinstance(error, requests.HTTPError) else None
    proxy = getattr(source, "proxy", "") or " ".join(getattr(error, "__notes__", ()))
    return replace(failure, reason=f"{failure.reason} ({proxy})", proxy=proxy) if proxy else failure


def _classify(error: BaseException) -> Failure:
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
    """Return one line with status code, reason phrase, and the error message in the body, if any is found."""
    line = f"{response.status_code} {masking.to_line(response.reason, _LONGEST)}"
    text = masking.to_line(_error_text(response), _LONGEST)
    return f"{line}: {text}" if text and text != response.reason else line


def _error_text(response: requests.Response) -> str:
    """Return the error message of a JSON body, or a body of plain text; a web page has none."""
    try:
        return _message_in(response.json())
    except ValueError:
        text = " ".join(response.text.split())
    is_page = "html" in response.headers.get("Content-Type", "").lower() or text.startswith("<")
    return "" if is_page or "\N{REPLACEMENT CHARACTER}" in text else text


def _message_in(body: object, depth: int = 3) -> str:
    """Return the message in a JSON body: a string, a list of messages, or an object with a key like "message"."""
    if isinstance(body, str):
        return body
    if isinstance(body, list) and depth:
        return "; ".join(filter(None, (_message_in(each, depth - 1) for each in body[:_MOST_MESSAGES])))
    if isinstance(body, dict) and depth:
        return next(filter(None, (_message_in(body.get(name), depth - 1) for name in _MESSAGE_NAMES)), "")
    return ""


def root_cause(error: BaseException) -> BaseException:
    """Return the innermost exception: requests wraps urllib3's exceptions, which wrap the operating system's."""
    seen: list[BaseException] = []  # chains of exceptions may have cycles
    while True:
        seen.append(error)
        reason = getattr(error, "reason", None)
        inner = (
            reason
            if isinstance(reason, BaseException)
            else next((each for each in error.args if isinstance(each, BaseException)), None)
        )
        if inner is None and isinstance(error.__cause__, OSError):
            inner = error.__cause__  # urllib3 copies the operating system's message into its own
        if inner is None or any(inner is each for each in seen):
            return error
        error = inner


#: Kinds by the type of the exception, then by the type of its root cause; the first match counts.
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

#: Texts for kinds whose exceptions quote secrets or have no useful message.
_WORDS = {
    FailureKind.INVALID_HEADER: "a header cannot be sent: it has a line break, or begins with a space",
    FailureKind.BAD_ENCODING: "its compression is invalid",
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
