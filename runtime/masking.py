"""What everything said goes through, to the log, to /watcher/health, to findings and errors: no secrets, one line.

A secret is what was sent to prove who we are; whoever sends one says so here first (:func:`register_secret`), since what
comes back may repeat it anywhere. What is one by its form (a password in an address, ``?token=``) is masked as well.
"""

import json
import re
import threading
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

MASK = "********"
_MIN_SECRET_LENGTH = 4  # less would mask half of every sentence, and is no secret
_MAX_SECRETS = 512  # tokens are rotated: the oldest are forgotten
_MAX_SECRET_LENGTH = 10_000  # of a secret
_FORMS = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/?#@'\"]*@"
    r"|(?P<name>[?&;][\w.-]*(?:token|key|secret|passw(?:or)?d|pwd|auth|credential|signature|sig)[\w.-]*=)[^\s&;#'\"]+"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)
_registered: dict[str, None] = {}  # of the process, as its log is
_pattern: re.Pattern[str] | None = None  # all of them, the longest first; None: to be made anew
_lock = threading.Lock()


def register_secret(*values: str) -> None:
    """Mask these wherever they are said from now on, as they are and as JSON and addresses write them."""
    global _pattern  # noqa: PLW0603
    new = [value for value in values if len(value) >= _MIN_SECRET_LENGTH and value not in _registered]
    if not new:
        return
    with _lock:
        for value in new:
            _registered.update(
                dict.fromkeys((value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="")))
            )
        while len(_registered) > _MAX_SECRETS:
            del _registered[next(iter(_registered))]
        _pattern = None


def register_url_secrets(address: str) -> None:
    """Mask the user and password of an address wherever they are said from now on."""
    credentials = urlsplit(without_query(address)).netloc.rpartition("@")[0]
    if credentials:
        password = credentials.partition(":")[2]
        register_secret(credentials, password, unquote(password))


def clear_secrets() -> None:
    """Forget all of them; for tests."""
    global _pattern  # noqa: PLW0603
    with _lock:
        _registered.clear()
        _pattern = None


def has_secret(text: str) -> bool:
    """Return whether a kept secret is in a text."""
    pattern = _secrets()
    return pattern is not None and pattern.search(text) is not None


def redact(text: str) -> str:
    """Return a text without secrets; its lines stay."""
    pattern = _secrets()
    if pattern is not None:
        text = pattern.sub(MASK, text)
    if "=" in text or "://" in text or "earer" in text or "EARER" in text:
        return _FORMS.sub(_without_value, text)
    return text


def to_line(text: object, longest: int | None = None) -> str:
    """Return a text, or what something writes itself as, as one line without secrets and control characters.

    Args:
        text: what to say.
        longest: how many characters of it, where it comes from outside.
    """
    line = str(text)
    if longest is not None:
        line = line[: longest + _MAX_SECRET_LENGTH]  # a secret must not be cut where a part of it could still be told
    line = redact(line)[:longest]
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def redact_fields(statement: object, *fields: str) -> None:
    """Have texts of a frozen dataclass, or tuples of texts, written as :func:`to_line` does; for ``__post_init__``."""
    values = {name: getattr(statement, name) for name in fields}
    whole = "  ".join(value if isinstance(value, str) else "  ".join(map(str, value)) for value in values.values())
    if to_line(whole) == whole:  # nearly always, and at once
        return
    for name, value in values.items():
        object.__setattr__(statement, name, to_line(value) if isinstance(value, str) else tuple(map(to_line, value)))


def without_credentials(address: str) -> str:
    """Return an address that somebody configured, right or wrong, as it may be shown.

    User and password are left out, and query and fragment, where other services take a token.
    """
    return without_query(re.sub(r"^([^/@]*://)?.*@", lambda match: match[1] or "", address, flags=re.DOTALL))


def without_query(address: str) -> str:
    """Return an address up to its query or fragment."""
    return re.split(r"[?#]", address, maxsplit=1)[0]


def redirect_target(location: str, base: str) -> str:
    """Return where a server redirects to, which may be relative to a base, as it may be shown."""
    try:
        parts = urlsplit(urljoin(base, location))
    except ValueError:
        return "no address"
    return to_line(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")), 200)


def _secrets() -> re.Pattern[str] | None:
    global _pattern  # noqa: PLW0603
    pattern = _pattern
    if pattern is None and _registered:
        with _lock:
            pattern = _pattern = re.compile("|".join(map(re.escape, sorted(_registered, key=len, reverse=True))))
    return pattern


def _without_value(match: re.Match[str]) -> str:
    if match["scheme"]:
        return match["scheme"]
    return f"{match['name'] or match['bearer']}{MASK}"
