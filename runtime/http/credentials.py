"""Credentials of HTTP requests: a token from the settings or a file, or user and password of the URL."""

from collections.abc import Callable
from pathlib import Path

import requests

from runtime import masking

Authenticate = Callable[[requests.PreparedRequest], None]


class UnusableToken(ValueError):
    """The token cannot be read, or contains characters that cannot be sent. The message does not quote it."""


class InvalidApiServerConfig(ValueError):
    """The API server's address or credentials are not configured, or cannot be used."""


def read_token(file: Path) -> str:
    """Return the token in a file. Reads the file on every call, because tokens are rotated.

    Raises:
        UnusableToken: the file cannot be read, or the token cannot be sent.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableToken(f"the token file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:  # "from None", because this error holds the file's bytes
        raise UnusableToken(f"the token file {file} cannot be read: it is not text") from None
    return prepare_token(text, f"the token in {file}")


def prepare_token(token: str, what: str) -> str:
    """Return a token in the form in which it is sent in a header, and register it as a secret.

    Args:
        token: the token; white space around it is removed.
        what: the token's name in errors.

    Raises:
        UnusableToken: the token cannot be sent.
    """
    token = token.strip()  # files end with a newline
    masking.register_secret(token, *token.split())
    if not (token.isascii() and token.isprintable()):
        raise UnusableToken(f"{what} must be one line of printable ASCII, because it is sent in a header")
    return token


def bearer(token: Callable[[], str]) -> Authenticate:
    """Return a function that sets a request's Authorization header, if there is a token."""

    def authenticate(request: requests.PreparedRequest) -> None:
        now = token()
        if now:
            request.headers["Authorization"] = f"Bearer {now}"

    return authenticate


class Authentication(requests.auth.AuthBase):
    """Credentials of each request: those that a function sets, or else the user and password of the URL.

    Every session has this object, even without credentials, because requests would otherwise read .netrc.
    """

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the credentials of a request.

        Raises:
            UnusableToken: the token cannot be read or sent.
        """
        self._authenticate(request)
        user, password = requests.utils.get_auth_from_url(request.url or "")
        if user and "Authorization" not in request.headers:
            requests.auth.HTTPBasicAuth(user, password)(request)
        return request
