"""Who may read what: bearer tokens, client certificates, and what is answered without them."""

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
from runtime.server.reloading import ReloadingValue

_log = logging.getLogger(__name__)

MIN_TOKEN_LENGTH = 16
_PROBES = frozenset({"/livez", "/readyz"})


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "it has what is asked for, or nothing is asked for"
    OPEN = "what it asks for is open to everyone, but not the reasons of failures"
    NO_CERTIFICATE = "a client certificate is needed"
    EXPIRED_CERTIFICATE = "the client certificate has expired"
    NO_TOKEN = "a bearer token is needed"  # noqa: S105  a message
    INVALID_TOKEN = "the token is not known, or has expired"  # noqa: S105
    WRONG_PORT = "this port does not answer that"


class AccessCheck:
    """Judges requests. Where both tokens and client certificates are asked for, both are needed."""

    def __init__(
        self,
        *,
        token: str | None = None,
        tokens_file: Path | None = None,
        certificates: bool = False,
        open_routes: Iterable[str] = (),
        ports: Mapping[int, str] | None = None,
        section: str = "server",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the tokens.

        Args:
            token: one that is known, and does not expire.
            tokens_file: more of them; None for no file.
            certificates: whether readers must have a certificate, which the connection's handshake has verified.
            open_routes: rules that are open to everyone beside the probes; one that ends in ``/`` is for all below it.
            ports: to the beginning of the only routes, beside the probes, that it answers, and to everyone.
            section: of the settings, which errors name.
            clock: unix time, for tokens and certificates that expire.

        Raises:
            SettingsError: the file of tokens cannot be used.
        """
        self._clock = clock
        self._tokens = _tokens(token, tokens_file, section)
        self._certificates = certificates
        self._open_routes = frozenset(open_routes) | _PROBES
        self._open_below = tuple(route for route in self._open_routes if route.endswith("/"))
        self._ports = {str(port): beginning for port, beginning in (ports or {}).items()}

    @property
    def requires_credentials(self) -> bool:
        """Return whether anything is asked of readers."""
        return self._certificates or self._tokens is not None

    @property
    def may_refuse(self) -> bool:
        """Return whether any request may be refused."""
        return self.requires_credentials or bool(self._ports)

    def check(self, route: str, environ: Mapping[str, Any]) -> Verdict:
        """Return what becomes of a request.

        Args:
            route: the rule that its path matched; empty when none did.
            environ: the request, as WSGI has it. SERVER_PORT is the port of the socket it came in by.
        """
        alone = self._ports.get(environ.get("SERVER_PORT", "")) if self._ports else None
        if alone is not None:
            return Verdict.OPEN if route in _PROBES or route.startswith(alone) else Verdict.WRONG_PORT
        if not self.requires_credentials:
            return Verdict.ADMITTED
        refused = self._refused(environ)
        return Verdict.OPEN if refused is not Verdict.ADMITTED and self._is_open(route) else refused

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
        assert self._tokens is not None  # noqa: S101  asked before
        given = _digest(token)
        now = self._clock()
        known = False
        for digest, expires in self._tokens.get().items():  # all of them, and all bytes: time tells nothing
            known |= hmac.compare_digest(digest, given) and now < expires
        return known

    def _is_open(self, route: str) -> bool:
        return route in self._open_routes or route.startswith(self._open_below)


def certificate_expiry(connection: object) -> float | None:
    """Return the unix time when a client's certificate expires; None when it has none.

    The handshake has verified it, which is looked at again only when there is another one: a connection may be kept
    for longer than its certificate is valid.
    """
    certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None


def parse_tokens(text: str) -> tuple[dict[bytes, float], list[str]]:
    """Read a file of tokens.

    Args:
        text: a token a line, which may be followed by the day on which, or the time at which it expires, in UTC unless
            it says otherwise; ``#`` begins a comment.

    Returns:
        The tokens' digests with the unix time when each expires, and what is wrong with the other lines; what they
        hold is not quoted.
    """
    tokens: dict[bytes, float] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        token, *rest = line.partition("#")[0].split() or [""]
        if not token:
            continue
        try:
            if len(token) < MIN_TOKEN_LENGTH or not (token.isascii() and token.isprintable()):
                raise ValueError(f"a token has at least {MIN_TOKEN_LENGTH} characters, all of them ASCII")  # noqa: TRY301
            expires = _expiry(rest[0]) if rest else math.inf
            if len(rest) > 1:
                raise ValueError("there is something behind the expiry")  # noqa: TRY301
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            tokens[_digest(token)] = expires
    return tokens, problems


def _tokens(token: str | None, file: Path | None, section: str) -> ReloadingValue[Mapping[bytes, float]] | None:
    own = {} if token is None else {_digest(token): math.inf}
    if file is None:
        return ReloadingValue((), lambda: own) if own else None
    try:
        _, problems = parse_tokens(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems = [getattr(error, "strerror", None) or str(error)]
    if problems:
        raise SettingsError([f"{section}.tokens_file = {str(file)!r}: {problem}" for problem in problems])
    return ReloadingValue((file,), lambda: own | _usable(file))


def _usable(file: Path) -> dict[bytes, float]:
    """Return the tokens of a file; a line that cannot be used admits nobody."""
    tokens, problems = parse_tokens(file.read_text(encoding="utf-8"))
    for problem in problems:
        _log.error("a line of the tokens file is left out", extra={"file": str(file), "problem": problem})
    if not tokens:
        _log.error("the tokens file holds no token: none of its readers is admitted", extra={"file": str(file)})
    return tokens


def _expiry(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
        if len(text) <= len("2030-12-31"):
            when += timedelta(days=1)  # a day is meant with all its hours
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("behind a token stands the day on which it expires, such as 2030-12-31, or a time") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
