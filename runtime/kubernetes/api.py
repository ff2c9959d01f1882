"""Client of the Kubernetes API: credentials, requests, lists in pages, and watches.

In a cluster the client authenticates with the pod's service account and needs only ``requests``. The official package
(:mod:`~runtime.kubernetes.kubeconfig`) reads a kubeconfig, but requests go through the project's own session. So there
is one place that limits responses, cancels late calls and classifies failures. It also avoids converting a list of
5,000 nodes to the package's objects, which takes many times as much time and memory.
"""

import contextlib
import math
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import requests
from urllib3.util.ssl_ import create_urllib3_context

from runtime import masking
from runtime.http import budget
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken, read_token
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession, UnexpectedResponse
from runtime.kubernetes.kubeconfig import KubeConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE_SIZE = 500  # objects per request, as in kubectl
_KEPT_BYTES_PER_OBJECT = 1024  # estimate of what callers keep of an object after they processed its page
_GONE = 410
_HEAD_SECONDS = 30.0

#: Exceptions of a request, a list or a watch that failed, got an unusable response, or missed its deadline.
REQUEST_FAILURES = (requests.RequestException, OSError, InvalidApiServerConfig, UnusableToken)


@dataclass(frozen=True, slots=True)
class ApiServerConfig:
    """Address and credentials of an API server. Empty values are filled from a kubeconfig or the service account.

    Attributes:
        address: URL of the API server; empty for that of the kubeconfig, or of the cluster in which this pod runs.
        kube_config: a kubeconfig, which takes precedence over the service account.
        context: name of a context of the kubeconfig; empty: its current context.
        token: bearer token, which takes precedence over that of the kubeconfig or service account.
        token_file: file to read the token from at every request, instead of ``token``.
        ca_file: trusted CA certificates.
        verify: whether to verify the server's certificate.
        certificate: PEM file of the client certificate and its key, or both files.
        headers: headers of every request.
        option_names: the user's names of these attributes, such as settings or flags, for error messages.
    """

    address: str = ""
    kube_config: Path | None = None
    context: str = ""
    token: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    verify: bool = True
    certificate: str | tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    option_names: Mapping[str, str] = field(default_factory=dict)

    def option_name(self, option: str) -> str:
        """Return an attribute's name for error messages."""
        return self.option_names.get(option, option)

    def alternative(self, *options: str) -> str:
        """Return the end of a message that names attributes to set instead; empty if the user cannot set them."""
        names = [self.option_names[each] for each in options if each in self.option_names]
        return f", or set {' and '.join(names)}" if names else ""


class ResourceExpired(requests.HTTPError):
    """The resource version or list position is too old for the API server: list again."""


class KindNotServed(ResourceExpired):
    """The API server does not serve this kind of object at present: try to list the objects again later."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """Page of a list: its objects, and the resource version of the whole list, from which a watch can start."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Event of a watch.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, whose object has a resource version only.
        object: the object after the event.
        resource_version: version from which a watch can continue after this event.
    """

    type: str
    object: dict[str, Any]
    resource_version: str


class Sender(Protocol):
    """Write-only part of :class:`KubernetesApi`, as a Protocol that tests can fake."""

    def send(
        self, method: str, path: str, deadline: Deadline, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request and return the JSON of the response."""
        ...


class KubernetesApi:
    """Client of one API server. Thread-safe.

    Attributes:
        address: URL of the API server; with a kubeconfig, known after :meth:`connect`.
        source: readable source of the address, such as a kubeconfig or a setting.
    """

    def __init__(self, config: ApiServerConfig) -> None:
        """Choose the address and credentials, without sending a request or running an exec plugin.

        Raises:
            InvalidApiServerConfig: there are no usable address and credentials.
        """
        self._kube_config: KubeConfig | None = None
        self.address = config.address
        if config.kube_config is not None:
            options = config.option_name("kube_config"), config.option_name("context")
            self._kube_config = KubeConfig(config.kube_config.expanduser(), config.context, *options)
            self.source = f"kubeconfig {config.kube_config}" + (f", context {config.context}" if config.context else "")
        elif config.address:
            self.source = config.option_name("address").partition(" ")[0]
        else:
            config = _in_cluster_config(config)
            self.source, self.address = "the pod's service account", config.address
        self._config = config
        verify: bool | str = str(config.ca_file) if config.ca_file else True
        self._session = BoundedSession(
            self._authenticate,
            verify=verify if config.verify else False,
            certificate=config.certificate,
            headers=config.headers,
        )
        self._proxies: dict[str, str] = {}

    def connect(self) -> None:
        """Read the kubeconfig, if there is one; this may run an exec plugin. Later calls do nothing.

        Raises:
            InvalidApiServerConfig: the kubeconfig has become invalid.
        """
        if self._kube_config is None:
            return
        kubeconfig, config = self._kube_config.read(), self._config
        self.address = config.address or str(kubeconfig.host).rstrip("/")
        if config.ca_file is None and config.verify:
            self._session.verify = (kubeconfig.ssl_ca_cert or True) if kubeconfig.verify_ssl else False
        if config.certificate is None:
            files = kubeconfig.cert_file, kubeconfig.key_file
            self._session.cert = files if all(files) else None
        if kubeconfig.tls_server_name:
            pools: Any = self._session.get_adapter("https://")
            pools.poolmanager.connection_pool_kw["server_hostname"] = kubeconfig.tls_server_name
        # Passed with each request, because the environment's proxies would override those of a session.
        self._proxies = {"http": kubeconfig.proxy, "https": kubeconfig.proxy} if kubeconfig.proxy else {}

    @property
    def is_verified(self) -> bool:
        """Return whether the server's certificate is verified. Considers the kubeconfig only after :meth:`connect`."""
        return self._session.verify is not False

    def get(self, path: str, deadline: Deadline, *, accept: str = "", **query: str | int) -> Any:
        """Send a GET request and return the JSON of the response; ``accept`` as for :meth:`pages`; see :meth:`send`."""
        return self._respond("GET", path, deadline, query, headers=_accepting(accept)).json()

    def read(self, path: str, deadline: Deadline, **query: str | int) -> bytes:
        """Send a GET request and return the body of the response, for callers with a decoder; raises as :meth:`send`.

        A decoder for the needed fields takes a fraction of the memory of all JSON objects of a long list.
        """
        return self._respond("GET", path, deadline, query).content

    def send(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str | int] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the response.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: path below the address.
            deadline: deadline for the whole response.
            body: object to send as JSON; None for no body.
            content_type: type of the body; for a patch, the kind of patch, such as ``application/merge-patch+json``.
            query: parameters of the query; empty values are left out.

        Raises:
            requests.RequestException: there is no response, it is not JSON, or its status is 400 or above
                (:class:`ResourceExpired` for 410).
            InvalidApiServerConfig: the kubeconfig has become invalid.
            UnusableToken: the token cannot be read or sent.
        """
        options: dict[str, Any] = {}
        if body is not None:
            options |= {"data": orjson.dumps(body), "headers": {"Content-Type": content_type}}
        return self._respond(method, path, deadline, query or {}, **options).json()

    def pages(
        self, path: str, deadline: Deadline, *, page_seconds: float = math.inf, accept: str = "", **query: str
    ) -> Iterator[ListPage]:
        """Yield a list page by page.

        Args:
            path: path of the list.
            deadline: deadline for all pages.
            page_seconds: maximum seconds per page.
            accept: value of the Accept header, for example to get metadata only; empty for whole objects.
            query: parameters such as ``labelSelector``.

        Raises:
            requests.RequestException: as :meth:`send`. :class:`ResourceExpired` means that the list changed too much
                between two pages and must be started again.
            UnexpectedResponse: the response is not a list.
            TimeoutError: the deadline passed between two pages.
        """
        query = {"limit": str(_PAGE_SIZE), **query}
        position = ""
        while True:
            # Each page has its own budget of memory: most of it is free again once the caller has processed the page.
            page_deadline = Deadline.after(min(page_seconds, deadline.remaining_seconds()))
            page_budget = (budget.current() or budget.Budget(math.inf)).child()
            with budget.use_budget(page_budget):
                page = self.get(path, page_deadline, accept=accept, **query, **{"continue": position})
            items = page.get("items", "none") if isinstance(page, dict) else "none"
            if not isinstance(items, list | None):
                raise UnexpectedResponse(f"the response of {path} is not a list")
            metadata = page.get("metadata")
            following = metadata.get("continue") if isinstance(metadata, dict) else None
            list_page = ListPage([item for item in items or () if isinstance(item, dict)], _version(page))
            del page, items  # frees the memory while the caller processes the page
            yield list_page
            page_budget.release(keep_bytes=_KEPT_BYTES_PER_OBJECT * len(list_page.items))
            if not isinstance(following, str) or not following:
                return
            if following == position or not deadline.remaining_seconds():
                raise TimeoutError(f"the list {path} was not complete at the deadline, or repeats a page")
            position = following

    def list_items(self, path: str, deadline: Deadline, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; raises as :meth:`pages` does."""
        for page in self.pages(path, deadline, page_seconds=math.inf, **query):
            yield from page.items

    def watch(
        self, path: str, resource_version: str, idle_seconds: float, *, accept: str = "", **query: str
    ) -> Iterator[WatchEvent]:
        """Yield the events since a resource version, until the server ends the watch, which it does from time to time.

        The watch requests bookmarks: about once a minute the server sends a version from which a watch can continue.

        Args:
            path: path of the list.
            resource_version: version of the list or of the last event.
            idle_seconds: maximum time without an event or bookmark; after it the connection counts as broken.
            accept: value of the Accept header, as for :meth:`pages`.
            query: parameters such as ``labelSelector``.

        Raises:
            ResourceExpired: the version is too old: list again.
            UnexpectedResponse: the response is not a watch, or the server reports an error.
            requests.RequestException: the connection broke or was idle for too long, or :meth:`abort` was called.
            InvalidApiServerConfig, UnusableToken: as :meth:`send`.
        """
        self.connect()
        parameters = {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        url, timeout = self.address + path, min(_HEAD_SECONDS, idle_seconds)
        with self._handle_refusal():
            for line in self._session.lines(
                url,
                idle_seconds=idle_seconds,
                timeout=timeout,
                headers=_accepting(accept),
                **self._request_options(parameters),
            ):
                yield _event(path, line)

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request, with the current token.

        Raises:
            UnusableToken: the token cannot be read or sent.
        """
        authorization = self._authorization()
        return {**self._config.headers, **({"Authorization": authorization} if authorization else {})}

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS settings of this client, for connections besides its session. Call :meth:`connect` first."""
        context = create_urllib3_context()
        verify, certificate = self._session.verify, self._session.cert
        if verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = True
            context.load_verify_locations(verify if isinstance(verify, str) else requests.utils.DEFAULT_CA_BUNDLE_PATH)
        if certificate:
            context.load_cert_chain(*((certificate,) if isinstance(certificate, str) else certificate))
        return context

    @property
    def tls_server_name(self) -> str:
        """Name that the server's certificate must have, from the kubeconfig; empty for the address's host."""
        pools: Any = self._session.get_adapter("https://")
        return str(pools.poolmanager.connection_pool_kw.get("server_hostname") or "")

    @property
    def is_proxied(self) -> bool:
        """Return whether requests go through a proxy of the kubeconfig or the environment."""
        return bool(self._proxies or requests.utils.select_proxy(self.address, _environment_proxies(self.address)))

    def forget_credentials(self) -> None:
        """Read the kubeconfig again before the next request, for example after the status 401."""
        if self._kube_config is not None:
            self._kube_config.forget()

    def display_address(self) -> str:
        """Return the address without credentials; if it is not known yet, its source."""
        return masking.without_credentials(self.address) or self.source

    def abort(self) -> None:
        """Cancel all current requests and watches."""
        self._session.abort()

    def close(self) -> None:
        """Cancel all current requests and watches, and close the connections."""
        self._session.close()

    def sent_credentials(self, refusal: requests.HTTPError) -> bool:
        """Return whether a rejected request had a token or a client certificate."""
        return "Authorization" in refusal.response.request.headers or self._session.cert is not None

    def _respond(
        self, method: str, path: str, deadline: Deadline, query: Mapping[str, str | int], **options: Any
    ) -> requests.Response:
        """Send a request and return the response; raises as :meth:`send`."""
        seconds = max(0.1, deadline.remaining_seconds())
        self.connect()
        with self._handle_refusal():
            response = self._session.request(
                method, self.address + path, timeout=seconds, **options, **self._request_options(query)
            )
            response.raise_for_status()
        return response

    def _request_options(self, query: Mapping[str, str | int]) -> dict[str, Any]:
        return {"params": {name: value for name, value in query.items() if value != ""}, "proxies": self._proxies}

    @contextlib.contextmanager
    def _handle_refusal(self) -> Iterator[None]:
        """Read the kubeconfig again after a rejection, and raise ResourceExpired for status 410."""
        try:
            yield
        except requests.HTTPError as error:
            if error.response is None:
                raise
            if error.response.status_code == 401 and self._session.cert is not None:
                self._session.reconnect()  # an open connection keeps its client certificate, which may have expired
            if self._kube_config is not None and (
                error.response.status_code == 401 or not self.sent_credentials(error)
            ):
                self._kube_config.forget()  # its credentials were rejected: read them again for the next request
            if error.response.status_code == _GONE:
                raise ResourceExpired(*error.args, request=error.request, response=error.response) from error
            raise

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        authorization = self._authorization()
        if authorization:
            request.headers["Authorization"] = authorization

    def _authorization(self) -> str:
        """Return the Authorization header of a request; empty if there is no token."""
        config = self._config
        token = config.token
        if config.token_file is not None:
            try:
                token = read_token(config.token_file)
            except UnusableToken as error:
                raise UnusableToken(f"{error} ({config.option_name('token_file')})") from None
        if token:
            return f"Bearer {token}"
        return "" if self._kube_config is None else self._kube_config.token()


def _environment_proxies(address: str) -> dict[str, str]:
    return dict(requests.utils.get_environ_proxies(address))


def _accepting(form: str) -> dict[str, str]:
    return {"Accept": form} if form else {}


def default_kubeconfig() -> Path | None:
    """Return the kubeconfig that kubectl would use; None in a pod or without such a file.

    Raises:
        InvalidApiServerConfig: the environment variable KUBECONFIG names missing files only.
    """
    if SERVICE_ACCOUNT.exists():
        return None
    files = [Path(name).expanduser() for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    file = next((each for each in files or [Path("~/.kube/config").expanduser()] if each.exists()), None)
    if files and file is None:
        raise InvalidApiServerConfig(f"KUBECONFIG names {files[0]}, which does not exist: correct or unset KUBECONFIG")
    return file


def pod_namespace() -> str:
    """Return the namespace of this pod, from its service account; empty outside of a pod."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _in_cluster_config(config: ApiServerConfig) -> ApiServerConfig:
    """Return the address of the pod's cluster, with the service account's token and CA certificate by default."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise InvalidApiServerConfig(
            f"no Kubernetes API server is known outside of a pod: set {config.option_name('kube_config')}, for example "
            f"to ~/.kube/config{config.alternative('address')}"
        )
    defaults: dict[str, Any] = {}
    if not config.token and config.token_file is None and config.certificate is None:
        defaults["token_file"] = SERVICE_ACCOUNT / "token"
    if config.ca_file is None and config.verify:
        defaults["ca_file"] = SERVICE_ACCOUNT / "ca.crt"
    if not all(file.exists() for file in defaults.values()):
        raise InvalidApiServerConfig(
            f"the pod has no service account in {SERVICE_ACCOUNT}: remove automountServiceAccountToken: false from the "
            f"pod and its service account{config.alternative('token_file', 'ca_file')}"
        )
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return replace(config, address=f"https://{host}:{port}", **defaults)


def _event(path: str, line: bytes) -> WatchEvent:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise UnexpectedResponse(f"the response of {path} is not a stream of watch events") from None
    type_, object_ = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if not isinstance(type_, str) or not isinstance(object_, dict):
        raise UnexpectedResponse(f"the response of {path} is not a stream of watch events")
    if type_ == "ERROR":
        message = masking.to_line(object_.get("message"), 300)
        if object_.get("code") == _GONE:
            raise ResourceExpired(message)
        raise UnexpectedResponse(f"the watch of {path} failed: {message}")
    return WatchEvent(type_, object_, _version(object_))


def _version(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
