"""HTTP responses, independent of framework and connection, and their encoding."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from runtime.server.errors import encode_error

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """HTTP response. In response to a HEAD request, the body is not sent."""

    body: bytes
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] | None = None

    def header_fields(self) -> list[tuple[str, str]]:
        """Return all header fields in the form of WSGI."""
        fields = [] if self.content_type is None else [("Content-Type", self.content_type)]
        if self.status != HTTPStatus.NOT_MODIFIED:
            fields.append(("Content-Length", str(len(self.body))))
        if self.headers:
            fields += self.headers.items()
        return fields


def status_line(status: int) -> str:
    """Return the status line of WSGI, such as ``200 OK``."""
    return f"{status} {HTTPStatus(status).phrase.upper() if status != HTTPStatus.OK else 'OK'}"


def json_response(value: object, status: int = 200) -> HttpResponse:
    """Return a response with a value as JSON."""
    return HttpResponse(orjson.dumps(value), status)


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return an error response with the body that all APIs of the project use."""
    return HttpResponse(encode_error(code, message), status, headers=headers)


def add_common_headers(fields: list[tuple[str, str]], *, private: bool) -> None:
    """Add the header fields that all responses have.

    Args:
        fields: header fields of a response, which are extended in place.
        private: True if shared caches must not keep the response.
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
    """Return the head of a response as bytes of HTTP/1.

    Args:
        status: the status code.
        fields: header fields, without Server, Date and Connection.
        date: the time in the format of HTTP dates.
        keep_alive: True if the connection stays open for another request.
        version: the request's version of HTTP.
    """
    lines = [
        f"HTTP/{version[0]}.{version[1]} {status_line(status)}",
        "Server: gunicorn",
        f"Date: {date}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    lines += [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
