"""TLS for a server, with certificates that can be renewed while it runs."""

import socket
import ssl
from pathlib import Path

from runtime.errors import SettingsError
from runtime.server.reloading import ReloadingValue


class TlsContext:
    """TLS settings of a server. Certificates are read again when their files change."""

    def __init__(
        self, certificate: Path, key: Path | None = None, client_ca_file: Path | None = None, *, section: str = "server"
    ) -> None:
        """Read the certificates.

        Args:
            certificate: PEM file with the server's certificate.
            key: file with the certificate's private key; None if ``certificate`` holds it.
            client_ca_file: CA certificates to verify clients' certificates. Clients without a certificate can connect.
            section: section of the settings that errors name.

        Raises:
            SettingsError: a file cannot be used.
        """
        self._certificate = certificate
        self._key = key
        self._client_ca_file = client_ca_file
        self._section = section
        try:
            self._context = ReloadingValue(
                [file for file in (certificate, key, client_ca_file) if file is not None], self._make
            )
        except ValueError as error:
            raise SettingsError([str(error)]) from error

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return a TLS socket for an accepted connection. The handshake happens while data is read and written."""
        return self._context.get().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _make(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as error:
            names = f"{self._section}.certificate = {str(self._certificate)!r} with {self._section}.key"
            raise ValueError(f"{names}: {error}") from error
        if self._client_ca_file is not None:
            try:
                context.load_verify_locations(self._client_ca_file)
            except OSError as error:
                raise ValueError(f"{self._section}.client_ca_file = {str(self._client_ca_file)!r}: {error}") from error
            # Optional, as Kubernetes' probes send no certificate: AccessCheck refuses such requests on other routes.
            context.verify_mode = ssl.CERT_OPTIONAL
            # A resumed session would skip the verification of the client's certificate.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        context.options |= ssl.OP_NO_RENEGOTIATION  # in a renegotiation, sending has to wait for received data
        return context
