"""What goes wrong with HTTP to providers, in our words and with the setting that mends it."""

import contextlib
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ReadTimeoutError

from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.settings import without_credentials

_HARMLESS_HEADERS = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}


class TooLarge(requests.RequestException):
    """The body does not end where a body should."""


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
        case TooLarge():
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


def _status_error(where: str, response: requests.Response) -> ProviderError:
    reason = f"{response.status_code} {response.reason}"
    with contextlib.suppress(ValueError, AttributeError):
        body = response.json()
        said = body.get("error") or body.get("message") or body.get("errors")
        said = said.get("message", said) if isinstance(said, dict) else said
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
