"""Kubeconfigs, read by the official ``kubernetes`` package, which supports exec plugins, certificates and contexts."""

import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runtime.extras import install_command
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken, prepare_token, read_token
from runtime.parsing import parse_yaml, read_bounded

# The package writes certificates and keys to temporary files, and records these without a lock: of two concurrent
# loads, one could leave its file behind, or read a file before it is written.
_LOADING = threading.Lock()


class KubeConfig:
    """One context of a kubeconfig. Thread-safe."""

    def __init__(self, file: Path, context: str, file_option: str, context_option: str) -> None:
        """Check the file and the context, without running an exec plugin.

        Args:
            file: the kubeconfig.
            context: name of a context; empty for the current context.
            file_option: name of the option for the file, for error messages.
            context_option: name of the option for the context, for error messages.

        Raises:
            InvalidApiServerConfig: the package is not installed, or the file or context does not exist.
        """
        self._file, self._context, self._option = file, context or None, file_option
        self._configuration: Any = None
        self._token_file: Path | None = None
        self._lock = threading.Lock()
        problem = _problem(file, context, file_option, context_option)
        if problem:
            raise InvalidApiServerConfig(problem)

    def read(self) -> Any:
        """Return the package's configuration, with credentials that are valid now.

        Raises:
            InvalidApiServerConfig: the package cannot read the kubeconfig.
        """
        from kubernetes import client, config  # optional package, only needed for kubeconfigs

        with self._lock, _LOADING:
            if self._configuration is None:
                configuration = client.Configuration()
                try:
                    config.load_kube_config(  # type: ignore[no-untyped-call]
                        str(self._file), context=self._context, client_configuration=configuration, persist_config=False
                    )
                except Exception as error:  # the package documents no exceptions, and its parts raise many
                    raise InvalidApiServerConfig(f"{self._file} cannot be used: {error} ({self._option})") from error
                file = _user_of(_content(self._file), self._context).get("tokenFile")
                self._token_file = self._file.parent / file if file else None
                self._configuration = configuration
            return self._configuration

    def token(self) -> str:
        """Return the Authorization header's value. If its token has expired, the package runs the exec plugin again.

        A ``tokenFile`` is read on every call and takes precedence over ``token``, as in kubectl. The package reads it
        once, and keeps the newline at its end.

        Raises:
            InvalidApiServerConfig: as :meth:`read`.
            UnusableToken: the exec plugin or token file returns no token, or one that cannot be sent.
        """
        configuration = self.read()
        with self._lock:
            if self._token_file is not None:
                try:
                    return f"Bearer {read_token(self._token_file)}"
                except UnusableToken as error:
                    raise UnusableToken(f"{error} ({self._option})") from None
            if not {"BearerToken", "authorization"} & configuration.api_key.keys():
                return ""
            try:
                header = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            except Exception as error:
                raise UnusableToken(f"{self._file} provides no new token: {error} ({self._option})") from error
            scheme, _, value = str(header or "").partition(" ")
            return f"{scheme} {prepare_token(value, f'the token of {self._file} ({self._option})')}".strip()

    def forget(self) -> None:
        """Make the next call read the file again: exec plugins and token files change credentials without notice."""
        with self._lock:
            self._configuration = None


def _user_of(content: Any, context: str | None) -> dict[str, Any]:
    """Return the user of a context, or of the current one, from the content of a valid kubeconfig."""
    contexts = {each["name"]: each["context"] for each in content["contexts"]}
    users = {each["name"]: each["user"] for each in content.get("users") or ()}
    user = users.get(contexts[context or content["current-context"]].get("user"))
    return user if isinstance(user, dict) else {}


def cluster_server(file: Path) -> str:
    """Return the API server's URL in a kubeconfig's current context; empty if the file cannot be read."""
    try:
        content = _content(file)
        contexts = {each["name"]: each["context"] for each in content["contexts"]}
        clusters = {each["name"]: each["cluster"] for each in content["clusters"]}
        return str(clusters[contexts[content["current-context"]]["cluster"]]["server"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _content(file: Path) -> Any:
    with file.open("rb") as opened:
        return parse_yaml(read_bounded(opened))


def _problem(file: Path, context: str, file_option: str, context_option: str) -> str:
    """Return the reason why the kubeconfig cannot be used, or an empty text, without running exec plugins."""
    if find_spec("kubernetes") is None:
        return (
            f"{file_option} needs the package kubernetes: {install_command('kubernetes')}; in a cluster, leave it unset"
        )
    try:
        content = _content(file)
        contexts = [each["name"] for each in content["contexts"]]
        current = content.get("current-context")
    except OSError as error:
        return f"{file_option}: {file} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{file_option}: {file} is not a kubeconfig"  # without the error, which quotes the file
    if (context or current) not in contexts:
        known = f"one of: {', '.join(map(str, contexts))}"
        if context:
            return f"{context_option} = {context!r}: {file} has no such context; set {known}"
        return f"{file_option}: {file} has no current context; set {context_option} to {known}"
    return ""
