"""Failures of plugins. As in kube-scheduler, the attempt of one pod is undone, and the pod is tried again."""

import logging
from typing import TYPE_CHECKING, TypeVar

from runtime.errors import error_text
from runtime.outage_log import OutageLog
from scoring.plugins.failures import blamed
from scoring.plugins.filtering import PluginResultError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_TEXT = 900  # characters; an Event's note has 1,024
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


def checked(answer: Answer, *kinds: type) -> Answer:
    """Return the result of a plugin if its type is one of ``kinds``; ``type(None)`` allows None.

    Raises:
        PluginResultError: the result has another type.
    """
    if isinstance(answer, kinds):
        return answer
    names = ", ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
    raise PluginResultError(f"must return one of {names}, got {type(answer).__name__}")


class PluginFailures:
    """Number of failures by plugin and extension point, and their log. One thread records; any thread may read.

    Attributes:
        counts: number of failures by the name of the plugin and the extension point; both are "" for the scheduler's
            own failures.
        first: first exception; None if no plugin has failed.
    """

    def __init__(self) -> None:
        self.counts: Mapping[tuple[str, str], int] = {}
        self.first: Exception | None = None
        self._outages: dict[tuple[str, str], OutageLog] = {}

    def record(self, error: Exception) -> str:
        """Count and log an exception, the first one of a plugin with its traceback; return it as a message."""
        key = plugin, point = blamed(error)
        text = error_text(error)[:_LONGEST_TEXT]
        message = f"running {point} plugin {plugin}: {text}" if plugin else f"the attempt failed: {text}"
        if key not in self._outages:
            self._outages[key] = OutageLog(_log, "a plugin failed; its pod is tried again", "the plugin works again")
            _log.error("a plugin failed for the first time", exc_info=error)
        self._outages[key].failed(message, plugin=plugin, extension_point=point)
        self.first = self.first or error
        self.counts = {**self.counts, key: self.counts.get(key, 0) + 1}
        return message
