"""Load-aware placement of other projects, written from their sources, for the rows *other* of the evidence."""

from rivals.crane import Crane
from rivals.koordinator import KoordinatorLoadAware
from rivals.volcano import VolcanoUsage
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.simulator.policies.profiles import KUBE_SCHEDULER, ProfilePolicy
from trimaran.simulator.policy import Policy


def rivals() -> dict[str, Policy]:
    """Return the policies by name, with the default arguments of their projects."""
    usage = WeightedPlugin(VolcanoUsage(), 5)
    return {
        "koordinator": ProfilePolicy("koordinator", Profile.of(KoordinatorLoadAware())),
        "volcano": ProfilePolicy("volcano", Profile((*KUBE_SCHEDULER.plugins, usage))),
        "crane": Crane("crane", KUBE_SCHEDULER),
    }
