"""Access control: bearer tokens, client certificates, and routes that need neither."""

import hashlib
import hmac
import logging
import math
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from runtime.errors import SettingsError
from runtime.masking import MIN_TOKEN_LENGTH
from runtime.server.reloading import ReloadingValue

_log = logging.getLogger(__name__)

_PROBES = frozenset({"/livez", "/readyz"})


class Verdict(Enum):
    """Outcome of the access check of a request."""

    ADMITTED = "the request has the required credentials, or none are required"
    OPEN = "the route is open to everyone, but without the reasons of failures"
    NO_CERTIFICATE = "a client certificate is needed"
    EXPIRED_CERTIFICATE = "the client certificate has expired"
    NO_TOKEN = "a bearer token is needed"  # noqa: S105  a message
    INVALID_TOKEN = "the token is unknown or has expired"  # noqa: S105
    WRONG_PORT = "this port does not serve that path"


class AccessCheck:
    """Access check of requests. If both tokens and client certificates are configured, a request needs both."""

    def __init__(
        self,
        *,
        token: str | None = None,
        tokens_file: Path | None = None,
        certificates: bool = False,
        open_routes: Iterable[str] = (),
        tokenless_routes: Iterable[str] = (),
        ports: Mapping[int, str] | None = None,
        section: str = "server",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the tokens.

        Args:
            token: a valid token that does not expire; None for no such token.
            tokens_file: file with more tokens; None for no file.
            certificates: True if clients need a certificate, which the TLS handshake has verified.
            open_routes: rules that are open to everyone, in addition to the probes. A rule that ends in ``/`` includes
                all paths below it.
            tokenless_routes: rules without this token check, because their handlers check tokens of another kind.
                Client certificates are still required, if they are configured.
            ports: ports with restricted routes, and the prefix of these routes. Such a port serves only these routes
                and the probes, to everyone.
            section: section of the settings that errors name.
            clock: Unix time, which decides about expired tokens and certificates.

        Raises:
            SettingsError: the tokens file cannot be used.
        """
        self._clock = clock
        self._tokens = _tokens(token, tokens_file, section)
        self._certificates = certificates
        self._open_routes = frozenset(open_routes) | _PROBES
        self._tokenless_routes = frozenset(tokenless_routes)
        self._open_below = tuple(route for route in self._open_routes if route.endswith("/"))
        self._ports = {str(port): beginning for port, beginning in (ports or {}).items()}

    @property
    def requires_credentials(self) -> bool:
        """Return whether clients need a token or a certificate."""
        return self._certificates or self._tokens is not None

    @property
    def requires_token(self) -> bool:
        """Return whether clients need a token."""
        return self._tokens is not None

    @property
    def may_refuse(self) -> bool:
        """Return whether any request may be refused."""
        return self.requires_credentials or bool(self._ports)

    def check(self, route: str, environ: Mapping[str, Any]) -> Verdict:
        """Return the outcome of the access check of a request.

        Args:
            route: the rule that the path matched; empty if no rule did.
            environ: the WSGI environment. SERVER_PORT is the port of the socket that the request arrived on.
        """
        alone = self._ports.get(environ.get("SERVER_PORT", "")) if self._ports else None
        if alone is not None:
            return Verdict.OPEN if route in _PROBES or route.startswith(alone) else Verdict.WRONG_PORT
        if not self.requires_credentials:
            return Verdict.ADMITTED
        refused = self._refused(environ)
        if refused is Verdict.ADMITTED:
            return refused
        has_certificate = refused in {Verdict.NO_TOKEN, Verdict.INVALID_TOKEN}  # certificates are checked first
        is_open = self._is_open(route) or (has_certificate and route in self._tokenless_routes)
        return Verdict.OPEN if is_open else refused

    def _refused(self, environ: Mapping[str, Any]) -> Verdict:
        if self._certificates:
            until = certificate_expiry(environ.get("gunicorn.socket"))
            if until is None or self._clock() >= until:
                return Verdict.NO_CERTIFICATE if until is None else Verdict.EXPIRED_CERTIFICATE
        if self._tokens is None:
            return Verdict.ADMITTED
        scheme, _, token = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Verdict.NO_TOKEN
        return Verdict.ADMITTED if self._is_known(token.strip()) else Verdict.INVALID_TOKEN

    def _is_known(self, token: str) -> bool:
        assert self._tokens is not None  # noqa: S101  checked by the caller
        digest_of_request = _digest(token)
        now = self._clock()
        known = False
        for digest, expires in self._tokens.get().items():  # compares all, in constant time: timing reveals nothing
            known |= hmac.compare_digest(digest, digest_of_request) and now < expires
        return known

    def _is_open(self, route: str) -> bool:
        return route in self._open_routes or route.startswith(self._open_below)


def certificate_expiry(connection: object) -> float | None:
    """Return the Unix time at which a client's certificate expires; None if the client sent no certificate.

    TLS verifies the certificate in the handshake only, and a connection may be kept alive longer than the certificate
    is valid.
    """
    certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None


def parse_tokens(text: str) -> tuple[dict[bytes, float], list[str]]:
    """Read the text of a tokens file.

    Args:
        text: one token per line, optionally followed by the day or the time at which the token expires, in UTC unless
            the time has an offset. ``#`` begins a comment.

    Returns:
        The Unix time of expiry by the token's digest, and one problem per invalid line. Problems do not quote the
        line.
    """
    tokens: dict[bytes, float] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        token, *rest = line.partition("#")[0].split() or [""]
        if not token:
            continue
        try:
            if len(token) < MIN_TOKEN_LENGTH or not (token.isascii() and token.isprintable()):
                raise ValueError(f"a token needs at least {MIN_TOKEN_LENGTH} characters, all ASCII")  # noqa: TRY301
            expires = _expiry(rest[0]) if rest else math.inf
            if len(rest) > 1:
                raise ValueError("remove the text after the expiry date, or begin it with #")  # noqa: TRY301
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            tokens[_digest(token)] = expires
    return tokens, problems


def _tokens(token: str | None, file: Path | None, section: str) -> ReloadingValue[Mapping[bytes, float]] | None:
    fixed = {} if token is None else {_digest(token): math.inf}
    if file is None:
        return ReloadingValue((), lambda: fixed) if fixed else None
    try:
        _, problems = parse_tokens(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems = [getattr(error, "strerror", None) or str(error)]
    if problems:
        raise SettingsError([f"{section}.tokens_file = {str(file)!r}: {problem}" for problem in problems])
    return ReloadingValue((file,), lambda: fixed | _usable(file))


def _usable(file: Path) -> dict[bytes, float]:
    """Return each valid token of a file, with the time of its expiry. Invalid lines are logged and admit nobody."""
    tokens, problems = parse_tokens(file.read_text(encoding="utf-8"))
    for problem in problems:
        _log.error("a line of the tokens file is ignored", extra={"file": str(file), "problem": problem})
    if not tokens:
        _log.error("the tokens file has no valid token and admits nobody", extra={"file": str(file)})
    return tokens


def _expiry(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
        if len(text) <= len("2030-12-31"):
            when += timedelta(days=1)  # a token with a date is valid until the end of that day
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("the text after a token must be its expiry: a date such as 2030-12-31, or a time") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
