"""Plugins that a profile of the scheduler can enable, next to the scores of :mod:`scoring` and installed plugins.

A plugin of this list runs at each extension point that its class implements and at which the profile enables it. To add
a plugin, put its class into :mod:`trimaran.scheduler.plugins`, an entry here, the decoder of the objects that it reads
into :mod:`~trimaran.scheduler.profiles.object_cache`, their path into :mod:`~runtime.kubernetes.paths`, and the
permission to list these objects into the manifests.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from scoring.kubernetes_version import LATEST_VERSION
from scoring.plugins.base import ScorePlugin
from scoring.plugins.filtering import FilterPlugin
from scoring.plugins.node_declared_features import NodeDeclaredFeatures
from scoring.plugins.node_name import NodeName
from scoring.plugins.node_ports import NodePorts
from scoring.plugins.node_unschedulable import NodeUnschedulable
from scoring.profiles.configuration.fields import ConfigNote, FieldReader, refuse_unknown
from scoring.profiles.configuration.plugins import plugin_from_config
from trimaran.scheduler.framework.gang_directory import GangDirectory
from trimaran.scheduler.framework.group_cycle import GANG_SCHEDULING
from trimaran.scheduler.framework.priority_sort import PrioritySort
from trimaran.scheduler.plugins.arguments import finish
from trimaran.scheduler.plugins.disk_io import NodeDiskIO
from trimaran.scheduler.plugins.gangs.coscheduling import Coscheduling, CoschedulingArgs
from trimaran.scheduler.plugins.network.overhead import NetworkOverhead, NetworkOverheadArgs, read_namespaces
from trimaran.scheduler.plugins.network.topological_sort import TopologicalSort
from trimaran.scheduler.plugins.node_metadata import NodeMetadata
from trimaran.scheduler.plugins.numa.topology_match import KIND as NODE_TOPOLOGIES
from trimaran.scheduler.plugins.numa.topology_match import NodeResourceTopologyMatch, TopologyMatchArgs
from trimaran.scheduler.plugins.preemption.cross_node import CrossNodeArgs, CrossNodePreemption
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions
from trimaran.scheduler.plugins.preemption.toleration import PreemptionToleration
from trimaran.scheduler.plugins.qos_sort import QOSSort
from trimaran.scheduler.plugins.quotas.capacity_scheduling import CapacityScheduling
from trimaran.scheduler.plugins.resource_claims import DynamicResources
from trimaran.scheduler.plugins.scheduling_gates import SchedulingGates
from trimaran.scheduler.plugins.syscalls import KIND as SECCOMP_PROFILES
from trimaran.scheduler.plugins.syscalls import SySched
from trimaran.scheduler.plugins.volumes.binding import VolumeBinding
from trimaran.scheduler.plugins.volumes.limits import NodeVolumeLimits
from trimaran.scheduler.plugins.volumes.restrictions import VolumeRestrictions
from trimaran.scheduler.plugins.volumes.zone import VolumeZone
from trimaran.scheduler.profiles.object_cache import ObjectCache


@dataclass(frozen=True)
class PluginContext:
    """Parts of a scheduler that plugins may use.

    Attributes:
        objects: objects of the cluster other than nodes and pods.
        gangs: gangs with their pods.
        dice: draws the node at which preemption starts to search.
        preempts_shared: whether to preempt also on nodes that other schedulers use or may use.
        binds_claims: whether to bind volume claims that wait for their pod; see :class:`.VolumeBinding`.
        kubernetes_version: version of kube-scheduler whose plugins and rules of scoring apply.
        filters: filter plugins of the profile, in order; complete once the profile is built.
    """

    objects: ObjectCache
    gangs: GangDirectory
    dice: random.Random
    preempts_shared: bool = False
    binds_claims: bool = False
    kubernetes_version: str = LATEST_VERSION
    filters: Sequence[FilterPlugin] = ()


@dataclass(frozen=True)
class RegisteredPlugin:
    """Plugin that a profile can enable.

    Attributes:
        build: returns the plugin by its arguments; raises ValueError for arguments that are not valid.
        reads: kinds of objects to watch for the plugin, of :data:`~runtime.kubernetes.paths.OPTIONAL_LISTS`.
    """

    build: Callable[[FieldReader, PluginContext], object]
    reads: frozenset[str] = field(default=frozenset())


def _coscheduling(arguments: FieldReader, context: PluginContext) -> Coscheduling:
    return Coscheduling(context.gangs, CoschedulingArgs.from_config(arguments.fields, arguments.path))


def _from_scoring(name: str, arguments: FieldReader, context: PluginContext) -> ScorePlugin:
    """Return a plugin of kube-scheduler that filters and scores, for a profile in which it only filters."""
    notes: list[ConfigNote] = []
    plugin = plugin_from_config(name, arguments.fields, notes, kubernetes_version=context.kubernetes_version)
    refuse_unknown(notes)
    return plugin


def _default_preemption(arguments: FieldReader, context: PluginContext) -> DefaultPreemption:
    objects, options = context.objects, _preemption_options(arguments, context)
    return DefaultPreemption(context.filters, lambda: objects.budgets, context.dice, options)


def _preemption_options(arguments: FieldReader, context: PluginContext) -> PreemptionOptions:
    return PreemptionOptions.from_config(arguments, on_shared_nodes=context.preempts_shared)


def _preemption_toleration(arguments: FieldReader, context: PluginContext) -> PreemptionToleration:
    objects, options = context.objects, _preemption_options(arguments, context)
    return PreemptionToleration(context.filters, lambda: objects.budgets, context.dice, options, objects.priority_class)


def _capacity_scheduling(arguments: FieldReader, context: PluginContext) -> CapacityScheduling:
    finish(arguments)
    objects, options = context.objects, PreemptionOptions(on_shared_nodes=context.preempts_shared)
    return CapacityScheduling(
        context.filters, lambda: objects.budgets, context.dice, options, lambda: objects.elastic_quotas
    )


def _cross_node(arguments: FieldReader, context: PluginContext) -> CrossNodePreemption:
    objects, options = context.objects, PreemptionOptions(on_shared_nodes=context.preempts_shared)
    own = CrossNodeArgs.from_config(arguments)
    return CrossNodePreemption(context.filters, lambda: objects.budgets, context.dice, options, own)


def _topology_match(arguments: FieldReader, context: PluginContext) -> NodeResourceTopologyMatch:
    return NodeResourceTopologyMatch(context.objects, TopologyMatchArgs.from_config(arguments))


def _network_overhead(arguments: FieldReader, context: PluginContext) -> NetworkOverhead:
    return NetworkOverhead(context.objects, NetworkOverheadArgs.from_config(arguments))


def _topological_sort(arguments: FieldReader, context: PluginContext) -> TopologicalSort:
    namespaces = read_namespaces(arguments)
    finish(arguments)
    return TopologicalSort(context.objects, namespaces)


def _qos_sort(arguments: FieldReader, _context: PluginContext) -> QOSSort:
    finish(arguments)
    return QOSSort()


_SCORE_TOO = ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")
PLUGINS: Final[Mapping[str, RegisteredPlugin]] = {
    SchedulingGates.name: RegisteredPlugin(lambda _arguments, _context: SchedulingGates()),
    PrioritySort.name: RegisteredPlugin(lambda _arguments, _context: PrioritySort()),
    NodeName.name: RegisteredPlugin(lambda _arguments, _context: NodeName()),
    NodeUnschedulable.name: RegisteredPlugin(lambda _arguments, _context: NodeUnschedulable()),
    **{name: RegisteredPlugin(partial(_from_scoring, name)) for name in _SCORE_TOO},
    NodePorts.name: RegisteredPlugin(lambda _arguments, _context: NodePorts()),
    VolumeRestrictions.name: RegisteredPlugin(lambda _arguments, context: VolumeRestrictions(context.objects)),
    NodeVolumeLimits.name: RegisteredPlugin(lambda _arguments, context: NodeVolumeLimits(context.objects)),
    VolumeBinding.name: RegisteredPlugin(
        lambda _arguments, context: VolumeBinding(context.objects, binds_claims=context.binds_claims)
    ),
    VolumeZone.name: RegisteredPlugin(lambda _arguments, context: VolumeZone(context.objects)),
    DynamicResources.name: RegisteredPlugin(lambda _arguments, _context: DynamicResources()),
    DefaultPreemption.name: RegisteredPlugin(_default_preemption),
    NodeDeclaredFeatures.name: RegisteredPlugin(lambda _arguments, _context: NodeDeclaredFeatures()),
    CapacityScheduling.name: RegisteredPlugin(_capacity_scheduling, frozenset({"ElasticQuota"})),
    Coscheduling.name: RegisteredPlugin(_coscheduling, frozenset({"PodGroup.scheduling.x-k8s.io"})),
    # There is no plugin object: the scheduling cycle of a profile places these gangs itself.
    GANG_SCHEDULING: RegisteredPlugin(lambda _arguments, _context: None, frozenset({"PodGroup"})),
    NetworkOverhead.name: RegisteredPlugin(_network_overhead, frozenset({"AppGroup", "NetworkTopology"})),
    TopologicalSort.name: RegisteredPlugin(_topological_sort, frozenset({"AppGroup"})),
    NodeDiskIO.name: RegisteredPlugin(
        lambda arguments, context: NodeDiskIO.from_config(context.objects, arguments), frozenset({"NodeDiskIOInfo"})
    ),
    SySched.name: RegisteredPlugin(
        lambda arguments, context: SySched.from_config(context.objects, arguments), frozenset({SECCOMP_PROFILES})
    ),
    NodeMetadata.name: RegisteredPlugin(lambda arguments, _context: NodeMetadata.from_config(arguments)),
    NodeResourceTopologyMatch.name: RegisteredPlugin(_topology_match, frozenset({NODE_TOPOLOGIES})),
    CrossNodePreemption.name: RegisteredPlugin(_cross_node),
    PreemptionToleration.name: RegisteredPlugin(_preemption_toleration, frozenset({"PriorityClass"})),
    QOSSort.name: RegisteredPlugin(_qos_sort),
}
"""Plugins by name."""
