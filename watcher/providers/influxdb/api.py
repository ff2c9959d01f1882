"""InfluxDB's HTTP API: version detection, queries in both languages, and errors with remedies.

Plain HTTP is used instead of the packages ``influxdb`` and ``influxdb-client``: a query is one POST, and
:class:`ProviderSession` limits the size and the duration of responses.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

import requests

from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.providers.influxdb.results import QueryResult, read_flux, read_influxql
from watcher.providers.session import ProviderSession, provider_error, read_token
from watcher.settings import Settings, without_credentials

DEFAULT_ADDRESS = "http://influxdb:8086"

#: Text in InfluxDB's error to the setting that fixes it.
_REMEDIES = {
    "database not found": "influxdb.database",
    "retention policy not found": "influxdb.retention_policy",
    "could not find bucket": "influxdb.bucket",
    "organization name": "influxdb.organization",
    "organization not found": "influxdb.organization",
    "compilation failed": "influxdb.queries",
}
Version = Literal["1", "2"]
T = TypeVar("T")


class InfluxDbApi:
    """Client for one InfluxDB server of either version."""

    def __init__(self, settings: Settings) -> None:
        """Prepare the client; nothing is sent yet.

        Raises:
            SettingsError: InfluxDB 2.x needs an organization and a token, and one is missing.
        """
        options = self._options = settings.influxdb
        self._settings = settings.provider
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self.where = f"InfluxDB at {without_credentials(self._address)}"
        self._version: Version | None = None if options.version == "auto" else options.version
        self._doubtful = False
        if self._version == "2" and (problems := self._missing()):
            raise SettingsError(problems)
        self._session = ProviderSession(settings.provider, self._authenticate)

    def version(self, deadline: Deadline) -> Version:
        """Return the server's major version: from the settings, or from the server if the settings do not have it.

        Raises:
            ProviderError: the server does not report a known version, or is not an InfluxDB.
        """
        if self._version is None or self._doubtful:
            answer = self.gather({"ping": partial(self._ping, deadline)}, deadline)["ping"]
            if isinstance(answer, ProviderError):
                raise answer
            self._version, self._doubtful = answer, False
        return self._version

    def doubt_version(self) -> None:
        """Forget the detected version, so that the next query detects it again: the server may have been replaced."""
        self._doubtful = self._options.version == "auto"

    def influxql(self, statement: str, deadline: Deadline) -> QueryResult:
        """Run an InfluxQL statement on InfluxDB 1.x.

        Raises:
            InfiniteValueError: a value is infinite, so there is no response.
            Exception: any other failure; :meth:`gather` translates it into a ProviderError.
        """
        data = {"db": self._options.database, "epoch": "s", "q": statement}
        return read_influxql(
            self._session.post(f"{self._address}/query", data=data, timeout=_seconds(deadline)).content
        )

    def flux(self, script: str, deadline: Deadline) -> QueryResult:
        """Run a Flux script on InfluxDB 2.x.

        Raises:
            Exception: any failure; :meth:`gather` translates it into a ProviderError.
        """
        dialect = {"header": True, "annotations": ["datatype", "group", "default"], "delimiter": ","}
        response = self._session.post(
            f"{self._address}/api/v2/query",
            params={"org": self._options.organization},
            json={"type": "flux", "query": script, "dialect": dialect},
            headers={"Accept": "application/csv"},
            timeout=_seconds(deadline),
        )
        return read_flux(response.content)

    def gather(self, calls: Mapping[str, Callable[[], T]], deadline: Deadline) -> dict[str, T | ProviderError]:
        """Run calls concurrently and return the result of each; errors name the setting that fixes them."""
        answers = gather(calls, deadline, give_up=self._session.abort)
        return {
            key: self.translated(answer) if isinstance(answer, Exception) else answer for key, answer in answers.items()
        }

    def translated(self, error: Exception) -> ProviderError:
        """Translate an error into a ProviderError that names the setting to change."""
        problem = provider_error("InfluxDB", self._address, error)
        text, setting = str(problem), self.remedy(problem)
        if isinstance(problem, ProviderAnswerError) and "InfluxDB at" not in text:
            text = f"{self.where}: {text}"
        return type(problem)(text if setting in text else f"{text} ({setting})")

    def remedy(self, error: ProviderError) -> str:
        """Return the setting that most probably fixes an error."""
        text = str(error)
        named = (setting for words, setting in _REMEDIES.items() if words in text)
        if isinstance(error, ProviderRefused):
            credentials = "influxdb.password" if self._options.username and self._version != "2" else "provider.token"
            return "influxdb.organization" if "influxdb.organization" in text else credentials
        fallback = "influxdb.queries" if isinstance(error, ProviderAnswerError) else "provider.address"
        return next(named, "provider.address" if "provider.address" in text else fallback)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _ping(self, deadline: Deadline) -> Version:
        reported = self._session.get(f"{self._address}/ping", timeout=_seconds(deadline)).headers.get(
            "X-Influxdb-Version"
        )
        major = (reported or "").removeprefix("v").partition(".")[0]
        if major == "1":
            return "1"
        if major == "2" or (reported is None and self._options.organization):  # InfluxDB Cloud does not report it
            if problems := self._missing():
                raise ProviderRefused(f"{self.where} is of version 2: {'; '.join(problems)}")
            return "2"
        problem = f"reports version {reported[:40]}" if reported else "does not report its version at /ping"
        raise ProviderAnswerError(
            f"{self.where} {problem}; is provider.address right? Set influxdb.version to 1 for queries in InfluxQL, to "
            "2 for queries in Flux"
        )

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        if self._options.username and self._version != "2":
            password = self._options.password.get_secret_value() if self._options.password else ""
            requests.auth.HTTPBasicAuth(self._options.username.encode(), password.encode())(request)
        elif token := read_token(self._settings):
            request.headers["Authorization"] = f"{'Token' if self._version == '2' else 'Bearer'} {token}"

    def _missing(self) -> list[str]:
        problems = []
        if not self._options.organization:
            problems.append(
                "influxdb.organization (TRIMARAN_INFLUXDB__ORGANIZATION) is missing: InfluxDB 2.x requires it"
            )
        settings = self._settings
        if not (settings.token or settings.token_file or settings.openshift_auth or settings.headers):
            problems.append("provider.token (METRICS_PROVIDER_TOKEN) is missing: InfluxDB 2.x requires a token")
        return problems


def _seconds(deadline: Deadline) -> float:
    return max(0.1, deadline.remaining_seconds())
