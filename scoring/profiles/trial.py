"""Trial score of a plugin of another package, when a profile is built: finds misspelled names of metrics.

When pods are scored, a metric type that no node has counts as not measured, since watchers may define further types. So
a plugin that asks for ``cpu`` instead of ``CPU`` would score all nodes as not measured, without an error.
"""

from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from scoring.load.metrics_table import MeasuredUse, MetricsTable
from scoring.plugins.base import PreparedPlugin, ScorePlugin
from scoring.table.node_table import NodeTable
from watcher.model import MetricType

_TYPES: Final = {each.value.lower(): each.value for each in MetricType}
_SIMILARITY = 0.8
_AMOUNTS: Final = ResourceList({"cpu": 1000, "memory": 2**30, "pods": 10})


class _MisspelledTypeError(ValueError):
    """A plugin asked for an unknown metric type with a name similar to a known one."""


class _NoMetrics(dict[str, MeasuredUse]):
    """Empty metrics by type; looking up a misspelled type raises an error."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the default after checking the spelling of the type."""
        _check(key)
        return default

    def __contains__(self, key: object) -> bool:
        _check(key)
        return False

    def __missing__(self, key: str) -> MeasuredUse:
        _check(key)
        raise KeyError(key)


def check_metric_types(plugin: ScorePlugin) -> None:
    """Let a plugin of another package score a made-up node, to find misspelled metric types.

    Other errors of the plugin are ignored here, and raised again when it scores real nodes.

    Raises:
        ValueError: the plugin asks for a misspelled metric type; the message has the correct spelling.
    """
    if type(plugin).__module__.startswith("scoring."):
        return
    try:
        _try_out(plugin)
    except TypeError:  # a plugin without a hash cannot be cached, and is tried each time
        _try_out.__wrapped__(plugin)


# A profile is built again with each snapshot of expected use, and a plugin may be slow.
@lru_cache(maxsize=256)
def _try_out(plugin: ScorePlugin) -> None:
    table = NodeTable([Node("trial", _AMOUNTS, _AMOUNTS)])
    pod = Pod("trial", containers=(Container(ResourceList({"cpu": 100})),))
    try:
        PreparedPlugin(plugin, table, replace(MetricsTable.empty(table), use=_NoMetrics())).score(pod)
    except _MisspelledTypeError as error:
        raise ValueError(f"{plugin.name}: {error}") from None
    except Exception:  # noqa: BLE001, S110  raised again with real nodes
        pass


def _check(key: object) -> None:
    if isinstance(key, str) and key not in _TYPES.values():
        close = get_close_matches(key.lower(), _TYPES, 1, _SIMILARITY)
        if close:
            raise _MisspelledTypeError(f"there is no metric type {key!r}; did you mean {_TYPES[close[0]]}?")
