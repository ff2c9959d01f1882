"""Sockets that never block: what a client does not take at once is buffered, and no thread waits for it."""

import contextlib
import socket
import ssl
from typing import Any

NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BufferedSocket(socket.socket):
    """A connection that keeps what its client does not take at once: no thread waits for the client."""

    unsent: tuple[memoryview, ...] = ()
    head_only = False  # the request is a HEAD, which is answered without a body

    def setblocking(self, _flag: bool) -> None:
        """Never block, whatever gunicorn asks for."""
        if self.gettimeout() != 0:
            super().setblocking(False)

    def sendall(self, data: Any, _flags: int = 0) -> None:
        """Send what is taken now, and keep the rest."""
        sent = 0
        if not self.unsent:
            with contextlib.suppress(*NOT_YET):
                sent = self.send(data)
        if sent < len(data):
            self.unsent += (memoryview(data)[sent:],)

    def flush(self) -> bool:
        """Send of what is kept what is taken now; return whether anything was."""
        before = self.unsent
        with contextlib.suppress(*NOT_YET):
            while self.unsent:
                first, *rest = self.unsent
                sent = self.send(first)
                self.unsent = (first[sent:], *rest) if sent < len(first) else tuple(rest)
        return self.unsent is not before


class BufferedTlsSocket(BufferedSocket, ssl.SSLSocket):
    """The same over TLS."""
