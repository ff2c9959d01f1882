"""Plugins that a profile can enable besides kube-scheduler's default ones: gangs, and the rest of scheduler-plugins.

A plugin of this list runs at each extension point that its class implements and at which the profile enables it. To add
one: its class into :mod:`trimaran.scheduler.plugins`, an entry here, the decoder of the objects that it reads into
:mod:`~trimaran.scheduler.profiles.object_cache`, their path into :mod:`~trimaran.scheduler.profiles.object_kinds`, and
the right to list them into the manifests.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scoring.plugins.filtering import FilterPlugin
from scoring.profiles.configuration.fields import FieldReader
from trimaran.scheduler.framework.gang_directory import GangDirectory
from trimaran.scheduler.framework.group_cycle import GANG_SCHEDULING
from trimaran.scheduler.plugins.arguments import finish
from trimaran.scheduler.plugins.disk_io import NodeDiskIO
from trimaran.scheduler.plugins.gangs.coscheduling import Coscheduling, CoschedulingArgs
from trimaran.scheduler.plugins.network.overhead import NetworkOverhead, NetworkOverheadArgs, read_namespaces
from trimaran.scheduler.plugins.network.topological_sort import TopologicalSort
from trimaran.scheduler.plugins.node_metadata import NodeMetadata
from trimaran.scheduler.plugins.numa.topology_match import KIND as NODE_TOPOLOGIES
from trimaran.scheduler.plugins.numa.topology_match import NodeResourceTopologyMatch, TopologyMatchArgs
from trimaran.scheduler.plugins.preemption.cross_node import CrossNodeArgs, CrossNodePreemption
from trimaran.scheduler.plugins.preemption.default_preemption import PreemptionOptions
from trimaran.scheduler.plugins.preemption.toleration import PreemptionToleration
from trimaran.scheduler.plugins.qos_sort import QOSSort
from trimaran.scheduler.plugins.quotas.capacity_scheduling import CapacityScheduling
from trimaran.scheduler.plugins.syscalls import KIND as SECCOMP_PROFILES
from trimaran.scheduler.plugins.syscalls import SySched
from trimaran.scheduler.profiles.object_cache import ObjectCache


@dataclass(frozen=True)
class PluginContext:
    """Parts of a scheduler that plugins may use.

    Attributes:
        objects: objects of the cluster other than nodes and pods.
        gangs: gangs with their pods.
        dice: draws the node at which preemption starts to search.
        preempts_shared: preempt also on nodes that other schedulers use or may use.
        filters: filter plugins of the profile, in order; complete once the profile is built.
    """

    objects: ObjectCache
    gangs: GangDirectory
    dice: random.Random
    preempts_shared: bool = False
    filters: Sequence[FilterPlugin] = ()


@dataclass(frozen=True)
class RegisteredPlugin:
    """Plugin that a profile can enable.

    Attributes:
        build: returns the plugin by its arguments; raises ValueError for arguments that are not valid.
        reads: kinds of objects to watch for it, of :data:`~trimaran.scheduler.profiles.object_kinds.OPTIONAL_KINDS`.
    """

    build: Callable[[FieldReader, PluginContext], object]
    reads: frozenset[str] = field(default=frozenset())


def _coscheduling(arguments: FieldReader, context: PluginContext) -> Coscheduling:
    return Coscheduling(context.gangs, CoschedulingArgs.from_config(arguments.fields, arguments.path))


def read_preemption_options(arguments: FieldReader, context: PluginContext) -> PreemptionOptions:
    """Return the options of a preemption; raise ValueError for arguments that are not valid."""
    return PreemptionOptions.from_config(arguments, on_shared_nodes=context.preempts_shared)


def _preemption_toleration(arguments: FieldReader, context: PluginContext) -> PreemptionToleration:
    objects, options = context.objects, read_preemption_options(arguments, context)
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


PLUGINS: Final[Mapping[str, RegisteredPlugin]] = {
    CapacityScheduling.name: RegisteredPlugin(_capacity_scheduling, frozenset({"ElasticQuota"})),
    Coscheduling.name: RegisteredPlugin(_coscheduling, frozenset({"PodGroup.scheduling.x-k8s.io"})),
    # Not an object of its own: the scheduling cycle of a profile handles these groups itself.
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
