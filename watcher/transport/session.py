"""HTTP to providers: a session with credentials, certificates and bounds."""

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError as TransportError

from watcher.errors import ProviderAnswerError, ProviderRefused
from watcher.settings import ProviderSettings, without_credentials
from watcher.transport.failures import TooLarge

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BODY_BYTES = 256 * 1024 * 1024
_MAX_IDLE_CONNECTIONS = 256  # all of a fetch's: what does not fit is closed after each query, with a line in the log
_CHUNK_BYTES = 64 * 1024


class ProviderSession(requests.Session):
    """A session to one provider.

    Differs from requests' own in what a service that must not hang needs: :meth:`abort` ends calls that are under
    way, bodies are bounded, statuses of 400 and above raise, and neither ``.netrc`` nor REQUESTS_CA_BUNDLE overrides
    the settings.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        authenticate: Callable[[requests.PreparedRequest], None],
        inspect: Callable[[requests.Response], None] | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            settings: credentials, certificates and headers.
            authenticate: sets the credentials of each request.
            inspect: sees each whole answer, in the thread that asked for it.
        """
        super().__init__()
        self._inspect = inspect
        self.verify = _verification(settings)
        self.auth = _Authentication(authenticate)
        if settings.client_certificate is not None:
            certificate, key = str(settings.client_certificate), settings.client_key
            self.cert = certificate if key is None else (certificate, str(key))
        self.headers["Accept-Encoding"] = "gzip"
        self.headers.update({name: value.get_secret_value() for name, value in settings.headers.items()})
        self._adapter = _AbortableAdapter(pool_maxsize=_MAX_IDLE_CONNECTIONS)
        self.use_for("http://")
        self.use_for("https://")

    def use_for(self, prefix: str) -> None:
        """Send requests to this prefix through our adapter, also after a library has mounted its own."""
        self.mount(prefix, self._adapter)

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request; its answer has a status below 400 and a whole body."""
        options["verify"] = self.verify
        return super().request(*args, **options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request; an answer of 400 and above raises."""
        response = super().send(request, **options)
        response.raise_for_status()
        if self._inspect is not None:
            self._inspect(response)
        return response

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Refuse to follow a redirect to another host: tokens and headers are for this one.

        Raises:
            ProviderAnswerError: the redirect leaves the host, as those of login pages do.
        """
        here, there = response.request.url or "", prepared_request.url or ""
        leaves: bool = self.should_strip_auth(here, there)  # type: ignore[no-untyped-call]
        if leaves:
            shown, target = without_credentials(here), without_credentials(there)
            raise ProviderAnswerError(f"{shown} redirects to {target[:200]}: is provider.address right?")

    def abort(self) -> None:
        """End every call that is under way, at once."""
        self._adapter.abort()


def read_token(settings: ProviderSettings) -> str:
    """Return the token to use now: the file's, the settings', or the pod's own on OpenShift; empty when there is none.

    Raises:
        ProviderRefused: the token's file cannot be read.
    """
    file, setting = settings.token_file, "provider.token_file"
    if file is None and settings.token is None and settings.openshift_auth:
        file, setting = SERVICE_ACCOUNT / "token", "provider.openshift_auth"
    if file is None:
        return settings.token.get_secret_value() if settings.token else ""
    try:
        return file.read_text(encoding="utf-8").strip()  # every time: tokens are rotated
    except (OSError, UnicodeDecodeError) as error:
        raise ProviderRefused(f"the token file {file} cannot be read: {error} ({setting})") from error


def bearer(settings: ProviderSettings) -> Callable[[requests.PreparedRequest], None]:
    """Return what sets the Authorization header of a request, if there is a token."""

    def authenticate(request: requests.PreparedRequest) -> None:
        token = read_token(settings)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"

    return authenticate


class _Authentication(requests.auth.AuthBase):
    # Always set, even to do nothing: requests would otherwise look into .netrc. The address' own credentials, which
    # requests would then leave out, are sent where there are no others.
    def __init__(self, authenticate: Callable[[requests.PreparedRequest], None]) -> None:
        self._authenticate = authenticate

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        self._authenticate(request)
        user, password = requests.utils.get_auth_from_url(request.url or "")
        if user and "Authorization" not in request.headers:
            requests.auth.HTTPBasicAuth(user, password)(request)
        return request


class _Answer(requests.Response):
    """An answer whose JSON is read by orjson, several times as fast, and by the more tolerant json if that fails."""

    def json(self, **options: Any) -> Any:
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:  # NaN, say, which is no JSON: whoever judges the values drops it
            return super().json(**options)


class _AbortableAdapter(HTTPAdapter):
    """Reads whole bodies within bounds, and remembers its sockets, so that a call can be ended from another thread.

    A read timeout does not end a server that sends one byte a second: each byte starts it anew.
    """

    def __init__(self, **options: Any) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._aborts = 0
        self._call = threading.local()
        super().__init__(**options)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._remembering_pools()

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._remembering_pools()
        return manager

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        response = super().build_response(req, resp)
        response.__class__ = _Answer  # requests offers no other way to choose it
        return response

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        self._call.aborts = self._aborts
        response = super().send(request, *args, **options)
        try:
            # As if requests had read it; it would read without bounds, a redirect's body too.
            response._content = _read_bounded(response)  # noqa: SLF001
        except TransportError as error:
            raise requests.ConnectionError(error, request=request) from error
        finally:
            response.close()
        return response

    def abort(self) -> None:
        with self._lock:
            self._aborts += 1
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):  # closed already
                each.shutdown(socket.SHUT_RDWR)

    def _remembering_pools(self) -> dict[str, type[HTTPConnectionPool]]:
        remember = self._remember

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                remember(self.sock)

        class SecureConnection(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                remember(self.sock)

        return {
            "http": type("Pool", (HTTPConnectionPool,), {"ConnectionCls": Connection}),
            "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": SecureConnection}),
        }

    def _remember(self, sock: socket.socket | None) -> None:
        if sock is None:
            return
        with self._lock:
            self._sockets.add(sock)
            aborted = self._call.aborts != self._aborts
        if aborted:  # while it connected
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _verification(settings: ProviderSettings) -> bool | str:
    if settings.insecure_skip_verify:
        return False
    if settings.ca_file is not None:
        return str(settings.ca_file)
    if settings.openshift_auth:
        return str(next(filter(Path.exists, (SERVICE_ACCOUNT / "service-ca.crt",)), SERVICE_ACCOUNT / "ca.crt"))
    return True


def _read_bounded(response: requests.Response) -> bytes:
    chunks, size = [], 0
    for chunk in response.iter_content(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            raise TooLarge(f"the answer is larger than {_MAX_BODY_BYTES // 1024**2} MiB")
    return b"".join(chunks)
