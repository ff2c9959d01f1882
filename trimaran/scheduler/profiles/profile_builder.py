"""Plugins of a profile in a KubeSchedulerConfiguration, at the extension points other than Score.

The plugins of an extension point are kube-scheduler's defaults, merged with ``plugins.multiPoint`` and with the plugin
set of the point as in kube-scheduler. Source: its functions ``getDefaultPlugins`` and ``expandMultiPointPlugins``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from scoring.kubernetes_version import LATEST_VERSION, at_least, ignores_arguments, in_tree_plugins
from scoring.plugins.base import Plugin, ScorePlugin, points_of
from scoring.plugins.filtering import FilterPlugin
from scoring.profiles.configuration.fields import FieldReader, UnknownPlugin
from scoring.profiles.configuration.installed import WATCHER_KEYS, reader_of
from scoring.profiles.configuration.plugins import UPSTREAM_PLUGINS, read_shape
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.kube_scheduler.table import table_of
from trimaran.plugins import installed_plugins
from trimaran.scheduler.framework.extension_points import (
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ReadsAnnotations,
    ReservePlugin,
)
from trimaran.scheduler.framework.group_cycle import GANG_SCHEDULING
from trimaran.scheduler.framework.node_sampling import sample_percent
from trimaran.scheduler.framework.priority_sort import PrioritySort
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.plugins.arguments import finish
from trimaran.scheduler.plugins.volumes.capacity_score import VolumeCapacityScore
from trimaran.scheduler.profiles.registry import PLUGINS, PluginContext

# In kube-scheduler's order.
DEFAULT_PLUGINS: Final = (
    "SchedulingGates", "PrioritySort", "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
    "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread",
    "InterPodAffinity", "DynamicResources", "DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality",
    "DefaultBinder", "NodeDeclaredFeatures",
)  # fmt: skip
_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preBind",
    "postBind",
    "permit",
    "bind",
)
_SCORES_CAPACITY = "1.37"  # first version in which VolumeBinding scores without a feature gate
Kind = TypeVar("Kind")


class ProfileBuilder:
    """Builder of the profiles of one scheduler.

    Args:
        context: parts of the scheduler that plugins may use.
        allow: names of plugins that may stand in a file although they are not implemented.

    Attributes:
        kinds: kinds of objects to watch for the plugins that were built, of
            :data:`~runtime.kubernetes.paths.OPTIONAL_LISTS`.
        annotations: names of the annotations of nodes and pods that these plugins read.
    """

    def __init__(self, context: PluginContext, *, allow: Collection[str] = ()) -> None:
        self._context, self._allow, self._version = context, frozenset(allow), context.kubernetes_version
        self._installed = {plugin.name: plugin for plugin in installed_plugins()}
        self.kinds: frozenset[str] = frozenset()
        self.annotations: frozenset[str] = frozenset()

    def build(self, document: Mapping[str, Any], place: int, scores: Profile) -> SchedulerProfile:
        """Return a profile with all its plugins.

        Args:
            document: the parsed KubeSchedulerConfiguration, whose scores were read without an error.
            place: index of the profile.
            scores: the score plugins of the profile that need no objects but nodes and pods.

        Raises:
            ValueError: the profile enables a plugin that is not implemented (:class:`UnknownPlugin`), or an argument is
                invalid or unknown.
        """
        fields = (document.get("profiles") or [{}])[place]
        self._check(fields, place, scores)
        filters: list[FilterPlugin] = []
        plugins = self._plugins(fields, place, scores, replace(self._context, filters=filters))
        self._check_points(fields, place, plugins)
        filters.extend(_at("filter", FilterPlugin, plugins, fields))
        return SchedulerProfile(
            self._with_scores(scores, plugins, fields, place),
            tuple(filters),
            _queue_sort(plugins, fields, place),
            pre_enqueue=_at("preEnqueue", PreEnqueuePlugin, plugins, fields),
            pre_filters=_at("preFilter", PreFilterPlugin, plugins, fields),
            places_groups=GANG_SCHEDULING in plugins_at("preEnqueue", fields),
            post_filters=_at("postFilter", PostFilterPlugin, plugins, fields),
            reserve=_at("reserve", ReservePlugin, plugins, fields),
            permit=_at("permit", PermitPlugin, plugins, fields),
            pre_bind=_at("preBind", PreBindPlugin, plugins, fields),
            post_bind=_at("postBind", PostBindPlugin, plugins, fields),
            sample_percent=sample_percent(document, place),
        )

    def _plugins(
        self, fields: Mapping[str, Any], place: int, scores: Profile, context: PluginContext
    ) -> Mapping[str, object]:
        """Return the enabled plugins by name; a plugin that also scores is the same object as in ``scores``."""
        missing = in_tree_plugins(LATEST_VERSION) - in_tree_plugins(self._version)
        names = dict.fromkeys(name for point in (*_POINTS, "score") for name in plugins_at(point, fields))
        registered = [name for name in names if name in PLUGINS and name not in missing]
        self.kinds = self.kinds.union(*(PLUGINS[name].reads for name in registered))
        plugins: dict[str, object] = {each.plugin.name: each.plugin for each in scores.plugins}
        for name in names:
            if name in self._installed and name not in plugins:
                plugins[name] = self._build_installed(self._installed[name], fields)
        for name in registered:
            if name not in plugins:
                plugins[name] = PLUGINS[name].build(self._arguments(name, fields, place), context)
        self.annotations = self.annotations.union(
            *(plugin.annotations for plugin in plugins.values() if isinstance(plugin, ReadsAnnotations))
        )
        return plugins

    def _build_installed(self, plugin: type[Plugin], fields: Mapping[str, Any]) -> Plugin:
        """Return a plugin of another package that does not score in this profile."""
        written = [entry.get("args") for entry in fields.get("pluginConfig") or () if entry["name"] == plugin.name]
        arguments = FieldReader(f"{plugin.name}Args", (written[0] if written else None) or {})
        built = reader_of(plugin)(arguments)
        finish(arguments, *WATCHER_KEYS)
        return built

    def _check_points(self, fields: Mapping[str, Any], place: int, plugins: Mapping[str, object]) -> None:
        """Refuse a plugin at an extension point that it does not implement.

        Plugins of kube-scheduler may be enabled at all points that they implement there, even if ours do nothing at a
        point. Plugins of scheduler-plugins implement other points upstream, and are not checked.
        """
        in_tree = table_of(self._version).plugins
        for point in _POINTS:
            for name in (entry["name"] for entry in _enabled(point, fields)):
                if name in UPSTREAM_PLUGINS or not (name in in_tree or name in plugins):
                    continue
                points = in_tree[name] if name in in_tree else points_of(type(plugins[name]))
                if point not in points:
                    where, known = f"profiles[{place}].plugins.{point}", ", ".join(sorted(points))
                    raise ValueError(f"{where}: {name} does not implement {point}, only {known}")

    def _arguments(self, name: str, fields: Mapping[str, Any], place: int) -> FieldReader:
        """Return a reader of a plugin's arguments in a profile; it has no fields if there are no arguments to read.

        Raises:
            ValueError: the arguments are not a mapping.
        """
        for number, entry in enumerate(fields.get("pluginConfig") or ()):
            is_read = entry["name"] == name and not ignores_arguments(name, self._version)
            if is_read and entry.get("args") is not None:
                return FieldReader(f"profiles[{place}].pluginConfig[{number}].args", entry["args"])
        return FieldReader(f"profiles[{place}].pluginConfig", {})

    def _with_scores(
        self, scores: Profile, registered: Mapping[str, object], fields: Mapping[str, Any], place: int
    ) -> Profile:
        """Add the score plugins that read other objects than nodes and pods."""
        scored = {each.plugin.name for each in scores.plugins}
        plugins = [each for each in _of(ScorePlugin, registered.values()) if each.name not in scored]
        volumes = self._volume_score(self._arguments(VolumeCapacityScore.name, fields, place))
        if at_least(self._version, _SCORES_CAPACITY):
            plugins.append(volumes)
        added = ((plugin, _score_weight(plugin.name, fields)) for plugin in plugins)
        weighted = (WeightedPlugin(plugin, weight) for plugin, weight in added if weight)
        return replace(scores, plugins=(*scores.plugins, *weighted))

    def _volume_score(self, reader: FieldReader) -> VolumeCapacityScore:
        shape, objects = read_shape(reader), self._context.objects
        finish(reader, "bindTimeoutSeconds")
        return VolumeCapacityScore(objects, shape) if shape else VolumeCapacityScore(objects)

    def _check(self, fields: Mapping[str, Any], place: int, scores: Profile) -> None:
        """Check that every enabled plugin is implemented."""
        scored = {weighted.plugin.name for weighted in scores.plugins}
        known = {*DEFAULT_PLUGINS, *PLUGINS, *self._allow, *scored, *self._installed}
        for point, plugin_set in (fields.get("plugins") or {}).items():
            for entry in (plugin_set or {}).get("enabled") or () if point in (*_POINTS, "multiPoint") else ():
                if entry["name"] not in known:
                    where = f"profiles[{place}].plugins.{point}"
                    problem = f"{entry['name']} is not implemented by trimaran scheduler; remove it"
                    raise UnknownPlugin(f"{where}: {problem}", entry["name"])


def plugins_at(point: str, fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the plugins that are enabled at an extension point, in order.

    Args:
        point: name of the extension point, such as ``filter``.
        fields: profile of a KubeSchedulerConfiguration.
    """
    names = list(DEFAULT_PLUGINS)
    plugins = fields.get("plugins") or {}
    for plugin_set in (plugins.get("multiPoint") or {}, plugins.get(point) or {}):
        disabled = {entry["name"] for entry in plugin_set.get("disabled") or ()}
        names = [] if "*" in disabled else [name for name in names if name not in disabled]
        names += [entry["name"] for entry in plugin_set.get("enabled") or () if entry["name"] not in names]
    return names


def _enabled(point: str, fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the plugins that a profile names at an extension point."""
    plugin_set = (fields.get("plugins") or {}).get(point) or {}
    return plugin_set.get("enabled") or ()


def _score_weight(name: str, fields: Mapping[str, Any]) -> int:
    """Return the weight of a score plugin, by default 1; 0 if the plugin is disabled."""
    if name not in plugins_at("score", fields):
        return 0
    weight = 1
    for point in ("multiPoint", "score"):
        for entry in _enabled(point, fields):
            if entry["name"] == name:
                weight = entry.get("weight") or 1
    return weight


def _at(point: str, kind: type[Kind], registered: Mapping[str, object], fields: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Return the plugins that implement an extension point and are enabled there, in order."""
    return _of(kind, (registered[name] for name in plugins_at(point, fields) if name in registered))


def _of(kind: type[Kind], plugins: Iterable[object]) -> tuple[Kind, ...]:
    return tuple(plugin for plugin in plugins if isinstance(plugin, kind))


def _queue_sort(registered: Mapping[str, object], fields: Mapping[str, Any], place: int) -> QueueSortPlugin:
    orders = _at("queueSort", QueueSortPlugin, registered, fields)
    if len(orders) > 1:
        first, second = orders[0].name, orders[1].name
        raise ValueError(
            f"profiles[{place}].plugins.queueSort: {first} and {second} are both enabled, and only one plugin can "
            f"order the queue; add disabled: [{{name: {first}}}]"
        )
    return orders[0] if orders else PrioritySort()
