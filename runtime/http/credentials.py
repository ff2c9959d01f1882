"""Who asks: a token from a text or a file, or the user and password of the address."""

from collections.abc import Callable
from pathlib import Path

import requests

from runtime import masking

Authenticate = Callable[[requests.PreparedRequest], None]


class UnusableToken(ValueError):
    """The token cannot be read, or cannot be sent; the message does not quote it."""


class InvalidApiServerConfig(ValueError):
    """There is no way in, or it cannot be used as it is."""


def read_token(file: Path) -> str:
    """Return the token in a file: anew every time, as tokens are rotated.

    Raises:
        UnusableToken: it cannot be read, or cannot be sent.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableToken(f"the token file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:  # not its cause: that holds the bytes
        raise UnusableToken(f"the token file {file} cannot be read: it is not text") from None
    return prepare_token(text, f"the token in {file}")


def prepare_token(token: str, what: str) -> str:
    """Return a token as it is sent in a header, and have it masked from now on.

    Raises:
        UnusableToken: it cannot be sent; it is called ``what`` then.
    """
    token = token.strip()  # files end with a newline
    masking.register_secret(token, *token.split())
    if not (token.isascii() and token.isprintable()):
        raise UnusableToken(f"{what} must be one line of printable ASCII, as it is sent in a header")
    return token


def bearer(token: Callable[[], str]) -> Authenticate:
    """Return what sets the Authorization header of a request, where there is a token."""

    def authenticate(request: requests.PreparedRequest) -> None:
        now = token()
        if now:
            request.headers["Authorization"] = f"Bearer {now}"

    return authenticate


class Authentication(requests.auth.AuthBase):
    """Sets the credentials of each request, or else those in its address.

    Always there, even to do nothing: requests would otherwise look into .netrc.
    """

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set them.

        Raises:
            UnusableToken: there is one that cannot be read or sent.
        """
        self._authenticate(request)
        user, password = requests.utils.get_auth_from_url(request.url or "")
        if user and "Authorization" not in request.headers:
            requests.auth.HTTPBasicAuth(user, password)(request)
        return request
