"""Answers, before they are any framework's or on any connection."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from runtime.server.errors import encode_error

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What is answered to a request; to a HEAD without its body.

    ``on_sent`` is what its thread does when it is sent; it never fails.
    """

    body: bytes
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] | None = None
    on_sent: Callable[[], None] | None = None

    def header_fields(self) -> list[tuple[str, str]]:
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


def json_response(value: object, status: int = 200) -> HttpResponse:
    """Return a value as JSON."""
    return HttpResponse(orjson.dumps(value), status)


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return the one shape of errors."""
    return HttpResponse(encode_error(code, message), status, headers=headers)


def add_common_headers(fields: list[tuple[str, str]], *, private: bool) -> None:
    """Add to an answer's header fields what all answers have.

    Args:
        fields: of the answer, to which is added.
        private: whether it is for those alone who may read it.
    """
    fields.append(("X-Content-Type-Options", "nosniff"))
    for place, (name, _) in enumerate(fields):
        if name == "Cache-Control":
            if private:
                fields[place] = name, "private, no-cache"
            return
    fields.append(("Cache-Control", "no-store"))


def encode_head(
    status: int, fields: Iterable[tuple[str, str]], *, date: str, keep_alive: bool, version: tuple[int, int] = (1, 1)
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
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    lines += [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
