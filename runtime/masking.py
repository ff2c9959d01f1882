"""Redaction of secrets in everything that leaves the process: logs, ``/watcher/health``, findings and errors.

Code that sends a secret, such as a token, registers it with :func:`register_secret` before it is sent, because the
other side may repeat it anywhere. Text that has the form of a secret (a password in a URL, ``?token=``) is redacted
even if nobody registered it.
"""

import json
import re
import threading
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

MASK = "********"
MIN_TOKEN_LENGTH = 16  # a shorter token for our server could be guessed
_MIN_SECRET_LENGTH = 4  # a shorter text is not a secret, and redacting it would hide ordinary words
_MAX_SECRETS = 512  # tokens are rotated: the oldest are forgotten
_MAX_SECRET_LENGTH = 10_000
_FORMS = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/?#@'\"]*@"
    r"|(?P<name>[?&;][\w.-]*(?:token|key|secret|passw(?:or)?d|pwd|auth|credential|signature|sig)[\w.-]*=)[^\s&;#'\"]+"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)
# Names that stay readable in paths, headers and options, such as api/v1/prometheus-k8s:9090 or X-Scope-OrgID. Any other
# text may be a secret: some services take tokens in the path, and users type secrets in the wrong place.
_WORD = r"(?:[a-z]{1,20}|[0-9]{1,5}|v[0-9]+(?:(?:alpha|beta)[0-9]+)?|k8s)"
_NAME = re.compile(rf"{_WORD}(?:[-_.:~]{_WORD})*")
# Tokens and UUIDs in a path, but nothing that may be part of a node's name: nodes named like a secret are dropped.
_TOKEN = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_registered: dict[str, None] = {}  # in order of registration; global, like logging
_pattern: re.Pattern[str] | None = None  # matches every registered secret, the longest first; None: must be compiled
_lock = threading.Lock()


def register_secret(*values: str) -> None:
    """Redact these values from now on, in plain, JSON, repr and URL-encoded form."""
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
    """Redact the user and password of a URL from now on."""
    credentials = without_query(address).partition("//")[2].partition("/")[0].rpartition("@")[0]
    if credentials:
        password = credentials.partition(":")[2]
        register_secret(credentials, password, unquote(password))


def register_address_secrets(address: str) -> None:
    """Redact the user, the password and the tokens in the path of a service's URL from now on."""
    register_url_secrets(address)
    path = without_query(address).partition("://")[2].partition("/")[2]
    register_secret(*_TOKEN.findall(path))


def clear_secrets() -> None:
    """Forget all registered secrets. For tests."""
    global _pattern  # noqa: PLW0603
    with _lock:
        _registered.clear()
        _pattern = None


def has_secret(text: str) -> bool:
    """Return whether a text contains a registered secret."""
    pattern = _secrets()
    return pattern is not None and pattern.search(text) is not None


def redact(text: str) -> str:
    """Return a text without secrets. Line breaks stay."""
    pattern = _secrets()
    if pattern is not None:
        text = pattern.sub(MASK, text)
    if "=" in text or "://" in text or "earer" in text or "EARER" in text:
        return _FORMS.sub(_without_value, text)
    return text


def to_line(text: object, longest: int | None = None) -> str:
    """Return the ``str`` of an object as one line without secrets and control characters.

    Args:
        text: the text, or an object with a ``str``.
        longest: maximum length in characters, for texts from outside; None for no limit.
    """
    line = str(text)
    if longest is not None:
        line = line[: longest + _MAX_SECRET_LENGTH]  # long enough to redact each secret as a whole
    line = redact(line)[:longest]
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def redact_fields(statement: object, *fields: str) -> None:
    """Redact fields (texts or tuples of texts) of a frozen dataclass by :func:`to_line`, in its ``__post_init__``."""
    values = {name: getattr(statement, name) for name in fields}
    whole = "  ".join(value if isinstance(value, str) else "  ".join(map(str, value)) for value in values.values())
    if to_line(whole) == whole:  # the common case, with one search for all fields
        return
    for name, value in values.items():
        object.__setattr__(statement, name, to_line(value) if isinstance(value, str) else tuple(map(to_line, value)))


def without_credentials(address: str) -> str:
    """Return a configured URL, valid or not, without its secrets.

    The user and password are removed, and so are the query and the fragment, where some services take a token. In the
    path, parts that are not names are masked.
    """
    shown = without_query(re.sub(r"^([^/@]*://)?.*@", lambda match: match[1] or "", address, flags=re.DOTALL))
    start, scheme, rest = shown.rpartition("://")
    host, *path = rest.split("/")
    return start + scheme + "/".join([host, *(part if not part or _NAME.fullmatch(part) else MASK for part in path)])


def name_or_mask(text: str) -> str:
    """Return a name that a user gave, such as that of a header, or the mask if it may be a secret."""
    return text if _NAME.fullmatch(text.lower()) else MASK


def without_query(address: str) -> str:
    """Return a URL up to its query or fragment."""
    return re.split(r"[?#]", address, maxsplit=1)[0]


def redirect_target(location: str, base: str) -> str:
    """Return the target of a redirect, which may be relative to a base URL, without its secrets."""
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
