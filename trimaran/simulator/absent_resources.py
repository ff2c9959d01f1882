"""Resources that the plugins of a policy read, although a replay has only CPU and memory."""

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache

from runtime.kubernetes.objects import CPU, MEMORY
from scoring.load.measured_resource import MeasuredResource
from scoring.plugins.node_resources_fit import ResourceWeight
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.profile import Profile
from trimaran.simulator.policy import Policy

_PRESENT = (CPU, MEMORY)
_log = logging.getLogger(__name__)


def warn_of_absent_resources(policy: Policy) -> None:
    """Warn, once for each policy, of resources that the plugins of its profile read and replays do not simulate."""
    profile = getattr(policy, "profile", None)
    plugins = [weighted.plugin for weighted in profile.plugins] if isinstance(profile, Profile) else []
    absent = {name for plugin in plugins for name in _resource_names(plugin)}.difference(_PRESENT)
    if absent:
        _log_once(policy.name, ", ".join(sorted(absent)))


def _resource_names(value: object) -> Iterator[str]:
    """Yield the resources in the arguments of a plugin, at any depth."""
    if isinstance(value, MeasuredResource | ResourceWeight):
        yield value.name
    elif isinstance(value, tuple):
        for part in value:
            yield from _resource_names(part)
    elif is_dataclass(value):
        if isinstance(value, TargetLoadPacking) and not value.parts:
            yield value.resource
        for each in fields(value):
            yield from _resource_names(getattr(value, each.name))


@cache
def _log_once(policy: str, absent: str) -> None:
    _log.warning("policy %s reads %s, which replays do not simulate: they have %s", policy, absent, ", ".join(_PRESENT))
