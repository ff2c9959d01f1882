"""The Kubernetes API: where it is, how to get in, lists of any length from it, and watches.

In a cluster the pod's service account is the way in and requests is all it takes. A kubeconfig is read by the official
package (:mod:`~runtime.kubernetes.kubeconfig`), but what it finds is used in our own session: one place then bounds
answers, ends late calls and tells failures apart, and a list of 5,000 nodes is not turned into the package's objects
first, which takes many times as long and as much memory.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import requests

from runtime import masking
from runtime.http import budget
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken, read_token
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession, UnexpectedResponse
from runtime.kubernetes.kubeconfig import KubeConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE = 500  # objects a request, as kubectl asks for
_KEPT_BYTES = 1024  # of an object, by those who read page after page
_GONE = 410
_HEAD_SECONDS = 30.0

#: What a request, a list or a watch raises that brings no answer, or one that is no use; a list that is late, too.
REQUEST_FAILURES = (requests.RequestException, OSError, InvalidApiServerConfig, UnusableToken)


@dataclass(frozen=True, slots=True)
class ApiServerConfig:
    """The way in; whatever is empty is looked for.

    Attributes:
        address: of the API server; else that of the kubeconfig, else that of the cluster that this pod is in.
        kube_config: a kubeconfig, which wins over the service account.
        context: one of its contexts; empty: its current one.
        token: sent as a bearer token; wins over one that is found.
        token_file: where to read the token instead, at every request.
        ca_file: the authorities to trust.
        verify: whether to verify the server's certificate at all.
        certificate: a PEM file that proves who we are, or its certificate and its key.
        headers: sent with every request.
        names: what its own options are called in errors, by the names that they have here.
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
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, option: str) -> str:
        """Return what an option is called in errors."""
        return self.names.get(option, option)


class ResourceExpired(requests.HTTPError):
    """What was asked to go on from is too old for the API server: list anew."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list: its items that are objects, and the version of the whole list, from which a watch goes on."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, whose object has a version alone.
        object: the object as it is then.
        resource_version: from which a watch goes on after this event.
    """

    type: str
    object: dict[str, Any]
    resource_version: str


class Sender(Protocol):
    """What those ask who only send requests: :class:`KubernetesApi` has it, and tests stand in for it."""

    def send(
        self, method: str, path: str, deadline: Deadline, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request and return the JSON that answers it."""
        ...


class KubernetesApi:
    """The API server. Safe to use from several threads.

    Attributes:
        address: where it is; a kubeconfig's is known once :meth:`connect` was called.
        found: how it was found, for people.
    """

    def __init__(self, access: ApiServerConfig) -> None:
        """Find the way in; nothing is contacted and no exec plugin is run yet.

        Raises:
            InvalidApiServerConfig: there is none, or it cannot be used as it is.
        """
        self._kube_config: KubeConfig | None = None
        self.address = access.address
        if access.kube_config is not None:
            file, options = access.kube_config.expanduser(), (access.name("kube_config"), access.name("context"))
            self._kube_config = KubeConfig(file, access.context, *options)
            self.found = f"kubeconfig {access.kube_config}" + (f", context {access.context}" if access.context else "")
        elif access.address:
            self.found = access.name("address").partition(" ")[0]
        else:
            access = _in_cluster_config(access)
            self.found, self.address = "the pod's service account", access.address
        self._access = access
        verify: bool | str = str(access.ca_file) if access.ca_file else True
        self._session = BoundedSession(
            self._authenticate,
            verify=verify if access.verify else False,
            certificate=access.certificate,
            headers=access.headers,
        )
        self._proxies: dict[str, str] = {}

    def connect(self) -> None:
        """Read the kubeconfig, if there is one; its exec plugin may take its time. Does nothing the next time.

        Raises:
            InvalidApiServerConfig: it cannot be used any more, or leads nowhere.
        """
        if self._kube_config is None:
            return
        found, access = self._kube_config.read(), self._access
        self.address = access.address or str(found.host).rstrip("/")
        if access.ca_file is None and access.verify:
            self._session.verify = (found.ssl_ca_cert or True) if found.verify_ssl else False
        if access.certificate is None:
            self._session.cert = (found.cert_file, found.key_file) if found.cert_file and found.key_file else None
        if found.tls_server_name:
            pools: Any = self._session.get_adapter("https://")
            pools.poolmanager.connection_pool_kw["server_hostname"] = found.tls_server_name
        # For each request: proxies of a session would give way to those of the environment.
        self._proxies = {"http": found.proxy, "https": found.proxy} if found.proxy else {}

    @property
    def is_verified(self) -> bool:
        """Whether the server's certificate is verified, as far as is known before :meth:`connect`."""
        return self._session.verify is not False

    def get(self, path: str, deadline: Deadline, **query: str | int) -> Any:
        """Return the JSON that a path answers with; see :meth:`send`."""
        return self.send("GET", path, deadline, query=query)

    def send(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str | int] | None = None,
    ) -> Any:
        """Send a request and return the JSON that answers it.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: behind the address.
            deadline: by when the whole answer has to be there.
            body: sent as JSON, where it is not None.
            content_type: of the body; of a patch, its kind: ``application/merge-patch+json`` and its like.
            query: what is empty is left out.

        Raises:
            requests.RequestException: no answer, one of status 400 or above (:class:`Expired` for 410), or no JSON.
            InvalidApiServerConfig: the kubeconfig cannot be used any more.
            UnusableToken: there is no token that could be sent.
        """
        seconds = max(0.1, deadline.remaining_seconds())
        options: dict[str, Any] = {"timeout": seconds}
        if body is not None:
            options |= {"data": orjson.dumps(body), "headers": {"Content-Type": content_type}}
        self.connect()
        with self._handle_refusal():
            response = self._session.request(
                method, self.address + path, **options, **self._request_options(query or {})
            )
            response.raise_for_status()
        return response.json()

    def pages(
        self, path: str, deadline: Deadline, *, page_seconds: float = math.inf, **query: str
    ) -> Iterator[ListPage]:
        """Yield a list page after page.

        Args:
            path: of the list.
            deadline: by when all pages have to be there.
            page_seconds: how long each may take.
            query: such as ``labelSelector``.

        Raises:
            requests.RequestException: as :meth:`send`. :class:`Expired`: the list changed too much between two pages:
                start over.
            UnexpectedResponse: the answer is no list.
            TimeoutError: the deadline passed between two pages.
        """
        query = {"limit": str(_PAGE), **query}
        position = ""
        while True:
            soon = Deadline.after(min(page_seconds, deadline.remaining_seconds()))
            page_budget = (budget.current() or budget.Budget(math.inf)).child()
            with budget.use_budget(page_budget):
                page = self.get(path, soon, **query, **{"continue": position})
            items = page.get("items", "none") if isinstance(page, dict) else "none"
            if not isinstance(items, list | None):
                raise UnexpectedResponse(f"{path} answers with no list")
            metadata = page.get("metadata")
            following = metadata.get("continue") if isinstance(metadata, dict) else None
            found = ListPage([item for item in items or () if isinstance(item, dict)], _version(page))
            del page, items
            yield found
            page_budget.release(keep_bytes=_KEPT_BYTES * len(found.items))
            if not isinstance(following, str) or not following:
                return
            if following == position or not deadline.remaining_seconds():
                raise TimeoutError(f"the list {path} does not come to an end")
            position = following

    def list_items(self, path: str, deadline: Deadline, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, asking for page after page; raises as :meth:`pages` does."""
        for page in self.pages(path, deadline, page_seconds=math.inf, **query):
            yield from page.items

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield what happens from a version of a list on, until the server ends it, as it does every now and then.

        Bookmarks are asked for: they tell, about once a minute, from where a watch could go on.

        Args:
            path: of the list.
            resource_version: that of the list, or of the last event.
            idle_seconds: nothing for so long, not even a bookmark, is a connection that broke without a word.
            query: such as ``labelSelector``.

        Raises:
            Expired: the version is too old; list anew.
            UnexpectedResponse: the answer is no watch, or the server says that it failed.
            requests.RequestException: it broke, was ended by :meth:`abort`, or nothing came for too long.
            InvalidApiServerConfig, UnusableToken: as :meth:`send`.
        """
        self.connect()
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        url, timeout = self.address + path, min(_HEAD_SECONDS, idle_seconds)
        with self._handle_refusal():
            for line in self._session.lines(
                url, idle_seconds=idle_seconds, timeout=timeout, **self._request_options(asked)
            ):
                yield _event(path, line)

    def display_address(self) -> str:
        """Return the address, or how it will be found, without credentials."""
        return masking.without_credentials(self.address) or self.found

    def abort(self) -> None:
        """End every request and watch that is under way."""
        self._session.abort()

    def close(self) -> None:
        """End every request and watch that is under way, and close the connections."""
        self._session.close()

    def sent_credentials(self, refusal: requests.HTTPError) -> bool:
        """Return whether the request that was refused carried a token or a client certificate."""
        return "Authorization" in refusal.response.request.headers or self._session.cert is not None

    def _request_options(self, query: Mapping[str, str | int]) -> dict[str, Any]:
        return {"params": {name: value for name, value in query.items() if value != ""}, "proxies": self._proxies}

    @contextlib.contextmanager
    def _handle_refusal(self) -> Iterator[None]:
        """Have the kubeconfig read anew after a refusal, and tell what is too old from other failures."""
        try:
            yield
        except requests.HTTPError as error:
            if error.response is None:
                raise
            if error.response.status_code == 401 and self._session.cert is not None:
                self._session.reconnect()  # a certificate that has expired stays that of its connection
            if self._kube_config is not None and (
                error.response.status_code == 401 or not self.sent_credentials(error)
            ):
                self._kube_config.forget()  # what it gave is not accepted any more; the next request reads it anew
            if error.response.status_code == _GONE:
                raise ResourceExpired(*error.args, request=error.request, response=error.response) from error
            raise

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        access = self._access
        token = access.token
        if access.token_file is not None:
            try:
                token = read_token(access.token_file)
            except UnusableToken as error:
                raise UnusableToken(f"{error} ({access.name('token_file')})") from None
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        elif self._kube_config is not None and (header := self._kube_config.token()):
            request.headers["Authorization"] = header


def default_kubeconfig() -> Path | None:
    """Return the kubeconfig that kubectl would use; none in a pod."""
    if SERVICE_ACCOUNT.exists():
        return None
    file = Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or "~/.kube/config").expanduser()
    return file if file.exists() else None


def _in_cluster_config(access: ApiServerConfig) -> ApiServerConfig:
    """Return the way in that a pod has, with its service account's token and CA where there are no others."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise InvalidApiServerConfig(
            f"there is no way to the Kubernetes API: this is no pod, so set {access.name('kube_config')}, for example "
            f"to ~/.kube/config, or {access.name('address')}"
        )
    found: dict[str, Any] = {}
    if not access.token and access.token_file is None and access.certificate is None:
        found["token_file"] = SERVICE_ACCOUNT / "token"
    if access.ca_file is None and access.verify:
        found["ca_file"] = SERVICE_ACCOUNT / "ca.crt"
    if not all(file.exists() for file in found.values()):
        raise InvalidApiServerConfig(
            f"the pod has no service account in {SERVICE_ACCOUNT}: remove automountServiceAccountToken: false from the "
            f"pod and its service account, or set {access.name('token_file')} and {access.name('ca_file')}"
        )
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return replace(access, address=f"https://{host}:{port}", **found)


def _event(path: str, line: bytes) -> WatchEvent:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise UnexpectedResponse(f"{path} answers with no watch") from None
    type_, object_ = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if not isinstance(type_, str) or not isinstance(object_, dict):
        raise UnexpectedResponse(f"{path} answers with no watch")
    if type_ == "ERROR":
        said = masking.to_line(object_.get("message"), 300)
        if object_.get("code") == _GONE:
            raise ResourceExpired(said)
        raise UnexpectedResponse(f"the watch of {path} failed: {said}")
    return WatchEvent(type_, object_, _version(object_))


def _version(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
