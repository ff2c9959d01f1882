"""Login sessions of the dashboard, which keep viewers' tokens out of the browser, and its security headers."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from flask import Flask, Response, g, redirect, request

from client.errors import AccessDenied
from trimaran.dashboard.data import DashboardData, PageAccess

_COOKIE = "trimaran-session"
_HOURS = 12
_MAX_SESSIONS = 1000
_MAX_TOKEN_LENGTH = 8000  # characters; servers accept headers of about this size
_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>trimaran: token</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="{prefix}/assets/style.css"></head>
<body><main><h1>trimaran</h1><p role="alert">{message}</p><form method="post" action="{prefix}/login">
<label for="token">Bearer token of the watcher</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></main></body></html>"""


class Sessions:
    """Store of viewers' bearer tokens by session identifier. The browser gets only the identifier, in a cookie.

    A session expires after 12 hours. Of more than 1000 sessions, the oldest are dropped.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Start without sessions."""
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def create(self, token: str) -> str:
        """Create a session for a token, and return the random identifier of the session."""
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[session] = self._clock() + 3600 * _HOURS, token
            while len(self._tokens) > _MAX_SESSIONS:
                self._tokens.popitem(last=False)
        return session

    def token(self, session: str) -> str | None:
        """Return the token of a session; None if the session is unknown or has expired."""
        expires_at, token = self._tokens.get(session, (0.0, ""))
        return token if self._clock() < expires_at else None


def require_login(server: Flask, access: PageAccess, *, secure: bool) -> Callable[[], DashboardData]:
    """Show a login form to viewers without access; return a function that returns the current viewer's data.

    Args:
        server: application of the dashboard.
        access: decides which tokens may view the dashboard.
        secure: mark the cookie as HTTPS-only, as behind a proxy that terminates TLS.
    """
    sessions = Sessions()

    @server.before_request
    def admit() -> Response | None:
        if request.path == "/login" or request.path.startswith("/assets/"):
            return None
        token = sessions.token(request.cookies.get(_COOKIE, ""))
        try:
            g.data = access.admit(token)
        except AccessDenied:
            if request.path.startswith("/_dash"):
                return Response("the session has expired: reload the page", 401)
            return _login_form("")
        return None

    @server.post("/login")
    def login() -> Response:
        token = request.form.get("token", "").strip()
        answer: Response = redirect(f"{request.script_root}/", 303)  # type: ignore[assignment]
        with suppress(AccessDenied, ValueError):
            access.admit(None)
            # No token is needed, or the watcher is down: any made-up token would be admitted and take memory.
            return answer
        try:
            if len(token) > _MAX_TOKEN_LENGTH:
                raise ValueError("the token is too long")  # noqa: TRY301
            access.admit(token or None)
        except (AccessDenied, ValueError):
            return _login_form("The watcher does not accept this token.")
        answer.set_cookie(
            _COOKIE,
            sessions.create(token),
            max_age=3600 * _HOURS,
            path=f"{request.script_root}/",
            httponly=True,
            samesite="Strict",
            secure=secure or request.is_secure,
        )
        return answer

    def current() -> DashboardData:
        data: DashboardData = g.data
        return data

    return current


def _login_form(message: str) -> Response:
    return Response(_LOGIN.format(message=message, prefix=request.script_root), 401, mimetype="text/html")


def set_security_headers(server: Flask, script_hashes: Callable[[], Sequence[str]]) -> None:
    """Add a Content-Security-Policy and other headers: browsers may load nothing from other hosts.

    Args:
        server: application of the dashboard.
        script_hashes: returns the hashes of the inline scripts that browsers may run.
    """
    policy = ""

    @server.after_request
    def add(answer: Response) -> Response:
        nonlocal policy
        if not policy:
            scripts = " ".join(["'self'", *script_hashes()])
            policy = f"{_POLICY}; script-src {scripts}"
        answer.headers["Content-Security-Policy"] = policy
        answer.headers["X-Frame-Options"] = "DENY"
        answer.headers["Referrer-Policy"] = "no-referrer"
        return answer
