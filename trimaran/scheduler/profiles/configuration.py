"""Configuration of the scheduler: the profiles of a KubeSchedulerConfiguration, or the default profile."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from runtime.errors import quoted
from scoring.kubernetes_version import LATEST_VERSION, known_version
from scoring.profiles.configuration.fields import UnknownPlugin, refuse_unknown
from trimaran.plugins import DEFAULT_PLUGIN, read_scheduler_file
from trimaran.scheduler.framework.gang_directory import GangDirectory
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.queue import QueueOptions
from trimaran.scheduler.framework.scheduler import OtherObjects, Scheduler
from trimaran.scheduler.profiles.object_cache import STANDARD_KINDS, ObjectCache
from trimaran.scheduler.profiles.profile_builder import ProfileBuilder
from trimaran.scheduler.profiles.registry import PluginContext

DEFAULT_WEIGHT: Final = 5
"""Weight of our plugin in the default profile, next to kube-scheduler's own plugins; see docs/evidence.md."""


@dataclass(frozen=True)
class SchedulerSetup:
    """Parts of a scheduler, built from a configuration.

    Attributes:
        profiles: profiles, by which the pods of each scheduler name are placed.
        options: durations of the queue.
        kinds: kinds of objects to watch besides nodes and pods, of :mod:`runtime.kubernetes.paths`.
        others: store of these objects; None if there are none.
        gangs: gangs, for the profiles that place them.
        annotations: names of the annotations of nodes and pods that plugins read.
    """

    profiles: tuple[SchedulerProfile, ...]
    options: QueueOptions = field(default_factory=QueueOptions)
    kinds: frozenset[str] = frozenset()
    others: OtherObjects | None = None
    gangs: GangDirectory | None = None
    annotations: frozenset[str] = frozenset()

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Scheduler names of the profiles."""
        return tuple(profile.scheduler_name for profile in self.profiles)

    def scheduler(self, seed: int | np.random.Generator | None = None) -> Scheduler:
        """Return a new scheduler; the seed, or a generator, makes ties between equal nodes repeatable."""
        return Scheduler(self.profiles, np.random.default_rng(seed), self.options, self.others, self.gangs)


def read_setup(
    document: Mapping[str, Any],
    allow: Collection[str] = (),
    *,
    binds_claims: bool = False,
    preempts_shared: bool = False,
    kubernetes_version: str = LATEST_VERSION,
    seed: int | None = None,
    allow_with: str = "--set scheduler.allow_plugins=",
) -> SchedulerSetup:
    """Read a KubeSchedulerConfiguration, and refuse unknown keys as kube-scheduler does.

    Args:
        document: the parsed file.
        allow: names of plugins that may stand in the file although trimaran does not know them.
        binds_claims: whether to bind volume claims that wait for their pod.
        preempts_shared: whether to preempt also on nodes that other schedulers use or may use.
        kubernetes_version: version of kube-scheduler whose plugins and rules of scoring apply, such as ``1.36``.
        seed: seed of the node at which preemption starts to search; by default random.
        allow_with: option that errors about an unknown plugin name as the remedy; "" if there is none.

    Raises:
        ValueError: the document is not valid; the message begins with the key.
        UnknownPlugin: a plugin is not known, or not implemented.
    """
    version = known_version(kubernetes_version)
    try:
        configuration = read_scheduler_file(document, kubernetes_version=version, allow=allow)
        refuse_unknown(configuration.notes)
        objects, gangs = ObjectCache(), GangDirectory()
        dice = random.Random(seed)  # noqa: S311  draws a node, not a secret
        context = PluginContext(objects, gangs, dice, preempts_shared, binds_claims, version)
        builder = ProfileBuilder(context, allow=allow)
        profiles = tuple(builder.build(document, place, each) for place, each in enumerate(configuration.profiles))
    except UnknownPlugin as error:
        raise error.with_remedy(allow_with) from None
    if len({profile.queue_sort.name for profile in profiles}) > 1:
        raise ValueError("profiles: all profiles share one queue; enable the same plugin at queueSort in each of them")
    options = QueueOptions(
        initial_backoff_seconds=_seconds(document, "podInitialBackoffSeconds", 1.0),
        max_backoff_seconds=_seconds(document, "podMaxBackoffSeconds", 10.0),
    )
    kinds = STANDARD_KINDS | builder.kinds
    return SchedulerSetup(profiles, options, kinds, objects, gangs, builder.annotations)


def default_document(scheduler_name: str) -> dict[str, Any]:
    """Return the default configuration for a scheduler name: kube-scheduler's plugins and ours by default."""
    score = {"enabled": [{"name": DEFAULT_PLUGIN, "weight": DEFAULT_WEIGHT}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": scheduler_name, "plugins": {"score": score}}],
    }


def _seconds(document: Mapping[str, Any], key: str, default: float) -> float:
    value = document.get(key)
    if value is None:  # null is as good as absent
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key}: must be a number of seconds above 0, got {quoted(value)}")
    return float(value)
