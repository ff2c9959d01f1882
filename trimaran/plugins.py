"""Default plugin, and plugins that other packages register as entry points; see docs/extending.md.

A plugin of another package may implement any extension point. Readers of a KubeSchedulerConfiguration get the plugins
here. Only the scheduler calls every extension point; the other programs report those they ignore, by :func:`uncalled`.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from runtime.errors import quoted
from scoring import ClusterEvent, CongestionCost, SchedulerConfiguration, read_configuration
from scoring.kubernetes_version import LATEST_VERSION
from scoring.plugins.base import Plugin, points_of

ENTRY_POINT_GROUP = "trimaran.plugins"
DEFAULT_PLUGIN: Final = CongestionCost.name
"""Score plugin that the manifests, the chart, the commands and the figures use by default."""


@cache
def installed_plugins() -> tuple[type[Plugin], ...]:
    """Return the plugins of all installed packages, for :func:`scoring.read_configuration`.

    Raises:
        ValueError: a plugin cannot be loaded, or is not a plugin; the message names its package.
    """
    return tuple(_load(entry) for entry in entry_points(group=ENTRY_POINT_GROUP))


def plugin_packages() -> dict[str, str]:
    """Return the package of each installed plugin as pip writes it, such as ``trimaran-cool-memory==1.0``, by name."""
    return {
        entry.name: f"{entry.dist.name}=={entry.dist.version}" if entry.dist else entry.module
        for entry in entry_points(group=ENTRY_POINT_GROUP)
    }


def read_scheduler_file(
    document: Mapping[str, Any], *, kubernetes_version: str = LATEST_VERSION, allow: Collection[str] | None = ()
) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration as :func:`scoring.read_configuration` does, with the installed plugins.

    Args:
        document: the parsed file.
        kubernetes_version: version of kube-scheduler whose rules of scoring apply.
        allow: names of plugins that may stand in the file although no installed package has them; None allows all.

    Raises:
        ValueError: the document is not valid, or an installed plugin cannot be loaded.
    """
    return read_configuration(document, kubernetes_version=kubernetes_version, allow=allow, plugins=installed_plugins())


def uncalled(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each installed plugin that a file enables at points that only the scheduler calls."""
    for number, profile in enumerate(document.get("profiles") or ()):
        for plugin in installed_plugins():
            points = sorted(point for point in points_of(plugin) - {"score"} if _runs_at(plugin.name, point, profile))
            if points:
                where = f"profiles[{number}].plugins: {plugin.name} is not called at {', '.join(points)}"
                yield f"{where}; only trimaran scheduler and its replays call it there"


def _runs_at(name: str, point: str, profile: Mapping[str, Any]) -> bool:
    """Return whether a profile enables a plugin at an extension point, by the point's own list or ``multiPoint``."""
    runs = False
    for key in ("multiPoint", point):
        plugin_set = (profile.get("plugins") or {}).get(key) or {}
        disabled = {entry["name"] for entry in plugin_set.get("disabled") or ()}
        enabled = {entry["name"] for entry in plugin_set.get("enabled") or ()}
        runs = name in enabled or (runs and disabled.isdisjoint({name, "*"}))
    return runs


def _load(entry: EntryPoint) -> type[Plugin]:
    where = f"plugin {entry.name} of the package {entry.dist.name if entry.dist else entry.module}"
    try:
        loaded: Any = entry.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{where} cannot be loaded: {error}; repair or uninstall the package") from error
    if not (is_dataclass(loaded) and isinstance(loaded, type) and issubclass(loaded, Plugin) and points_of(loaded)):
        raise ValueError(
            f"{where} must be a dataclass derived from scoring.ScorePlugin, scoring.FilterPlugin or a class of "
            f"trimaran.scheduler.framework.extension_points, got {quoted(loaded)}"
        )
    if inspect.isabstract(loaded):
        missing = ", ".join(sorted(getattr(loaded, "__abstractmethods__", ())))
        raise ValueError(f"{where} does not define {missing}, which its base classes require")
    if getattr(loaded, "name", None) != entry.name:
        raise ValueError(f"{where} must have the same name as the class, got {quoted(getattr(loaded, 'name', None))}")
    events: Any = getattr(loaded, "requeued_by", frozenset())
    if not (isinstance(events, AbstractSet) and all(isinstance(event, ClusterEvent) for event in events)):
        raise ValueError(f"{where}: requeued_by must be a set of scoring.ClusterEvent, got {quoted(events)}")
    return loaded
