"""The Kubernetes API: where it is, how to get in, and lists of any length from it.

In a cluster the pod's service account is the way in and requests is all it takes. A kubeconfig is read by the official
``kubernetes`` package, which knows exec plugins, client certificates and contexts, but what it finds is used in our own
session: one place then bounds answers, ends late calls and translates failures, and a list of 5,000 nodes is not turned
into the package's objects first, which takes many times as long and as much memory.
"""

import os
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import requests
import yaml

from watcher.errors import ProviderAnswerError, ProviderRefused, SettingsError
from watcher.settings import ProviderSettings, without_credentials
from watcher.transport import session
from watcher.transport.gather import Deadline

_PAGE = 500  # objects a request, as kubectl asks for
_NO_WAY_IN = (
    "there is no way to the Kubernetes API: this is no pod, so set provider.kube_config (KUBE_CONFIG), for example to "
    "~/.kube/config, or provider.address (METRICS_PROVIDER_ADDRESS)"
)
_NO_ACCOUNT = (
    "the pod has no service account in {}: remove automountServiceAccountToken: false from the pod and its service "
    "account, or set provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE) and provider.ca_file "
    "(TRIMARAN_PROVIDER__CA_FILE)"
)
_NO_PACKAGE = (
    "provider.kube_config (KUBE_CONFIG) needs the package kubernetes: pip install kubernetes; in a "
    "cluster, leave it unset"
)


class KubernetesApi:
    """Sends GET requests to the API server.

    Attributes:
        address: where it is; a kubeconfig's is known once :meth:`connect` was called.
        found: how it was found, for people.
    """

    def __init__(self, name: str, settings: ProviderSettings, context: str = "") -> None:
        """Find the way in; nothing is contacted and no exec plugin is run yet.

        Args:
            name: who asks, for messages.
            settings: ``kube_config`` wins; then ``address``; then the pod's service account. Tokens and certificates
                in the settings win over those found with the address.
            context: the kubeconfig's context; empty: its current one.

        Raises:
            SettingsError: there is no way in, or it cannot be used as it is.
        """
        self._name = name
        self._kube_config: _KubeConfig | None = None
        if settings.kube_config is not None:
            self._kube_config = _KubeConfig(settings.kube_config.expanduser(), context)
            self.found = f"kubeconfig {settings.kube_config}" + (f", context {context}" if context else "")
            self.address = settings.address or ""
        elif settings.address is not None:
            self.found, self.address = "provider.address", settings.address
        elif os.environ.get("KUBERNETES_SERVICE_HOST"):
            self.found, self.address = "the pod's service account", _service_address()
            settings = _with_service_account(settings)
        else:
            raise SettingsError([_NO_WAY_IN])
        self._settings = settings
        self._session = session.ProviderSession(settings, self._authenticate)
        self._proxies: dict[str, str] = {}

    def connect(self) -> None:
        """Read the kubeconfig, if there is one; its exec plugin may take its time. Does nothing the next time.

        Raises:
            ProviderError: it cannot be used any more, or leads nowhere.
        """
        if self._kube_config is None:
            return
        found = self._kube_config.read()
        self.address = self._settings.address or str(found.host).rstrip("/")
        if self._settings.ca_file is None and not self._settings.insecure_skip_verify:
            self._session.verify = (found.ssl_ca_cert or True) if found.verify_ssl else False
        if self._settings.client_certificate is None:
            self._session.cert = (found.cert_file, found.key_file) if found.cert_file and found.key_file else None
        if found.tls_server_name:
            pools: Any = self._session.get_adapter("https://")
            pools.poolmanager.connection_pool_kw["server_hostname"] = found.tls_server_name
        # For each request: proxies of a session would give way to those of the environment.
        self._proxies = {"http": found.proxy, "https": found.proxy} if found.proxy else {}

    def get(self, path: str, deadline: Deadline, **query: str | int) -> Any:
        """Return the JSON that a path answers with.

        Raises:
            requests.RequestException: no answer, one of status 400 or above, or no JSON.
            ProviderError: the token or the kubeconfig cannot be read.
        """
        self.connect()
        wanted = {name: value for name, value in query.items() if value != ""}
        timeout = max(0.1, deadline.remaining_seconds())
        try:
            response = self._session.get(self.address + path, params=wanted, timeout=timeout, proxies=self._proxies)
        except requests.HTTPError as error:
            if self._kube_config is not None and (error.response.status_code == 401 or not self.identified(error)):
                self._kube_config.forget()  # what it gave is not accepted any more; the next request reads it anew
            raise
        try:
            return orjson.loads(response.content)
        except orjson.JSONDecodeError as error:
            raise requests.JSONDecodeError(error.msg, error.doc, error.pos) from None

    def list_items(self, path: str, deadline: Deadline, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, asking for page after page; those that are no objects are left out.

        Raises:
            requests.RequestException: as :meth:`get`. Status 410 says that the list changed too much between two pages:
                start over, with ``limit=""``.
            ProviderAnswerError: the answer is no list.
            TimeoutError: the deadline passed between two pages.
        """
        query = {"limit": str(_PAGE), **query}
        position = ""
        while True:
            page = self.get(path, deadline, **query, **{"continue": position})
            items = page.get("items", "none") if isinstance(page, dict) else "none"
            if not isinstance(items, list | None):
                where = f"{self._name} at {self.shown_address()}"
                raise ProviderAnswerError(f"{where}: {path} answers with no list; is provider.address right?")
            yield from (item for item in items or () if isinstance(item, dict))
            metadata = page.get("metadata")
            following = metadata.get("continue") if isinstance(metadata, dict) else None
            if not isinstance(following, str) or not following:
                return
            if following == position or not deadline.remaining_seconds():
                raise TimeoutError(f"the list {path} does not come to an end")
            position = following

    def shown_address(self) -> str:
        """Return the address, or how it will be found, without credentials."""
        return without_credentials(self.address) or self.found

    def abort(self) -> None:
        """End every request that is under way."""
        self._session.abort()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def identified(self, refusal: requests.HTTPError) -> bool:
        """Return whether the request that was refused carried a token or a client certificate."""
        return "Authorization" in refusal.response.request.headers or self._session.cert is not None

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        token = session.read_token(self._settings)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        elif self._kube_config is not None and self._kube_config.token():
            request.headers["Authorization"] = self._kube_config.token()


class _KubeConfig:
    """A kubeconfig, read by the official package. Safe to use from several threads."""

    def __init__(self, file: Path, context: str) -> None:
        self._file, self._context = file, context or None
        self._configuration: Any = None
        self._lock = threading.Lock()
        problem = _problem(file, context)
        if problem:
            raise SettingsError([problem])

    def read(self) -> Any:
        """Return the package's configuration, with credentials that are valid now."""
        from kubernetes import client, config  # noqa: PLC0415  an extra: only kubeconfigs need it

        with self._lock:
            if self._configuration is None:
                found = client.Configuration()
                try:
                    config.load_kube_config(  # type: ignore[no-untyped-call]
                        str(self._file), context=self._context, client_configuration=found, persist_config=False
                    )
                except Exception as error:  # the package raises whatever its parts do
                    raise ProviderAnswerError(f"{self._file} cannot be used: {error} (provider.kube_config)") from error
                self._configuration = found
            return self._configuration

    def token(self) -> str:
        """Return the value of the Authorization header; the package runs an exec plugin anew when it has expired."""
        configuration = self.read()
        with self._lock:
            if not {"BearerToken", "authorization"} & configuration.api_key.keys():
                return ""
            try:
                header = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            except Exception as error:
                raise ProviderRefused(f"{self._file} gives no new token: {error} (provider.kube_config)") from error
            return str(header or "")

    def forget(self) -> None:
        """Read the file anew next time: certificates of exec plugins and token files are renewed without notice."""
        with self._lock:
            self._configuration = None


def _problem(file: Path, context: str) -> str:
    """Return why the kubeconfig cannot be used, or nothing, without running its plugins."""
    where = "provider.kube_config (KUBE_CONFIG)"
    if find_spec("kubernetes") is None:
        return _NO_PACKAGE
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        contexts = [each["name"] for each in content["contexts"]]
        current = content.get("current-context")
    except OSError as error:
        return f"{where}: {file} cannot be read: {error.strerror}"
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return f"{where}: {file} is no kubeconfig"  # what it holds is not for messages
    if (context or current) not in contexts:
        known = f"it has: {', '.join(map(str, contexts))}"
        if context:
            return f"metrics_server.kube_context (TRIMARAN_METRICS_SERVER__KUBE_CONTEXT) = {context!r}: {known}"
        return f"{where}: {file} has no current context; set metrics_server.kube_context, {known}"
    return ""


def _service_address() -> str:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    return f"https://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"https://{host}:{port}"


def _with_service_account(settings: ProviderSettings) -> ProviderSettings:
    """Return the settings with the service account's token and CA where they name no others."""
    token, authorities = session.SERVICE_ACCOUNT / "token", session.SERVICE_ACCOUNT / "ca.crt"
    found: dict[str, Path] = {}
    if settings.token is None and settings.token_file is None and settings.client_certificate is None:
        found["token_file"] = token
    if settings.ca_file is None and not settings.insecure_skip_verify:
        found["ca_file"] = authorities
    if not all(file.exists() for file in found.values()):
        raise SettingsError([_NO_ACCOUNT.format(session.SERVICE_ACCOUNT)])
    return settings.model_copy(update=found)
