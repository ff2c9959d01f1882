"""HTTP access to providers: a session with the settings' credentials and certificates, and errors with remedies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from runtime import masking
from runtime.http import credentials
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken
from runtime.http.failures import FailureKind, describe
from runtime.http.session import BoundedSession
from runtime.kubernetes import api as kubernetes
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable, SettingsError
from watcher.settings import ProviderSettings

_NAMES = {
    "address": "provider.address (METRICS_PROVIDER_ADDRESS)",
    "kube_config": "provider.kube_config (KUBE_CONFIG)",
    "token_file": "provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE)",
    "ca_file": "provider.ca_file (TRIMARAN_PROVIDER__CA_FILE)",
}
_UNREACHABLE = (ProviderUnavailable, "{where} cannot be reached: {reason} (provider.address)")
_LATE = (
    ProviderUnavailable,
    "{where}: no answer in time (watch.fetch_timeout_seconds; for pods: 120 s)",
)
_WORDS: dict[FailureKind, tuple[type[ProviderError], str]] = {
    FailureKind.CREDENTIALS: (ProviderRefused, "no request was sent to {where}: {reason}"),
    FailureKind.INVALID_HEADER: (
        ProviderRefused,
        "no request was sent to {where}: {reason} (provider.token, provider.headers)",
    ),
    FailureKind.NO_ROUTE: (ProviderAnswerError, "{reason}"),
    FailureKind.TIMEOUT: _LATE,
    FailureKind.HANDSHAKE_TIMEOUT: _LATE,
    FailureKind.NOT_TLS: (
        ProviderUnavailable,
        "{where} does not speak TLS: should provider.address begin with http://?",
    ),
    FailureKind.TLS_ERROR: (
        ProviderUnavailable,
        "{where}: TLS failed: {reason} (provider.ca_file, provider.client_certificate)",
    ),
    FailureKind.UNTRUSTED_CERTIFICATE: (
        ProviderUnavailable,
        "{where}: its certificate is not trusted ({reason}); set provider.ca_file",
    ),
    FailureKind.REDIRECT: (ProviderAnswerError, "{reason}: is provider.address right?"),
    FailureKind.TOO_LARGE: (ProviderAnswerError, "{where}: {reason}"),
    FailureKind.BAD_ENCODING: (ProviderAnswerError, "{where}: the response cannot be used: {reason}"),
    FailureKind.NOT_JSON: (ProviderAnswerError, "{where}: the response is not JSON; is provider.address right?"),
    FailureKind.UNEXPECTED_RESPONSE: (ProviderAnswerError, "{where}: {reason}; is provider.address right?"),
    FailureKind.OTHER: (ProviderAnswerError, "{where}: the response cannot be used: {reason}"),
}
_WITHOUT_REASON = {kind for kind, (_, template) in _WORDS.items() if "{reason}" not in template}


class ProviderSession(BoundedSession):
    """HTTP session to one provider's source, with limits on the size and duration of responses.

    Responses with a status of 400 or above raise an error.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        authenticate: credentials.Authenticate,
        inspect: Callable[[requests.Response], None] | None = None,
    ) -> None:
        """Prepare the session; nothing is sent yet.

        Args:
            settings: credentials, certificates and headers.
            authenticate: a function that sets the credentials of each request.
            inspect: a function that receives each complete response, in the thread of the request.
        """
        masking.register_address_secrets(settings.address or "")
        super().__init__(
            authenticate,
            verify=_verification(settings),
            certificate=client_certificate(settings),
            headers={name: value.get_secret_value() for name, value in settings.headers.items()},
        )
        self._inspect = inspect

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request and return the response; a status of 400 or above raises ``requests.HTTPError``."""
        response = super().send(request, **options)
        response.raise_for_status()
        if self._inspect is not None:
            self._inspect(response)
        return response


def read_token(settings: ProviderSettings) -> str:
    """Return the bearer token: from the token file, the settings, or the service account (with ``openshift_auth``).

    Without any of these the result is empty.

    Raises:
        ProviderRefused: the token's file cannot be read, or its content cannot be sent.
    """
    file, setting = settings.token_file, "provider.token_file"
    if file is None and settings.token is None and settings.openshift_auth:
        file, setting = kubernetes.SERVICE_ACCOUNT / "token", "provider.openshift_auth"
    if file is None:
        return settings.token.get_secret_value() if settings.token else ""
    try:
        return credentials.read_token(file)
    except UnusableToken as error:
        raise ProviderRefused(f"{error} ({setting})") from None


def bearer(settings: ProviderSettings) -> credentials.Authenticate:
    """Return a function that sets the Authorization header of a request if there is a token."""
    return credentials.bearer(lambda: read_token(settings))


def client_certificate(settings: ProviderSettings) -> str | tuple[str, str] | None:
    """Return the client certificate in the settings in the form of ``requests``: one path, two paths, or None."""
    certificate, key = settings.client_certificate, settings.client_key
    if certificate is None:
        return None
    return str(certificate) if key is None else (str(certificate), str(key))


def open_kubernetes(settings: ProviderSettings) -> KubernetesApi:
    """Return a client for the Kubernetes API that the settings name; no request is sent yet.

    Args:
        settings: ``kube_config`` has priority, then ``address``, then the pod's service account. Tokens and
            certificates in the settings override those found with the address.

    Raises:
        SettingsError: the settings give no usable access to an API.
    """
    file, names = settings.token_file, _NAMES
    if file is None and settings.token is None and settings.openshift_auth:
        file, names = kubernetes.SERVICE_ACCOUNT / "token", {**_NAMES, "token_file": "provider.openshift_auth"}
    verify = _verification(settings)
    access = ApiServerConfig(
        address=settings.address or "",
        kube_config=settings.kube_config,
        token=settings.token.get_secret_value() if settings.token and file is None else "",
        token_file=file,
        ca_file=Path(verify) if isinstance(verify, str) else None,
        verify=verify is not False,
        certificate=client_certificate(settings),
        headers={name: value.get_secret_value() for name, value in settings.headers.items()},
        option_names=names,
    )
    try:
        return KubernetesApi(access)
    except InvalidApiServerConfig as error:
        raise SettingsError([str(error)]) from None


def provider_error(provider: str, address: str, error: Exception) -> ProviderError:
    """Translate an error of a request into a ProviderError with the source's address, without credentials.

    Args:
        provider: the source's name for the message.
        address: the source's URL, which may contain credentials.
        error: an error of the session, of the parsing of a response, or of a missed deadline.
    """
    masking.register_url_secrets(address)
    if isinstance(error, ProviderError):
        return error
    where = f"{provider} at {masking.without_credentials(address)}"
    failure = describe(error)
    if failure.kind in _WITHOUT_REASON and failure.proxy:
        where += f" {failure.proxy}"
    if failure.kind is FailureKind.ERROR_STATUS:
        return _status_error(where, failure.reason, failure.status)
    kind, template = _WORDS.get(failure.kind, _UNREACHABLE)
    return kind(template.format(where=where, reason=failure.reason))


def _status_error(where: str, reason: str, status: int) -> ProviderError:
    if status in {401, 403}:
        return ProviderRefused(f"{where} refuses the credentials: {reason} (provider.token)")
    if status == 404:
        return ProviderAnswerError(f"{where}: {reason}; is provider.address right?")
    if status in {408, 429} or status >= 500:
        return ProviderUnavailable(f"{where}: {reason}")
    return ProviderAnswerError(f"{where}: {reason}")


def _verification(settings: ProviderSettings) -> bool | str:
    if settings.insecure_skip_verify:
        return False
    if settings.ca_file is not None:
        return str(settings.ca_file)
    if settings.openshift_auth:
        account = kubernetes.SERVICE_ACCOUNT
        return str(next(filter(Path.exists, (account / "service-ca.crt",)), account / "ca.crt"))
    return True
