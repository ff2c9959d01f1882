"""Value of a user's PromQL query, read from the Prometheus server in the settings."""

import logging

from runtime.http.gather import Deadline
from watcher.errors import ProviderError
from watcher.settings import Settings

_SECONDS = 10.0
_log = logging.getLogger(__name__)


class PromqlValue:
    """Reader of PromQL queries that return one value. For one thread.

    Args:
        settings: settings with the credentials in the section ``provider``.
        address: address of Prometheus; None for ``provider.address``.
    """

    def __init__(self, settings: Settings, address: str | None) -> None:
        if address is not None:
            provider = settings.provider.model_copy(update={"address": address})
            settings = settings.model_copy(update={"provider": provider})
        self._settings = settings

    def ask(self, query: str) -> float | None:
        """Return the current value of a query; if there is not exactly one, log a warning and return None."""
        from watcher.providers.prometheus.provider import PrometheusProvider  # imported late: few trials have a query

        try:
            series = list(PrometheusProvider(self._settings).series(query, Deadline.after(_SECONDS)))
        except ProviderError as error:
            _log.warning("extender.trial_query has no value", extra={"error": str(error)})
            return None
        if len(series) != 1:
            why = f"{len(series)} series; aggregate them to one, such as by sum()"
            _log.warning("extender.trial_query has no value", extra={"error": why})
            return None
        return series[0][1]
