"""How InfluxDB is spoken to: which version listens, what its answers are read by, and what mends its errors.

Plain HTTP instead of the packages ``influxdb`` and ``influxdb-client``: a query is one POST, and our session has what
theirs lack, an end to answers that do not end.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

import requests

from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.providers.influxdb.answers import QueryResult, read_flux, read_influxql
from watcher.providers.session import ProviderSession, provider_error, read_token
from watcher.settings import Settings, without_credentials

DEFAULT_ADDRESS = "http://influxdb:8086"

#: What InfluxDB says, and the setting that mends it.
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
    """One InfluxDB server of either version."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; nothing is contacted yet.

        Raises:
            SettingsError: 2.x without an organization or a token.
        """
        own = self._own = settings.influxdb
        self._settings = settings.provider
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self.where = f"InfluxDB at {without_credentials(self._address)}"
        self._version: Version | None = None if own.version == "auto" else own.version
        self._doubtful = False
        if self._version == "2" and (problems := self._missing()):
            raise SettingsError(problems)
        self._session = ProviderSession(settings.provider, self._authenticate)

    def version(self, deadline: Deadline) -> Version:
        """Return the version to speak to, asking the server where the settings leave it to us.

        Raises:
            ProviderError: the server does not say, or is none.
        """
        if self._version is None or self._doubtful:
            answer = self.gather({"ping": partial(self._ping, deadline)}, deadline)["ping"]
            if isinstance(answer, ProviderError):
                raise answer
            self._version, self._doubtful = answer, False
        return self._version

    def doubt_version(self) -> None:
        """Ask for the version again before the next query, as another server may listen there by now."""
        self._doubtful = self._own.version == "auto"

    def influxql(self, statement: str, deadline: Deadline) -> QueryResult:
        """Ask 1.x.

        Raises:
            Unwritable: a value is infinite, so that there is no answer.
            Exception: whatever else went wrong; :meth:`gather` makes a ProviderError of it.
        """
        data = {"db": self._own.database, "epoch": "s", "q": statement}
        return read_influxql(
            self._session.post(f"{self._address}/query", data=data, timeout=_seconds(deadline)).content
        )

    def flux(self, script: str, deadline: Deadline) -> QueryResult:
        """Ask 2.x.

        Raises:
            Exception: whatever went wrong; :meth:`gather` makes a ProviderError of it.
        """
        dialect = {"header": True, "annotations": ["datatype", "group", "default"], "delimiter": ","}
        response = self._session.post(
            f"{self._address}/api/v2/query",
            params={"org": self._own.organization},
            json={"type": "flux", "query": script, "dialect": dialect},
            headers={"Accept": "application/csv"},
            timeout=_seconds(deadline),
        )
        return read_flux(response.content)

    def gather(self, calls: Mapping[str, Callable[[], T]], deadline: Deadline) -> dict[str, T | ProviderError]:
        """Do calls side by side and return what each brought: an error names the setting that mends it."""
        answers = gather(calls, deadline, give_up=self._session.abort)
        return {
            key: self.translated(answer) if isinstance(answer, Exception) else answer for key, answer in answers.items()
        }

    def translated(self, error: Exception) -> ProviderError:
        """Return what went wrong with the setting that mends it."""
        problem = provider_error("InfluxDB", self._address, error)
        text, setting = str(problem), self.remedy(problem)
        if isinstance(problem, ProviderAnswerError) and "InfluxDB at" not in text:
            text = f"{self.where}: {text}"
        return type(problem)(text if setting in text else f"{text} ({setting})")

    def remedy(self, error: ProviderError) -> str:
        """Return the setting that most probably mends an error."""
        text = str(error)
        named = (setting for words, setting in _REMEDIES.items() if words in text)
        if isinstance(error, ProviderRefused):
            credentials = "influxdb.password" if self._own.username and self._version != "2" else "provider.token"
            return "influxdb.organization" if "influxdb.organization" in text else credentials
        fallback = "influxdb.queries" if isinstance(error, ProviderAnswerError) else "provider.address"
        return next(named, "provider.address" if "provider.address" in text else fallback)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _ping(self, deadline: Deadline) -> Version:
        said = self._session.get(f"{self._address}/ping", timeout=_seconds(deadline)).headers.get("X-Influxdb-Version")
        major = (said or "").removeprefix("v").partition(".")[0]
        if major == "1":
            return "1"
        if major == "2" or (said is None and self._own.organization):  # InfluxDB Cloud does not say
            if problems := self._missing():
                raise ProviderRefused(f"{self.where} is of version 2: {'; '.join(problems)}")
            return "2"
        what = f"says that its version is {said[:40]}" if said else "does not say its version at /ping"
        raise ProviderAnswerError(
            f"{self.where} {what}; is provider.address right? Set influxdb.version to 1 to ask in "
            "InfluxQL, to 2 to ask in Flux"
        )

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        if self._own.username and self._version != "2":
            password = self._own.password.get_secret_value() if self._own.password else ""
            requests.auth.HTTPBasicAuth(self._own.username.encode(), password.encode())(request)
        elif token := read_token(self._settings):
            request.headers["Authorization"] = f"{'Token' if self._version == '2' else 'Bearer'} {token}"

    def _missing(self) -> list[str]:
        problems = []
        if not self._own.organization:
            problems.append("influxdb.organization (TRIMARAN_INFLUXDB__ORGANIZATION) is missing: InfluxDB 2.x needs it")
        settings = self._settings
        if not (settings.token or settings.token_file or settings.openshift_auth or settings.headers):
            problems.append("provider.token (METRICS_PROVIDER_TOKEN) is missing: InfluxDB 2.x answers nobody without")
        return problems


def _seconds(deadline: Deadline) -> float:
    return max(0.1, deadline.remaining_seconds())
