"""Plugins of a profile in a KubeSchedulerConfiguration, at the extension points other than Score.

Which plugins run where is kube-scheduler's default, merged with ``plugins.multiPoint`` and with the plugin sets of the
points as kube-scheduler merges them. Source: ``getDefaultPlugins`` and ``expandMultiPointPlugins`` of kube-scheduler.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from scoring.kubernetes_version import LATEST_VERSION, at_least, ignores_arguments, in_tree_plugins
from scoring.plugins.base import ScorePlugin
from scoring.plugins.filtering import FilterPlugin
from scoring.plugins.node_declared_features import NodeDeclaredFeatures
from scoring.plugins.node_name import NodeName
from scoring.plugins.node_ports import NodePorts
from scoring.plugins.node_unschedulable import NodeUnschedulable
from scoring.profiles.configuration.fields import ConfigNote, FieldReader, UnknownPlugin, refuse_unknown
from scoring.profiles.configuration.plugins import plugin_from_config, read_shape
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.plugins import installed_filters, installed_plugins
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
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption
from trimaran.scheduler.plugins.resource_claims import DynamicResources
from trimaran.scheduler.plugins.scheduling_gates import SchedulingGates
from trimaran.scheduler.plugins.volumes.binding import VolumeBinding
from trimaran.scheduler.plugins.volumes.capacity_score import VolumeCapacityScore
from trimaran.scheduler.plugins.volumes.limits import NodeVolumeLimits
from trimaran.scheduler.plugins.volumes.restrictions import VolumeRestrictions
from trimaran.scheduler.plugins.volumes.zone import VolumeZone
from trimaran.scheduler.profiles.registry import PLUGINS, PluginContext, read_preemption_options

# Filters in kube-scheduler's order; those that also score get their arguments from the configuration.
_WITH_ARGUMENTS = ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")
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
Plugin = TypeVar("Plugin")


class ProfileBuilder:
    """Builder of the profiles of one scheduler.

    Args:
        context: parts of the scheduler that plugins may use.
        binds_claims: bind volume claims that wait for their pod; see
            :class:`~trimaran.scheduler.plugins.volumes.binding.VolumeBinding`.
        allow: names of plugins that may stand in a file although they are not implemented.
        kubernetes_version: version of kube-scheduler whose plugins and rules of scoring apply.

    Attributes:
        kinds: kinds of objects to watch for the plugins that were built, of
            :data:`~trimaran.scheduler.profiles.object_kinds.OPTIONAL_KINDS`.
        annotations: names of the annotations of nodes and pods that these plugins read.
    """

    def __init__(
        self,
        context: PluginContext,
        *,
        binds_claims: bool = False,
        allow: Collection[str] = (),
        kubernetes_version: str = LATEST_VERSION,
    ) -> None:
        self._context, self._allow, self._version = context, frozenset(allow), kubernetes_version
        self.kinds: frozenset[str] = frozenset()
        self.annotations: frozenset[str] = frozenset()
        objects = context.objects
        self._factories: Mapping[str, Callable[[], FilterPlugin]] = {
            "NodeName": NodeName,
            "NodeUnschedulable": NodeUnschedulable,
            "NodePorts": NodePorts,
            "VolumeRestrictions": lambda: VolumeRestrictions(objects),
            "NodeVolumeLimits": lambda: NodeVolumeLimits(objects),
            "VolumeBinding": lambda: VolumeBinding(objects, binds_claims=binds_claims),
            "VolumeZone": lambda: VolumeZone(objects),
            "DynamicResources": DynamicResources,
            "NodeDeclaredFeatures": NodeDeclaredFeatures,
        }

    def build(self, document: Mapping[str, Any], place: int, scores: Profile) -> SchedulerProfile:
        """Return the profile.

        Args:
            document: the parsed KubeSchedulerConfiguration, which has been read for its scores without an error.
            place: index of the profile.
            scores: the score plugins of the profile that need no objects but nodes and pods.

        Raises:
            ValueError: the profile enables a plugin that is not implemented (:class:`UnknownPlugin`), or an argument is
                invalid or unknown.
        """
        fields = (document.get("profiles") or [{}])[place]
        self._check(fields, place, scores)
        filters: list[FilterPlugin] = []
        registered = self._registered(fields, place, replace(self._context, filters=filters))
        filters.extend(self._filters(fields, place, scores, registered))
        if "DefaultPreemption" in plugins_at("postFilter", fields):
            options = read_preemption_options(self._arguments("DefaultPreemption", fields, place), self._context)
            objects = self._context.objects
            registered = {
                "DefaultPreemption": DefaultPreemption(filters, lambda: objects.budgets, self._context.dice, options),
                **registered,
            }
        names = plugins_at("preEnqueue", fields)
        return SchedulerProfile(
            self._with_scores(scores, registered, fields, place),
            tuple(filters),
            _queue_sort(registered, fields, place),
            pre_enqueue=(
                *((SchedulingGates(),) if "SchedulingGates" in names else ()),
                *_at("preEnqueue", PreEnqueuePlugin, registered, fields),
            ),
            pre_filters=_at("preFilter", PreFilterPlugin, registered, fields),
            places_groups=GANG_SCHEDULING in names,
            post_filters=_at("postFilter", PostFilterPlugin, registered, fields),
            reserve=_unique(_of(ReservePlugin, filters), _at("reserve", ReservePlugin, registered, fields)),
            permit=_at("permit", PermitPlugin, registered, fields),
            pre_bind=_unique(_of(PreBindPlugin, filters), _at("preBind", PreBindPlugin, registered, fields)),
            post_bind=_unique(_of(PostBindPlugin, filters), _at("postBind", PostBindPlugin, registered, fields)),
            sample_percent=sample_percent(document, place),
        )

    def _registered(self, fields: Mapping[str, Any], place: int, context: PluginContext) -> Mapping[str, object]:
        """Return the enabled plugins of the registry, by name in the file's order."""
        names = dict.fromkeys(
            name for point in (*_POINTS, "score") for name in plugins_at(point, fields) if name in PLUGINS
        )
        self.kinds = self.kinds.union(*(PLUGINS[name].reads for name in names))
        plugins = {name: PLUGINS[name].build(self._arguments(name, fields, place), context) for name in names}
        self.annotations = self.annotations.union(
            *(plugin.annotations for plugin in plugins.values() if isinstance(plugin, ReadsAnnotations))
        )
        return plugins

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

    def _filters(
        self, fields: Mapping[str, Any], place: int, scores: Profile, registered: Mapping[str, object]
    ) -> list[FilterPlugin]:
        arguments = {entry["name"]: entry.get("args") for entry in fields.get("pluginConfig") or ()}
        known: Mapping[str, object] = {**{each.plugin.name: each.plugin for each in scores.plugins}, **registered}
        at_filter = {entry["name"] for entry in _enabled("filter", fields)}
        filters = []
        for name in plugins_at("filter", fields):
            plugin = known.get(name)
            if plugin is None and name in self._factories and name in in_tree_plugins(self._version):
                plugin = self._factories[name]()
            elif plugin is None and (name in _WITH_ARGUMENTS or name in installed_filters()):
                notes: list[ConfigNote] = []
                plugin = plugin_from_config(
                    name,
                    arguments.get(name),
                    notes,
                    kubernetes_version=self._version,
                    plugins=installed_plugins(),
                )
                refuse_unknown(notes)
            if isinstance(plugin, FilterPlugin):
                filters.append(plugin)
            elif plugin is not None and name in at_filter:
                raise ValueError(
                    f"profiles[{place}].plugins.filter: {name} does not filter nodes; enable it at score or multiPoint"
                )
        return filters

    def _with_scores(
        self, scores: Profile, registered: Mapping[str, object], fields: Mapping[str, Any], place: int
    ) -> Profile:
        """Return the score plugins with those that read other objects than nodes and pods."""
        plugins = list(_of(ScorePlugin, registered.values()))
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
        known = {*DEFAULT_PLUGINS, *PLUGINS, *self._allow, *scored, *installed_filters()}
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
    """Return the weight of a plugin of kube-scheduler's default that scores with weight 1; 0 if it is disabled."""
    if name not in plugins_at("score", fields):
        return 0
    weight = 1
    for point in ("multiPoint", "score"):
        for entry in _enabled(point, fields):
            if entry["name"] == name:
                weight = entry.get("weight") or 1
    return weight


def _at(
    point: str, kind: type[Plugin], registered: Mapping[str, object], fields: Mapping[str, Any]
) -> tuple[Plugin, ...]:
    """Return the plugins that implement an extension point and are enabled there, in order."""
    return _of(kind, (registered[name] for name in plugins_at(point, fields) if name in registered))


def _of(kind: type[Plugin], plugins: Iterable[object]) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins if isinstance(plugin, kind))


def _unique(*parts: Iterable[Plugin]) -> tuple[Plugin, ...]:
    return tuple({id(plugin): plugin for part in parts for plugin in part}.values())


def _queue_sort(registered: Mapping[str, object], fields: Mapping[str, Any], place: int) -> QueueSortPlugin:
    plugins: Mapping[str, object] = {PrioritySort.name: PrioritySort(), **registered}
    orders = _at("queueSort", QueueSortPlugin, plugins, fields)
    if len(orders) > 1:
        first, second = orders[0].name, orders[1].name
        raise ValueError(
            f"profiles[{place}].plugins.queueSort: {first} and {second} are both enabled, and only one plugin can "
            f"order the queue; add disabled: [{{name: {first}}}]"
        )
    return orders[0] if orders else PrioritySort()
