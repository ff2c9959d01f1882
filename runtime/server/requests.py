"""Incremental parsing of HTTP requests: gunicorn's parser for heads, plus bodies with a length or in chunks.

Nothing here blocks. The application gets a request only once it is complete, so it never waits for a client.
"""

import io
import re
import ssl
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from gunicorn import http
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException

MAX_HEAD_BYTES = 65536
_MAX_LINE = 4096  # of a chunk's size line, and of the trailers after the last chunk
_MAX_FRAMING_BYTES = 131072  # of all size lines of a body: 8 MB in chunks of half a kilobyte stay below it
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(;[^\r\n]*)?")
_CHUNKS_AT_ONCE = 32  # per turn, so that other connections get their turn
_END_OF_HEAD = b"\r\n\r\n"
_MAX_CACHED_HEAD_BYTES = 1024  # longer heads are parsed every time

_config = Config()
for _name, _value in {
    "http_parser": "python",  # the same parser everywhere, even if gunicorn's faster one is installed
    "limit_request_line": 4094,
    "limit_request_fields": 64,
    "limit_request_field_size": 8190,
}.items():
    _config.set(_name, _value)


class RejectedRequest(Exception):
    """The request is malformed or too large. The connection must be closed, as the next request's start is unknown."""

    def __init__(self, status: HTTPStatus, *, head_only: bool) -> None:
        super().__init__(status.phrase)
        self.status = status
        self.head_only = head_only


class Stage(Enum):
    """Part of a request that is being received."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Head of a request. Immutable, since equal heads of several requests share one object.

    Attributes:
        request: gunicorn's parsed request.
        environ: WSGI environment of the head, without the values of the connection.
        keep_alive: True if the client wants the connection to stay open.
        content_length: length of the body in bytes; None for a chunked body.
        expects_continue: True if the client waits for 100 Continue before it sends the body.
    """

    request: Any
    environ: dict[str, Any]
    keep_alive: bool
    content_length: int | None
    expects_continue: bool


class RequestReader:
    """Buffer of a client's data, from which complete requests are read."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._data = bytearray()
        self._blank = self._searched = 0
        self._head: RequestHead | None = None
        self._chunks: _Chunks | None = None

    @property
    def stage(self) -> Stage:
        """Part of the next request that is being received."""
        if self._head is not None:
            return Stage.BODY
        return Stage.HEAD if self._data or self._blank else Stage.NOTHING

    @property
    def buffered_bytes(self) -> int:
        """Number of buffered bytes."""
        return len(self._data)

    @property
    def has_backlog(self) -> bool:
        """Return whether ``next_request`` returned None with data left to parse, so that it must be called again."""
        return self._chunks is not None and self._chunks.has_backlog

    @property
    def expects_continue(self) -> bool:
        """Return whether the client waits for 100 Continue and has sent none of the body."""
        return self._head is not None and self._head.expects_continue and not self._data

    def feed(self, data: bytes) -> None:
        """Append received data."""
        self._data += data

    def next_request(self) -> tuple[RequestHead, bytes] | None:
        """Return head and body of the next request, or None if it is incomplete.

        Raises:
            RejectedRequest: the request is malformed or too large.
        """
        if self._head is None:
            self._head = self._take_head()
            if self._head is None:
                return None
        body = self._take_body(self._head)
        if body is None:
            return None
        head, self._head, self._chunks = self._head, None, None
        return head, body

    def _take_head(self) -> RequestHead | None:
        data = self._data
        if data.startswith((b"\r", b"\n")):  # skip empty lines before a request, as RFC 9112 recommends
            stripped = data.lstrip(b"\r\n")
            self._blank += len(data) - len(stripped)
            self._data = data = stripped
        # Find the end of the head, without searching the same bytes again. Its size is limited before it is complete.
        head_end = data.find(_END_OF_HEAD, self._searched)
        end = len(data) if head_end < 0 else head_end + len(_END_OF_HEAD)
        if end + self._blank > MAX_HEAD_BYTES:
            raise RejectedRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, head_only=data.startswith(b"HEAD "))
        if head_end < 0:
            self._searched = max(0, end - len(_END_OF_HEAD) + 1)
            return None
        # The head is complete: take it from the buffer and parse it.
        text, self._blank, self._searched = bytes(data[:end]), 0, 0
        del data[:end]
        try:
            head = (_parse_cached if end <= _MAX_CACHED_HEAD_BYTES else _parse)(text)
        except (ParseException, StopIteration, ValueError) as error:
            raise RejectedRequest(_status(error), head_only=text.startswith(b"HEAD ")) from error
        if head.content_length is None:
            self._chunks = _Chunks(self._max_body_bytes)
        elif head.content_length > self._max_body_bytes:
            raise _too_large(head)
        return head

    def _take_body(self, head: RequestHead) -> bytes | None:
        if self._chunks is None:
            assert head.content_length is not None  # noqa: S101  a body without a length has chunks
            if len(self._data) < head.content_length:
                return None
            body = bytes(self._data[: head.content_length])
            del self._data[: head.content_length]
            return body
        try:
            return self._chunks.take(self._data)
        except OverflowError:
            raise _too_large(head) from None
        except ValueError:
            raise RejectedRequest(HTTPStatus.BAD_REQUEST, head_only=head.request.method == "HEAD") from None


class _Chunks:
    """Parser of a chunked body. It remembers its position, so that no data is parsed twice."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._found: list[tuple[int, int]] = []
        self._length = 0
        self._at = 0
        self._ended = False
        self.has_backlog = False

    def take(self, data: bytearray) -> bytes | None:
        """Remove the body from the data and return it if it is complete, else return None.

        Raises:
            OverflowError: the body is too large.
            ValueError: the chunks are malformed or too small.
        """
        # Find the next chunks, up to the last one, which is empty.
        for _ in range(_CHUNKS_AT_ONCE):
            self.has_backlog = self._take_chunk(data)
            if not self.has_backlog:
                break
        ending = _END_OF_HEAD if self._ended else b"\r\n"  # end of the trailers, which are ignored, or of a size line
        end = data.find(ending, self._at, self._at + _MAX_LINE)
        if end < 0 and len(data) - self._at > _MAX_LINE:
            raise ValueError("a line is too long")
        if end < 0 or not self._ended:
            return None
        # The trailers are complete: join the chunks, and remove the body from the buffer.
        body = b"".join([data[begin:end_] for begin, end_ in self._found])
        del data[: end + len(_END_OF_HEAD)]
        return body

    def _take_chunk(self, data: bytearray) -> bool:
        """Find the next chunk; return whether it is complete and another one follows."""
        line_end = data.find(b"\r\n", self._at, self._at + _MAX_LINE)
        if self._ended or line_end < 0:
            return False
        size = _CHUNK_SIZE.fullmatch(data, self._at, line_end)
        if size is None:
            raise ValueError("not a chunk size")
        begin = line_end + 2
        end = begin + int(size[1], 16)
        if self._length + end - begin > self._max_bytes:
            raise OverflowError
        if end == begin:
            self._at, self._ended = line_end, True
            return False
        if len(data) < end + 2:
            return False
        if data[end : end + 2] != b"\r\n":
            raise ValueError("a chunk does not match its size")
        self._found.append((begin, end))
        self._length += end - begin
        self._at = end + 2
        if self._at - self._length > _MAX_FRAMING_BYTES:
            raise ValueError("the chunks are too small")
        return True


class _Nowhere:
    """Fake socket for gunicorn's environment: discards data, since nothing is sent before a request is complete."""

    def send(self, data: bytes) -> int:
        return len(data)


def _parse(text: bytes) -> RequestHead:
    # No client address: gunicorn then trusts no headers of proxies.
    request = next(http.get_parser(_config, iter([text]), ("", 0)))
    _, environ = wsgi.create(request, _Nowhere(), ("", ""), ("", ""), _config)
    for name in ("wsgi.early_hints", "wsgi.file_wrapper", "gunicorn.socket"):
        environ.pop(name, None)
    environ["wsgi.multithread"] = True
    chunked = "HTTP_TRANSFER_ENCODING" in environ
    return RequestHead(
        request,
        environ,
        not request.should_close(),
        None if chunked else int(environ.get("CONTENT_LENGTH") or 0),
        request.version >= (1, 1) and environ.get("HTTP_EXPECT", "").lower() == "100-continue",
    )


#: Cached, because clients repeat the same requests, and parsing takes as long as the rest of a response.
_parse_cached = lru_cache(maxsize=256)(_parse)


def make_environ(head: RequestHead, body: bytes, client: Any, server: Any, sock: object) -> dict[str, Any]:
    """Return the WSGI environment of a request.

    Args:
        head: the request's head.
        body: the request's body.
        client: address of the client.
        server: local address of the connection.
        sock: the connection's socket.
    """
    environment = {
        **head.environ,
        "wsgi.url_scheme": "https" if isinstance(sock, ssl.SSLSocket) else "http",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "gunicorn.socket": sock,
        "wsgi.input": io.BytesIO(body),
    }
    if head.content_length is None:
        environment["CONTENT_LENGTH"] = str(len(body))
    return environment


def _status(error: Exception) -> HTTPStatus:
    if isinstance(error, LimitRequestLine):
        return HTTPStatus.REQUEST_URI_TOO_LONG
    if isinstance(error, LimitRequestHeaders):
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return HTTPStatus.BAD_REQUEST


def _too_large(head: RequestHead) -> RejectedRequest:
    return RejectedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, head_only=head.request.method == "HEAD")
