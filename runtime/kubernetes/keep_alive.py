"""Keep-alive connection to the API server for many small requests, at a twentieth of the processor time of a session.

A scheduler sends two or three requests per pod. The library ``requests`` takes 2.3 ms of processor time for each, and
Python's ``http.client`` 0.46 ms; this connection takes 0.12 ms, because it formats the constant headers once and reads
only the three headers that frame a response (RFC 9112). The connection never sends a request twice: after a failure
the API server may have executed the request.
"""

import contextlib
import http
import math
import re
import select
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests

from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import KubernetesApi

_MAX_HEAD_BYTES = 64 << 10
_MAX_BODY_BYTES = 8 << 20  # etcd limits an object to 1.5 MiB
_READ_BYTES = 64 << 10
_CREDENTIALS_SECONDS = 60.0  # as in client-go: tokens in files are rotated long before they expire
# int() would also accept signs, underscores and prefixes, unlike RFC 9110, 8.6 and RFC 9112, 4 and 7.1.
_STATUS = re.compile("[0-9]{3}")
_LENGTH = re.compile("[0-9]{1,15}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;.*)?", re.DOTALL)
_FRAMING = ("content-length", "transfer-encoding")
_BODILESS = (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED)


class KeepAliveConnection:
    """Connection of one thread to an API server, opened at the first request and again after a failure.

    Args:
        api: client with the address and the credentials; a client behind a proxy sends the requests itself.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._lock = threading.Lock()  # held during a request
        self._sock: socket.socket | None = None
        self._head = b""  # constant headers of the requests
        self._head_ends_at = -math.inf
        self._received = b""
        self._is_closed = self._is_proxied = False

    def send(
        self, method: str, path: str, deadline: Deadline, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request once, and return the JSON of the response; None for an empty body.

        Raises:
            requests.HTTPError: the status is 400 or above. Below 500, the API server did not execute the request; from
                500 on this is unknown.
            UnexpectedResponse: the response is not HTTP or not JSON.
            OSError: there is no response in time.
            InvalidApiServerConfig, UnusableToken: as :meth:`KubernetesApi.send`.
        """
        with self._lock:
            try:
                self._update_headers()
                if self._is_proxied:
                    return self._api.send(method, path, deadline, body, content_type)
                status, reason, content = self._exchange(method, path, deadline, body, content_type)
            except BaseException:
                self._disconnect()  # a late response must not be taken for that of the next request
                raise
        if status >= http.HTTPStatus.BAD_REQUEST:
            if status == http.HTTPStatus.UNAUTHORIZED:
                self._head_ends_at = -math.inf
                self._api.forget_credentials()
                self._disconnect()  # an open connection keeps its client certificate, which may have expired
            raise _refusal(method, self._api.address + path, status, reason, content)
        try:
            return orjson.loads(content) if content else None
        except orjson.JSONDecodeError:
            raise UnexpectedResponse(f"the response of {path} is not JSON") from None

    def close(self) -> None:
        """Close the connection, and refuse later requests. A request of another thread ends with an error."""
        self._is_closed = True
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):  # already closed
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not the method of TLS sockets, which waits for a peer
        with self._lock:
            self._disconnect()

    def _exchange(
        self, method: str, path: str, deadline: Deadline, body: Any, content_type: str
    ) -> tuple[int, str, bytes]:
        """Send a request; return status, reason and body of the response."""
        sock = self._connected(deadline)
        content = b"" if body is None else orjson.dumps(body)
        lines = f"{method} {path} HTTP/1.1\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
        sock.settimeout(max(0.001, deadline.remaining_seconds()))
        sock.sendall(lines.encode("ascii") + self._head + content)
        return self._response(sock, deadline)

    def _update_headers(self) -> None:
        """Build the constant headers again once a minute, with the current credentials."""
        now = time.monotonic()
        if now < self._head_ends_at:
            return
        self._api.connect()
        self._is_proxied = self._api.is_proxied
        host = urlsplit(self._api.address).netloc.rpartition("@")[2]
        fields = {"Host": host, "Accept": "application/json", "User-Agent": "trimaran", **self._api.request_headers()}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode("latin-1") + b"\r\n"
        self._head_ends_at = now + _CREDENTIALS_SECONDS

    def _connected(self, deadline: Deadline) -> socket.socket:
        """Return a connection that the server has not closed."""
        if self._is_closed:
            raise ConnectionAbortedError("the connection to the API server was closed by this process")
        if self._sock is not None and _is_readable(self._sock):
            self._disconnect()  # closed by the server, or it holds data that was not requested
        if self._sock is None:
            address = urlsplit(self._api.address)
            host, secure = str(address.hostname), address.scheme == "https"
            seconds = max(0.001, deadline.remaining_seconds())
            sock = socket.create_connection((host, address.port or (443 if secure else 80)), seconds)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if secure:
                    name = self._api.tls_server_name or host
                    sock = self._api.tls_context().wrap_socket(sock, server_hostname=name)
            except BaseException:
                sock.close()
                raise
            self._sock, self._received = sock, b""
        return self._sock

    def _disconnect(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.close()
        self._sock, self._received = None, b""

    def _response(self, sock: socket.socket, deadline: Deadline) -> tuple[int, str, bytes]:
        """Read a response; return status, reason and body."""
        while True:
            head = self._until(sock, b"\r\n\r\n", deadline, _MAX_HEAD_BYTES)
            first, *fields = head.decode("latin-1").split("\r\n")
            version, _, rest = first.partition(" ")
            code, _, reason = rest.partition(" ")
            if not (version.startswith("HTTP/1.") and _STATUS.fullmatch(code)):
                raise UnexpectedResponse("the API server's response is not HTTP/1")
            if int(code) >= http.HTTPStatus.OK:  # interim responses, such as 103, precede the final one
                break
        pairs = [(name.lower(), value.strip()) for name, _, value in (field.partition(":") for field in fields)]
        if len({pair for pair in pairs if pair[0] in _FRAMING}) > 1:
            raise UnexpectedResponse("the API server's response has two lengths: Content-Length, Transfer-Encoding")
        by_name = dict(pairs)
        if int(code) in _BODILESS:
            content = b""
        elif by_name.get("transfer-encoding", "").lower() == "chunked":
            content = self._chunks(sock, deadline)
        elif _LENGTH.fullmatch(by_name.get("content-length", "")):
            content = self._exactly(sock, int(by_name["content-length"]), deadline)
        else:
            raise UnexpectedResponse("the API server's response has neither a Content-Length nor chunks")
        if by_name.get("connection", "").lower() == "close" or version == "HTTP/1.0":
            self._disconnect()
        return int(code), reason, content

    def _chunks(self, sock: socket.socket, deadline: Deadline) -> bytes:
        content = b""
        while True:
            size = _CHUNK_SIZE.fullmatch(self._until(sock, b"\r\n", deadline, _MAX_HEAD_BYTES))
            if size is None:
                raise UnexpectedResponse("the API server's response has an invalid chunk size")
            length = int(size[1], 16)
            if not length:
                while self._until(sock, b"\r\n", deadline, _MAX_HEAD_BYTES):
                    pass  # trailers
                return content
            if len(content) + length > _MAX_BODY_BYTES:
                raise UnexpectedResponse(f"the API server's response is larger than {_MAX_BODY_BYTES} bytes")
            content += self._exactly(sock, length, deadline)
            if self._exactly(sock, 2, deadline) != b"\r\n":
                raise UnexpectedResponse("the API server's response has a chunk that does not match its size")

    def _until(self, sock: socket.socket, end: bytes, deadline: Deadline, limit: int) -> bytes:
        while end not in self._received:
            if len(self._received) > limit:
                raise UnexpectedResponse(f"the head of the API server's response is larger than {limit} bytes")
            self._receive(sock, deadline)
        part, _, self._received = self._received.partition(end)
        return part

    def _exactly(self, sock: socket.socket, length: int, deadline: Deadline) -> bytes:
        if length > _MAX_BODY_BYTES:
            raise UnexpectedResponse(f"the API server's response is larger than {_MAX_BODY_BYTES} bytes")
        while len(self._received) < length:
            self._receive(sock, deadline)
        part, self._received = self._received[:length], self._received[length:]
        return part

    def _receive(self, sock: socket.socket, deadline: Deadline) -> None:
        seconds = deadline.remaining_seconds()
        if not seconds:
            raise TimeoutError("the deadline of the call has passed")
        sock.settimeout(seconds)
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the API server has closed the connection")
        self._received += data


def _is_readable(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


def _refusal(method: str, url: str, status: int, reason: str, content: bytes) -> requests.HTTPError:
    """Return the exception that the library ``requests`` raises for a status, so that callers classify it alike."""
    response = requests.Response()
    response.status_code, response.reason, response.url = status, reason, url
    response._content = content  # noqa: SLF001  the attribute that requests fills
    response.request = requests.Request(method, url).prepare()
    return requests.HTTPError(f"{status} {reason} for {url}", response=response, request=response.request)
