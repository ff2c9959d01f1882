"""Connection to a Prometheus, or to a server with its query API: sends PromQL, checks the form of responses."""

import threading
from datetime import UTC, datetime
from typing import Any

import orjson
import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import ProviderSettings, without_credentials


class PrometheusConnection:
    """Connection with the settings' credentials. Thread-safe.

    Attributes:
        address: URL of the server.
        shown: the URL without credentials, for messages.
    """

    def __init__(self, settings: ProviderSettings, address: str) -> None:
        """Prepare the connection; nothing is sent yet."""
        self.address, self.shown = address, without_credentials(address)
        self._seen = threading.local()
        self._session = ProviderSession(settings, bearer(settings), self._note_warnings)
        self._connect = PrometheusConnect(address, session=self._session, retry=Retry(total=0))

    def run(self, promql: str, at: int | None, deadline: Deadline) -> list[dict[str, Any]]:
        """Return the series of an expression at a time in Unix seconds, or now if ``at`` is None."""
        seconds = _remaining_seconds(deadline)
        params = _params(seconds) | ({} if at is None else {"time": str(at)})
        return self._checked(promql, self._connect.custom_query(promql, params=params, timeout=seconds))

    def run_range(self, promql: str, times: range, deadline: Deadline) -> list[dict[str, Any]]:
        """Return the series of an expression at each time of a range, Unix seconds."""
        seconds = _remaining_seconds(deadline)
        first, last = (datetime.fromtimestamp(at, UTC) for at in (times[0], times[-1]))
        answer = self._connect.custom_query_range(
            promql, first, last, str(times.step), params=_params(seconds), timeout=seconds
        )
        return self._checked(promql, answer)

    def forget_warnings(self) -> None:
        """Forget the warnings of earlier responses to this thread."""
        self._seen.warnings = []

    @property
    def warnings(self) -> list[str]:
        """Warnings in the responses to this thread since :meth:`forget_warnings`."""
        warnings: list[str] = self._seen.warnings
        return warnings

    def translated(self, error: Exception) -> ProviderError:
        """Return the error to raise for a failure of a query."""
        return provider_error("Prometheus", self.address, error)

    def abort(self) -> None:
        """Abort requests in progress."""
        self._session.abort()

    def close(self) -> None:
        """Abort requests in progress and close the connections."""
        self._session.abort()
        self._session.close()

    def _checked(self, promql: str, answer: Any) -> list[dict[str, Any]]:
        if not isinstance(answer, list) or not all(isinstance(item, dict) and "metric" in item for item in answer):
            raise ProviderAnswerError(
                f"Prometheus at {self.shown} answered {promql} with something other than a list of series"
            )
        return answer

    def _note_warnings(self, response: requests.Response) -> None:
        """Store a response's warnings: prometheus-api-client drops them, but data may be missing."""
        if b'"warnings"' in response.content:
            self._seen.warnings = [
                str(warning)[:300] for warning in orjson.loads(response.content).get("warnings") or ()
            ]


def _remaining_seconds(deadline: Deadline) -> float:
    seconds = deadline.remaining_seconds()
    if not seconds:
        raise TimeoutError("the deadline has passed")  # earlier queries have used all of the time
    return seconds


def _params(seconds: float) -> dict[str, str]:
    # VictoriaMetrics moves times of the last half minute back, and those of a range to multiples of its step, unless
    # a request is not to be cached. Other servers ignore this.
    return {"timeout": f"{seconds:.3f}", "nocache": "1"}
