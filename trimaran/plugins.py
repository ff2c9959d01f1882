"""The plugin by default, and plugins of other packages, which register them as entry points; see docs/extending.md.

Each of these is a score plugin; it may also filter nodes, for ``trimaran scheduler``.
"""

from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from runtime.errors import quoted
from scoring import CongestionCost, FilterPlugin, SchedulerConfiguration, ScorePlugin, read_configuration
from scoring.kubernetes_version import LATEST_VERSION

ENTRY_POINT_GROUP = "trimaran.plugins"
DEFAULT_PLUGIN: Final = CongestionCost.name
"""Plugin of ours that the manifests, the chart, the commands and the figures use unless told otherwise."""


@cache
def installed_plugins() -> tuple[type[ScorePlugin], ...]:
    """Return the score plugins of all installed packages, for :func:`scoring.read_configuration`.

    Raises:
        ValueError: a plugin cannot be loaded, or is not a score plugin; the message names its package.
    """
    return tuple(_load(entry) for entry in entry_points(group=ENTRY_POINT_GROUP))


def installed_filters() -> frozenset[str]:
    """Return the names of the installed plugins that also filter nodes.

    Raises:
        ValueError: a plugin cannot be loaded, or is not a score plugin; the message names its package.
    """
    return frozenset(plugin.name for plugin in installed_plugins() if issubclass(plugin, FilterPlugin))


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


def _load(entry: EntryPoint) -> type[ScorePlugin]:
    where = f"plugin {entry.name} of the package {entry.dist.name if entry.dist else entry.module}"
    try:
        loaded: Any = entry.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{where} cannot be loaded: {error}; repair or uninstall the package") from error
    if not (is_dataclass(loaded) and isinstance(loaded, type) and issubclass(loaded, ScorePlugin)):
        raise ValueError(f"{where} must be a dataclass derived from scoring.ScorePlugin, got {quoted(loaded)}")
    plugin: type[ScorePlugin] = loaded
    if getattr(plugin, "name", None) != entry.name:
        raise ValueError(f"{where} must have the same name as the class, got {quoted(getattr(plugin, 'name', None))}")
    return plugin
