"""How connections are secured, with certificates that may be renewed while the service runs."""

import socket
import ssl

from watcher.errors import SettingsError
from watcher.server.reloading import Reloading
from watcher.server.sockets import BufferedTlsSocket
from watcher.settings import ServerSettings


class TlsContext:
    """How connections are secured; certificates are read anew when their files change."""

    def __init__(self, settings: ServerSettings) -> None:
        """Read the certificates.

        Raises:
            SettingsError: they cannot be used.
        """
        self._certificate = settings.certificate
        self._key = settings.key
        self._client_ca_file = settings.client_ca_file
        files = [file for file in (self._certificate, self._key, self._client_ca_file) if file is not None]
        try:
            self._context = Reloading(files, self._make)
        except ValueError as error:
            raise SettingsError([str(error)]) from error

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return a secured socket; its handshake happens as bytes come."""
        return self._context.get().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _make(self) -> ssl.SSLContext:
        assert self._certificate is not None  # noqa: S101  who has none does not come here
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as error:
            raise ValueError(f"server.certificate = {str(self._certificate)!r} with server.key: {error}") from error
        if self._client_ca_file is not None:
            try:
                context.load_verify_locations(self._client_ca_file)
            except OSError as error:
                raise ValueError(f"server.client_ca_file = {str(self._client_ca_file)!r}: {error}") from error
            # Probes have none. Whatever is not open is refused to them with a status.
            context.verify_mode = ssl.CERT_OPTIONAL
            # A session that is taken up again is not verified again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        context.options |= ssl.OP_NO_RENEGOTIATION  # what is sent would wait for what comes
        context.sslsocket_class = BufferedTlsSocket
        return context
