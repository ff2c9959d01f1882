"""The policies that are compared, by name. Arguments are upstream's defaults where nothing else is said."""

from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.tail_risk import TailRisk
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profile import Profile
from simulator.policies.base import Policy
from simulator.policies.clairvoyant import Clairvoyant, Random
from simulator.policies.profiles import ByProfile
from simulator.trace import Trace

DEFAULT = "default"
CLAIRVOYANT = "clairvoyant"


def policies(trace: Trace | None) -> dict[str, Policy]:
    """Return every policy by its name, for a trace: Peaks needs a power model for each of its nodes.

    Without a trace they are good for their names only.
    """
    fit, balanced = NodeResourcesFit(), NodeResourcesBalancedAllocation()
    packing, variation = TargetLoadPacking(), LoadVariationRiskBalancing()
    # The example that Peaks is documented with; watts at x percent are k0 + k1 e^(k2 x).
    power = PowerModel(471.7412504314313, -91.50493019588365, -0.07186049052516228)
    profiles = {
        DEFAULT: Profile.of(fit, balanced),
        "most-allocated": Profile.of(NodeResourcesFit("MostAllocated"), balanced),
        "target-load-packing": Profile.of(packing),
        "load-variation-risk-balancing": Profile.of(variation),
        "target-load-packing+load-variation-risk-balancing": Profile.of(packing, variation),
        "peaks": Profile.of(Peaks(dict.fromkeys(trace.nodes if trace else (), power))),
        "low-risk-over-commitment": Profile.of(LowRiskOverCommitment()),
        "tail-risk": Profile.of(TailRisk()),
    }
    made: list[Policy] = [ByProfile(name, profile) for name, profile in profiles.items()]
    made.append(ByProfile("right-sized", profiles[DEFAULT], right_sized=True))
    made += [Random(), Clairvoyant(CLAIRVOYANT)]
    return {policy.name: policy for policy in made}


def policy_names() -> list[str]:
    """Return the names of all policies."""
    return list(policies(None))
