"""Checks of the connection to an address: name, port and certificate."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import SplitResult

import requests

from watcher.providers.base import Check
from watcher.settings import ProviderSettings, without_credentials

_CONNECT_SECONDS = 5.0
_NO_TLS = {
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNEXPECTED_EOF_WHILE_READING",
}  # OpenSSL's errors at a port without TLS


def examine_address(address: SplitResult, settings: ProviderSettings) -> Iterator[Check]:
    """Yield steps for DNS, TCP and TLS, or for the connection to a proxy; stop after a failed step."""
    proxy = requests.utils.select_proxy(address.geturl(), requests.utils.get_environ_proxies(address.geturl()))
    if proxy:
        yield Check("proxy", ok=True, message=f"requests go through {without_credentials(proxy)}")
        return
    host, port = _host_and_port(address)
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield Check("DNS", ok=False, message=f"{host}: {error.strerror or error}", setting="provider.address")
        return
    yield Check("DNS", ok=True, message=f"{host} is {', '.join(sorted(addresses))}")
    try:
        connection = socket.create_connection((host, port), _CONNECT_SECONDS)
    except OSError as error:
        message = f"{host} port {port}: {error.strerror or error}"
        yield Check("TCP", ok=False, message=message, setting="provider.address")
        return
    with connection:
        yield Check("TCP", ok=True, message=f"{host} port {port} accepts connections")
        if address.scheme == "https":
            yield _examine_tls(connection, host, port, settings)


def expects_tls(address: SplitResult) -> bool:
    """Return whether a port with an http:// address speaks TLS."""
    if address.scheme != "http":
        return False
    host, port = _host_and_port(address)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), _CONNECT_SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        return True
    return False


def _examine_tls(connection: socket.socket, host: str, port: int, settings: ProviderSettings) -> Check:
    try:
        context = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
        if settings.client_certificate is not None:
            context.load_cert_chain(settings.client_certificate, settings.client_key)
        if settings.insecure_skip_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(connection, server_hostname=host) as secured:
            trust = "not verified (insecure_skip_verify)" if settings.insecure_skip_verify else "trusted"
            return Check("TLS", ok=True, message=f"{secured.version()}, the certificate is {trust}")
    except ssl.SSLCertVerificationError as error:
        return Check("TLS", ok=False, message=f"{host}: {error.verify_message}", setting="provider.ca_file")
    except (OSError, ValueError) as error:
        message = f"{host}: {error}"
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            message = f"{host} port {port} does not speak TLS: should the address begin with http:// instead?"
        return Check("TLS", ok=False, message=message, setting="provider.address")


def _host_and_port(address: SplitResult) -> tuple[str, int]:
    return address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
