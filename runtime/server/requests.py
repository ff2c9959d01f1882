"""Requests, taken from what clients send piece by piece: heads by gunicorn's parser, bodies counted and whole.

Nothing here waits, and nothing is handed on before it is whole: an application never waits for a client.
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
_MAX_LINE = 4096  # what frames a chunk, and the trailers behind the last
_MAX_FRAMING_BYTES = 131072  # what frames the chunks of a body, together: 8 MB come in pieces of half a kilobyte
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(;[^\r\n]*)?")
_CHUNKS_AT_ONCE = 32  # then it is others' turn
_END_OF_HEAD = b"\r\n\r\n"
_MAX_CACHED_HEAD_BYTES = 1024  # a longer head is parsed each time

_config = Config()
for _name, _value in {
    "http_parser": "python",  # the same one everywhere, whatever is installed
    "limit_request_line": 4094,
    "limit_request_fields": 64,
    "limit_request_field_size": 8190,
}.items():
    _config.set(_name, _value)


class RejectedRequest(Exception):
    """A request that cannot be read, or is too large. Where the next one begins is not known."""

    def __init__(self, status: HTTPStatus, *, head_only: bool) -> None:
        super().__init__(status.phrase)
        self.status = status
        self.head_only = head_only


class Stage(Enum):
    """How much of a request is there."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head, which many requests have in common: it does not change.

    Attributes:
        request: as gunicorn parsed it.
        environ: what WSGI makes of it, without what the connection adds.
        keep: whether the client wants the connection data_left.
        length: of the body in bytes; None when it comes in chunks.
        expects: whether the client waits for 100 Continue before it sends the body.
    """

    request: Any
    environ: dict[str, Any]
    keep_alive: bool
    content_length: int | None
    expects_continue: bool


class RequestReader:
    """What a client has sent: the beginning of a request, or whole ones."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._data = bytearray()
        self._blank = self._searched = 0
        self._head: RequestHead | None = None
        self._chunks: _Chunks | None = None

    @property
    def stage(self) -> Stage:
        """How much of the next request is there."""
        if self._head is not None:
            return Stage.BODY
        return Stage.HEAD if self._data or self._blank else Stage.NOTHING

    @property
    def buffered_bytes(self) -> int:
        """How many bytes are data_left."""
        return len(self._data)

    @property
    def has_backlog(self) -> bool:
        """Whether ``take`` returned None though there was more to look at: it is to be called again."""
        return self._chunks is not None and self._chunks.has_backlog

    @property
    def expects_continue(self) -> bool:
        """Whether the client has sent nothing of a body and waits for 100 Continue."""
        return self._head is not None and self._head.expects_continue and not self._data

    def feed(self, data: bytes) -> None:
        """Add what has come."""
        self._data += data

    def next_request(self) -> tuple[RequestHead, bytes] | None:
        """Return the next request, head and body, or None when it is not whole.

        Raises:
            Refused: it cannot be read, or is too large.
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
        if data.startswith((b"\r", b"\n")):  # empty lines before a request are none of its
            data_left = data.lstrip(b"\r\n")
            self._blank += len(data) - len(data_left)
            self._data = data = data_left
        found = data.find(_END_OF_HEAD, self._searched)
        end = len(data) if found < 0 else found + len(_END_OF_HEAD)
        if end + self._blank > MAX_HEAD_BYTES:
            raise RejectedRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, head_only=data.startswith(b"HEAD "))
        if found < 0:
            self._searched = max(0, end - len(_END_OF_HEAD) + 1)
            return None
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
            assert head.content_length is not None  # noqa: S101  else there were chunks
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
    """A body that comes in chunks: found in the data without being read twice."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._found: list[tuple[int, int]] = []
        self._length = 0
        self._at = 0
        self._ended = False
        self.has_backlog = False

    def take(self, data: bytearray) -> bytes | None:
        """Take the body out of the data when it is whole, else return None.

        Raises:
            OverflowError: it is too large.
            ValueError: it is not made of chunks, or of too small ones.
        """
        for _ in range(_CHUNKS_AT_ONCE):
            self.has_backlog = self._take_chunk(data)
            if not self.has_backlog:
                break
        ending = _END_OF_HEAD if self._ended else b"\r\n"  # of trailers, which nobody reads, or of a chunk's size
        end = data.find(ending, self._at, self._at + _MAX_LINE)
        if end < 0 and len(data) - self._at > _MAX_LINE:
            raise ValueError("a line that does not end")
        if end < 0 or not self._ended:
            return None
        body = b"".join([data[begin:end_] for begin, end_ in self._found])
        del data[: end + len(_END_OF_HEAD)]
        return body

    def _take_chunk(self, data: bytearray) -> bool:
        """Find the next chunk; return whether it was there and another one follows."""
        line_end = data.find(b"\r\n", self._at, self._at + _MAX_LINE)
        if self._ended or line_end < 0:
            return False
        size = _CHUNK_SIZE.fullmatch(data, self._at, line_end)
        if size is None:
            raise ValueError("no size of a chunk")
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
            raise ValueError("a chunk does not end with its size")
        self._found.append((begin, end))
        self._length += end - begin
        self._at = end + 2
        if self._at - self._length > _MAX_FRAMING_BYTES:
            raise ValueError("chunks that are too small")
        return True


class _Nowhere:
    """Takes what gunicorn would send while it makes an environment: nothing is sent before a request is whole."""

    def send(self, data: bytes) -> int:
        return len(data)


def _parse(text: bytes) -> RequestHead:
    # Of nobody's address, for which gunicorn believes no header about proxies.
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


#: Clients ask for the same again and again; parsing would take as long as all the rest of an answer.
_parse_cached = lru_cache(maxsize=256)(_parse)


def make_environ(head: RequestHead, body: bytes, client: Any, server: Any, sock: object) -> dict[str, Any]:
    """Return what WSGI hands to an application.

    Args:
        head: of the request.
        body: of the request.
        client: the address that it came from.
        server: the address that it came to.
        sock: the connection.
    """
    made = {
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
        made["CONTENT_LENGTH"] = str(len(body))
    return made


def _status(error: Exception) -> HTTPStatus:
    if isinstance(error, LimitRequestLine):
        return HTTPStatus.REQUEST_URI_TOO_LONG
    if isinstance(error, LimitRequestHeaders):
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return HTTPStatus.BAD_REQUEST


def _too_large(head: RequestHead) -> RejectedRequest:
    return RejectedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, head_only=head.request.method == "HEAD")
