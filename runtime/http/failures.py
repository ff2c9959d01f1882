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
from runtime.http.credentials import UnusableAccess, UnusableToken
from runtime.http.errors import Ended, HandshakeTimeout, TooLarge
from runtime.http.session import LeavesHost, UnusableAnswer

_LONGEST = 300
# What OpenSSL calls an answer that is not TLS, in its several versions.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
_TLS_ALERT = "\x15\x03"  # what a TLS server says to somebody who does not speak it


class Trouble(StrEnum):
    """Kinds of failures."""

    CREDENTIALS = "credentials"  # there are none that could be sent; nothing was
    BAD_HEADER = "bad header"  # nor with this
    NO_WAY_IN = "no way in"
    ENDED = "ended"  # by us
    LATE = "late"
    NO_HANDSHAKE = "no handshake"  # late, and not even that
    UNREACHABLE = "unreachable"
    HUNG_UP = "hung up"
    NOT_HTTP = "not HTTP"
    NOT_TLS = "not TLS"
    UNTRUSTED = "untrusted"  # the server's certificate
    TLS = "TLS"
    STATUS = "status"
    REDIRECT = "redirect"
    TOO_LARGE = "too large"
    GARBLED = "garbled"  # not compressed as it says
    NOT_JSON = "not JSON"
    UNUSABLE = "unusable"  # not what is answered there
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, or none of use.

    Attributes:
        trouble: what kind.
        reason: one line, without secrets.
        status: of the answer, where it is that: 400 or above.
    """

    trouble: Trouble
    reason: str
    status: int = 0


def describe(error: BaseException) -> Failure:
    """Return what an error means that was raised on the way to an answer or in reading it."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return Failure(Trouble.STATUS, status_line(error.response), error.response.status_code)
    known = next((trouble for kind, trouble in _BY_ERROR if isinstance(error, kind)), None)
    if known is not None:
        return Failure(known, _WORDS.get(known) or masking.said(error))
    root = innermost(error)
    trouble = _trouble_of(root)
    if trouble is Trouble.OTHER:
        return Failure(trouble, masking.said(f"{type(error).__name__}: {error}"))
    not_http = isinstance(root, http.client.BadStatusLine) and not isinstance(root, ConnectionResetError)
    return Failure(trouble, "its answer is not HTTP" if not_http else masking.said(_words_of(root)))


def status_line(response: requests.Response) -> str:
    """Return status, reason, and what the body says of an error, as common APIs have it."""
    line = f"{response.status_code} {masking.said(response.reason, _LONGEST)}"
    with contextlib.suppress(ValueError, AttributeError):
        body = response.json()
        text = body.get("error") or body.get("message") or body.get("errors")
        text = text.get("message", text) if isinstance(text, dict) else text
        line += f": {masking.said(text, _LONGEST)}" if text else ""
    return line


def innermost(error: BaseException) -> BaseException:
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
_BY_ERROR: tuple[tuple[type[BaseException], Trouble], ...] = (
    (UnusableToken, Trouble.CREDENTIALS),
    (UnusableAccess, Trouble.NO_WAY_IN),
    (requests.exceptions.InvalidHeader, Trouble.BAD_HEADER),
    (UnusableAnswer, Trouble.UNUSABLE),
    (Ended, Trouble.ENDED),
    (LeavesHost, Trouble.REDIRECT),
    (requests.JSONDecodeError, Trouble.NOT_JSON),
    (requests.exceptions.ContentDecodingError, Trouble.GARBLED),
)
_BY_ROOT: tuple[tuple[type[BaseException], Trouble], ...] = (
    (TooLarge, Trouble.TOO_LARGE),
    (HandshakeTimeout, Trouble.NO_HANDSHAKE),
    (TimeoutError, Trouble.LATE),
    (TransportTimeout, Trouble.LATE),
    (requests.Timeout, Trouble.LATE),
    (ssl.SSLCertVerificationError, Trouble.UNTRUSTED),
    (ssl.SSLError, Trouble.TLS),
    (ConnectionResetError, Trouble.HUNG_UP),
    (http.client.BadStatusLine, Trouble.NOT_HTTP),
    (requests.RequestException, Trouble.UNREACHABLE),
    (TransportError, Trouble.UNREACHABLE),
    (http.client.HTTPException, Trouble.UNREACHABLE),
    (OSError, Trouble.UNREACHABLE),
)

#: In the place of words that quote what must not be said, or say nothing.
_WORDS = {
    Trouble.BAD_HEADER: "a header cannot be sent: it has a line break, or begins with a space",
    Trouble.GARBLED: "it is not compressed as it says",
}


def _trouble_of(root: BaseException) -> Trouble:
    trouble = next((trouble for kind, trouble in _BY_ROOT if isinstance(root, kind)), Trouble.OTHER)
    if trouble is Trouble.TLS and getattr(root, "reason", None) in _NOT_TLS:
        return Trouble.NOT_TLS
    if trouble is Trouble.NOT_HTTP and _TLS_ALERT in str(root):
        return Trouble.HUNG_UP
    return trouble


def _words_of(root: BaseException) -> object:
    return root if isinstance(root, ssl.SSLError) else getattr(root, "strerror", None) or root
