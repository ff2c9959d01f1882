"""Plugins of a profile in a KubeSchedulerConfiguration, at the extension points other than Score.

Which plugins run where is kube-scheduler's default, merged with ``plugins.multiPoint`` and with the plugin sets of the
points as kube-scheduler merges them. Source: ``getDefaultPlugins`` and ``expandMultiPointPlugins`` of kube-scheduler.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

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
from trimaran.scheduler.coscheduling import Coscheduling, CoschedulingArgs
from trimaran.scheduler.extension_points import PostBindPlugin, PreBindPlugin, QueueSortPlugin, ReservePlugin
from trimaran.scheduler.gang_directory import GangDirectory
from trimaran.scheduler.group_cycle import GANG_SCHEDULING
from trimaran.scheduler.node_sampling import sample_percent
from trimaran.scheduler.other_objects import ObjectCache
from trimaran.scheduler.preemption import DefaultPreemption, PreemptionOptions
from trimaran.scheduler.profile import PrioritySort, SchedulerProfile, SchedulingGates
from trimaran.scheduler.resource_claims import DynamicResources
from trimaran.scheduler.volumes.binding import VolumeBinding
from trimaran.scheduler.volumes.capacity_score import VolumeCapacityScore
from trimaran.scheduler.volumes.limits import NodeVolumeLimits
from trimaran.scheduler.volumes.restrictions import VolumeRestrictions
from trimaran.scheduler.volumes.zone import VolumeZone

# Filters in kube-scheduler's order; those that also score get their arguments from the configuration.
_WITH_ARGUMENTS = ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")
DEFAULT_PLUGINS: Final = (
    "SchedulingGates", "PrioritySort", "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
    "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread",
    "InterPodAffinity", "DynamicResources", "DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality",
    "DefaultBinder", "NodeDeclaredFeatures",
)  # fmt: skip
_GANG_PLUGINS = (Coscheduling.name, GANG_SCHEDULING)
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


class ProfileBuilder:
    """Builder of the profiles of one scheduler.

    Args:
        objects: objects that plugins read.
        dice: draws the node at which preemption starts to search.
        binds_claims: bind volume claims that wait for their pod; see
            :class:`~trimaran.scheduler.volumes.binding.VolumeBinding`.
        preempts_shared: preempt also on nodes that other schedulers use or may use.
        allow: names of plugins that may stand in a file although they are not implemented.
        gangs: gangs, for the profiles that place them.
    """

    def __init__(
        self,
        objects: ObjectCache,
        dice: random.Random,
        *,
        binds_claims: bool = False,
        preempts_shared: bool = False,
        allow: Collection[str] = (),
        gangs: GangDirectory | None = None,
    ) -> None:
        self._gangs = GangDirectory() if gangs is None else gangs
        self._objects, self._dice, self._allow = objects, dice, frozenset(allow)
        self._preempts_shared = preempts_shared
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
            scores: the score plugins of the profile, without that of VolumeBinding.

        Raises:
            ValueError: the profile enables a plugin that is not implemented (:class:`UnknownPlugin`), or an argument is
                invalid or unknown.
        """
        fields = (document.get("profiles") or [{}])[place]
        arguments = {entry["name"]: entry.get("args") for entry in fields.get("pluginConfig") or ()}
        self._check(fields, place, scores)
        filters = tuple(self._filters(fields, place, scores, arguments))
        gates = (SchedulingGates(),) if "SchedulingGates" in plugins_at("preEnqueue", fields) else ()
        preempts = "DefaultPreemption" in plugins_at("postFilter", fields)
        options = replace(
            _preemption_options(_arguments("DefaultPreemption", fields, place)),
            on_shared_nodes=self._preempts_shared,
        )
        preemption = DefaultPreemption(filters, lambda: self._objects.budgets, self._dice, options)
        weight = _score_weight(VolumeCapacityScore.name, fields)
        score = self._volume_score(_arguments(VolumeCapacityScore.name, fields, place))
        if weight:
            scores = replace(scores, plugins=(*scores.plugins, WeightedPlugin(score, weight)))
        gangs = self._coscheduling(fields, place)
        return SchedulerProfile(
            scores,
            filters,
            _queue_sort(gangs, fields, place),
            pre_enqueue=gates,
            pre_filters=_at("preFilter", gangs, fields),
            places_groups=GANG_SCHEDULING in plugins_at("preEnqueue", fields),
            post_filters=(*((preemption,) if preempts else ()), *_at("postFilter", gangs, fields)),
            reserve=(
                *(each for each in filters if isinstance(each, ReservePlugin)),
                *_at("reserve", gangs, fields),
            ),
            permit=_at("permit", gangs, fields),
            pre_bind=tuple(each for each in filters if isinstance(each, PreBindPlugin)),
            post_bind=tuple(each for each in filters if isinstance(each, PostBindPlugin)),
            sample_percent=sample_percent(document, place),
        )

    def _filters(
        self, fields: Mapping[str, Any], place: int, scores: Profile, arguments: Mapping[str, Any]
    ) -> "list[FilterPlugin]":
        scored = {weighted.plugin.name: weighted.plugin for weighted in scores.plugins}
        at_filter = {entry["name"] for entry in _enabled("filter", fields)}
        filters = []
        for name in plugins_at("filter", fields):
            plugin: object = scored.get(name)
            if plugin is None and name in self._factories:
                plugin = self._factories[name]()
            elif plugin is None and (name in _WITH_ARGUMENTS or name in installed_filters()):
                notes: list[ConfigNote] = []
                plugin = plugin_from_config(name, arguments.get(name), notes, plugins=installed_plugins())
                refuse_unknown(notes)
            if isinstance(plugin, FilterPlugin):
                filters.append(plugin)
            elif plugin is not None and name in at_filter:
                raise ValueError(
                    f"profiles[{place}].plugins.filter: {name} does not filter nodes; enable it at score or multiPoint"
                )
        return filters

    def _coscheduling(self, fields: Mapping[str, Any], place: int) -> Coscheduling | None:
        if not any(Coscheduling.name in plugins_at(point, fields) for point in _POINTS):
            return None
        reader = _arguments(Coscheduling.name, fields, place)
        return Coscheduling(self._gangs, CoschedulingArgs.from_config(reader.fields, reader.path))

    def _volume_score(self, reader: FieldReader) -> VolumeCapacityScore:
        shape = read_shape(reader)
        _finish(reader, "bindTimeoutSeconds")
        return VolumeCapacityScore(self._objects, shape) if shape else VolumeCapacityScore(self._objects)

    def _check(self, fields: Mapping[str, Any], place: int, scores: Profile) -> None:
        """Check that every enabled plugin is implemented."""
        scored = {weighted.plugin.name for weighted in scores.plugins}
        known = {*DEFAULT_PLUGINS, *_GANG_PLUGINS, *self._allow, *scored, *installed_filters()}
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


def _at(point: str, gangs: Coscheduling | None, fields: Mapping[str, Any]) -> tuple[Coscheduling, ...]:
    """Return the plugin if there is one and it is enabled at an extension point."""
    return (gangs,) if gangs is not None and gangs.name in plugins_at(point, fields) else ()


def _queue_sort(gangs: Coscheduling | None, fields: Mapping[str, Any], place: int) -> QueueSortPlugin:
    names = plugins_at("queueSort", fields)
    if gangs is None or gangs.name not in names:
        return PrioritySort()
    if PrioritySort.name in names:
        raise ValueError(
            f"profiles[{place}].plugins.queueSort: PrioritySort and {gangs.name} are both enabled, and only one plugin "
            "can order the queue; add disabled: [{name: PrioritySort}]"
        )
    return gangs


def _arguments(name: str, fields: Mapping[str, Any], place: int) -> FieldReader:
    """Return a reader of a plugin's arguments in a profile; it has no fields if the plugin is not configured.

    Raises:
        ValueError: the arguments are not a mapping.
    """
    for number, entry in enumerate(fields.get("pluginConfig") or ()):
        if entry["name"] == name and entry.get("args") is not None:
            return FieldReader(f"profiles[{place}].pluginConfig[{number}].args", entry["args"])
    return FieldReader(f"profiles[{place}].pluginConfig", {})


def _finish(reader: FieldReader, *others: str) -> None:
    """Refuse the keys that were not read, but for some others that have no effect."""
    for key in ("apiVersion", "kind", *others):
        reader.raw(key)
    reader.finish()
    refuse_unknown(reader.notes)


def _preemption_options(reader: FieldReader) -> PreemptionOptions:
    defaults = PreemptionOptions()
    percent = reader.value("minCandidateNodesPercentage", defaults.min_candidate_percent)
    least = reader.value("minCandidateNodesAbsolute", defaults.min_candidates)
    _finish(reader)
    for key, value in (("minCandidateNodesPercentage", percent), ("minCandidateNodesAbsolute", least)):
        if type(value) is not int:
            raise reader.error(key, f"must be a whole number, got {value!r}")
    try:
        return PreemptionOptions(percent, least)
    except ValueError as error:
        raise ValueError(f"{reader.path}.{error}") from None
