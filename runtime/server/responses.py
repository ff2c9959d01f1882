"""Answers, before they are any framework's or on any connection."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from runtime.server.errors import encode_error

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to a request; to a HEAD without its body.

    ``afterwards`` is what its thread does when it is sent; it never fails.
    """

    body: bytes
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] | None = None
    afterwards: Callable[[], None] | None = None

    def head(self) -> list[tuple[str, str]]:
        """Return all header fields, as WSGI has them."""
        fields = [] if self.content_type is None else [("Content-Type", self.content_type)]
        if self.status != HTTPStatus.NOT_MODIFIED:
            fields.append(("Content-Length", str(len(self.body))))
        if self.headers:
            fields += self.headers.items()
        return fields


def status_line(status: int) -> str:
    """Return a status as WSGI has it."""
    return f"{status} {HTTPStatus(status).phrase.upper() if status != HTTPStatus.OK else 'OK'}"


def of_json(value: object, status: int = 200) -> Answer:
    """Return a value as JSON."""
    return Answer(orjson.dumps(value), status)


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return the one shape of errors."""
    return Answer(encode_error(code, message), status, headers=headers)


def finish(fields: list[tuple[str, str]], *, locked: bool) -> None:
    """Add to an answer's header fields what all answers have.

    Args:
        fields: of the answer, to which is added.
        locked: whether it is for those alone who may read it.
    """
    fields.append(("X-Content-Type-Options", "nosniff"))
    for place, (name, _) in enumerate(fields):
        if name == "Cache-Control":
            if locked:
                fields[place] = name, "private, no-cache"
            return
    fields.append(("Cache-Control", "no-store"))


def encode(
    status: int, fields: Iterable[tuple[str, str]], *, date: str, keep: bool, version: tuple[int, int] = (1, 1)
) -> bytes:
    """Return an answer's head as HTTP/1 has it on a connection.

    Args:
        status: of the answer.
        fields: of its head, without those of the connection.
        date: as HTTP writes it.
        keep: whether the connection is kept.
        version: of HTTP, that of the request.
    """
    lines = [
        f"HTTP/{version[0]}.{version[1]} {status_line(status)}",
        "Server: gunicorn",
        f"Date: {date}",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    lines += [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
