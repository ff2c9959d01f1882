"""Who asks: a bearer token, from a text or a file, or the user and password of the address."""

from pathlib import Path

import requests


class UnusableToken(ValueError):
    """The token cannot be read, or cannot be sent; the message does not quote it."""


class Bearer(requests.auth.AuthBase):
    """Sets the token, or else the user and password of the address.

    Always there, even to do nothing: requests would otherwise look into .netrc.
    """

    def __init__(self, token: str | None, file: Path | None) -> None:
        """Take a token, or the file to read it from at every request.

        Raises:
            UnusableToken: the token cannot be sent in a header.
        """
        self._token = _sendable(token or "", "the token")
        self._file = file

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the header of one request.

        Raises:
            UnusableToken: the file cannot be read, or what is in it cannot be sent.
        """
        token = self._token if self._file is None else _read(self._file)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
            return request
        user, password = requests.utils.get_auth_from_url(request.url or "")
        return requests.auth.HTTPBasicAuth(user, password)(request) if user else request


def _read(file: Path) -> str:
    try:
        return _sendable(file.read_text(encoding="utf-8"), f"the token in {file}")
    except OSError as error:
        raise UnusableToken(f"the token file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnusableToken(f"the token file {file} is not text") from error


def _sendable(token: str, what: str) -> str:
    token = token.strip()  # files end with a newline
    if not (token.isascii() and token.isprintable()):
        raise UnusableToken(f"{what} must be printable ASCII, as it is sent in a header")
    return token
