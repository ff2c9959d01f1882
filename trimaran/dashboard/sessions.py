"""Who looks: a token that is asked for once, kept in this process, and named by a cookie; and what a page may load."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from flask import Flask, Response, g, redirect, request

from client.errors import AccessDenied
from trimaran.dashboard.data import Data, Readers

_COOKIE = "trimaran-session"
_HOURS = 12
_MOST_SESSIONS = 1000
_LONGEST_TOKEN = 8000  # about what servers take in a header
_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>trimaran: token</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="{place}/assets/style.css"></head>
<body><main><h1>trimaran</h1><p role="alert">{said}</p><form method="post" action="{place}/login">
<label for="token">The watcher's token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Look</button></form></main></body></html>"""


class Sessions:
    """Tokens by the cookie that stands for them; the oldest are forgotten. A token itself never leaves the process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Know nobody."""
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def begin(self, token: str) -> str:
        """Return the name of a new session."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[name] = self._clock() + 3600 * _HOURS, token
            while len(self._tokens) > _MOST_SESSIONS:
                self._tokens.popitem(last=False)
        return name

    def token(self, name: str) -> str | None:
        """Return the token of a session that has not ended."""
        until, token = self._tokens.get(name, (0.0, ""))
        return token if self._clock() < until else None


def guard(server: Flask, readers: Readers, *, secure: bool) -> Callable[[], Data]:
    """Ask everybody for the token where the watcher does; return what tells the data of whoever asks just now.

    Args:
        server: of the page.
        readers: say who may look.
        secure: whether the page is reached by HTTPS alone, also where a proxy speaks it, so that the cookie is too.
    """
    sessions = Sessions()

    @server.before_request
    def admit() -> Response | None:
        if request.path == "/login" or request.path.startswith("/assets/"):
            return None
        token = sessions.token(request.cookies.get(_COOKIE, ""))
        try:
            g.data = readers.admit(token)
        except AccessDenied:
            if request.path.startswith("/_dash"):
                return Response("the session has ended: load the page again", 401)
            return _asking("")
        return None

    @server.post("/login")
    def login() -> Response:
        token = request.form.get("token", "").strip()
        answer: Response = redirect(f"{request.script_root}/", 303)  # type: ignore[assignment]
        with suppress(AccessDenied, ValueError):
            readers.admit(None)
            return answer  # it asks for none, or is down: it would admit whatever is made up, each with data of its own
        try:
            if len(token) > _LONGEST_TOKEN:
                raise ValueError("no token is as long")  # noqa: TRY301
            readers.admit(token or None)
        except (AccessDenied, ValueError):
            return _asking("The watcher does not know this token.")
        answer.set_cookie(
            _COOKIE,
            sessions.begin(token),
            max_age=3600 * _HOURS,
            path=f"{request.script_root}/",
            httponly=True,
            samesite="Strict",
            secure=secure or request.is_secure,
        )
        return answer

    def current() -> Data:
        data: Data = g.data
        return data

    return current


def _asking(said: str) -> Response:
    return Response(_LOGIN.format(said=said, place=request.script_root), 401, mimetype="text/html")


def protect(server: Flask, script_hashes: Callable[[], Sequence[str]]) -> None:
    """Say to browsers what the page may load: itself, and nothing else.

    Args:
        server: of the page.
        script_hashes: of the scripts within the page.
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
