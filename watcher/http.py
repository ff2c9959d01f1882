"""HTTP to providers: a session with credentials, certificates and bounds, and its failures in our words."""

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import ReadTimeoutError

from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.settings import ProviderSettings, without_credentials

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BODY_BYTES = 256 * 1024 * 1024
_MAX_IDLE_CONNECTIONS = 256  # all of a fetch's: what does not fit is closed after each query, with a line in the log
_CHUNK_BYTES = 64 * 1024
_HARMLESS_HEADERS = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}


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


def provider_error(provider: str, address: str, error: Exception) -> ProviderError:
    """Translate what requests, its JSON reader or a missed deadline raised. Never quotes credentials."""
    translated = _translate(f"{provider} at {without_credentials(address)}", error)
    credentials = urlsplit(address).netloc.rpartition("@")[0]
    if credentials and credentials in str(translated):
        return type(translated)(str(translated).replace(f"{credentials}@", "").replace(credentials, "********"))
    return translated


def _translate(where: str, error: Exception) -> ProviderError:
    match error:
        case ProviderError():
            return error
        case _TooLarge():
            return ProviderAnswerError(f"{where}: {error}")
        case requests.HTTPError() if error.response is not None:
            return _status_error(where, error.response)
        case requests.exceptions.SSLError():
            return ProviderUnavailable(
                f"{where}: its certificate is not trusted ({_root(error)}); set provider.ca_file"
            )
        case TimeoutError() | requests.Timeout():
            return ProviderUnavailable(f"{where}: no answer in time (watch.fetch_timeout_seconds)")
        case requests.JSONDecodeError():
            return ProviderAnswerError(f"{where}: the answer is not JSON; is provider.address right?")
        case requests.ConnectionError() if isinstance(_innermost(error), ReadTimeoutError | TimeoutError):
            return ProviderUnavailable(f"{where}: no answer in time (watch.fetch_timeout_seconds)")
        case requests.RequestException() | OSError():
            return ProviderUnavailable(f"{where} cannot be reached: {_root(error)} (provider.address)")
        case _:
            return ProviderAnswerError(f"{where}: the answer cannot be used: {type(error).__name__}: {error}")


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


class _TooLarge(requests.RequestException):
    """The body does not end where a body should."""


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
            raise _TooLarge(f"the answer is larger than {_MAX_BODY_BYTES // 1024**2} MiB")
    return b"".join(chunks)


def _status_error(where: str, response: requests.Response) -> ProviderError:
    reason = f"{response.status_code} {response.reason}"
    with contextlib.suppress(ValueError, AttributeError):
        body = response.json()
        said = body.get("error") or body.get("message") or body.get("errors")
        reason = f"{reason}: {_without_sent_secrets(str(said), response.request)[:300]}" if said else reason
    if response.status_code in {401, 403}:
        return ProviderRefused(f"{where} refuses the credentials: {reason} (provider.token)")
    if response.status_code == 404:
        return ProviderAnswerError(f"{where}: {reason}; is provider.address right?")
    if response.status_code in {408, 429} or response.status_code >= 500:
        return ProviderUnavailable(f"{where}: {reason}")
    return ProviderAnswerError(f"{where}: {reason}")


def _without_sent_secrets(text: str, request: requests.PreparedRequest) -> str:
    """Mask what a server repeats of the credentials that it was sent."""
    for name, value in request.headers.items():
        secret = str(value).rpartition(" ")[2]
        if name.lower() not in _HARMLESS_HEADERS and len(secret) > 3:
            text = text.replace(secret, "********")
    return text


def _root(error: BaseException) -> str:
    error = _innermost(error)
    return getattr(error, "strerror", None) or str(error)


def _innermost(error: BaseException) -> BaseException:
    """Return the innermost reason: requests wraps urllib3's, which wraps the system's."""
    while True:
        reason = getattr(error, "reason", None)
        inner = (
            reason
            if isinstance(reason, BaseException)
            else next((argument for argument in error.args if isinstance(argument, BaseException)), None)
        )
        if inner is None and isinstance(error.__cause__, OSError):
            inner = error.__cause__  # urllib3 puts the system's words into its own otherwise
        if inner is None:
            return error
        error = inner
