"""Resources that a policy's plugins read and a replay does not have."""

import logging

import pytest
from support.worlds import small_world

from scoring import LoadVariationRiskBalancing, NodeResourcesFit, Profile, TargetLoadPacking
from scoring.load.measured_resource import CPU_LOAD, DISK_LOAD, MEMORY_LOAD, NETWORK_LOAD
from scoring.plugins.congestion import CongestedResource
from scoring.plugins.congestion_cost import CongestionCost
from scoring.plugins.node_resources_fit import ResourceWeight
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.profiles import ProfilePolicy
from trimaran.simulator.replay import Replay

TRACE = small_world(2, [("Job", 0.5)])
NETWORK = TargetLoadPacking(resource=NETWORK_LOAD.name)


@pytest.mark.parametrize(
    ("plugin", "absent"),
    [
        (LoadVariationRiskBalancing(resources=(CPU_LOAD, MEMORY_LOAD, NETWORK_LOAD)), NETWORK_LOAD.name),
        (CongestionCost(resources=(CongestedResource(DISK_LOAD, 75.0, 8.0),)), DISK_LOAD.name),
        (NodeResourcesFit(resources=(ResourceWeight("cpu"), ResourceWeight("nvidia.com/gpu"))), "nvidia.com/gpu"),
        (NETWORK, NETWORK_LOAD.name),
        (TargetLoadPacking(parts=((NETWORK, 1),)), NETWORK_LOAD.name),
    ],
)
def test_a_resource_that_a_replay_does_not_have_is_said(
    caplog: pytest.LogCaptureFixture, plugin: object, absent: str
) -> None:
    """The log names the policy and the resource, once for all replays of the policy."""
    policy = ProfilePolicy(f"mine-{id(plugin)}", Profile.of(plugin))
    with caplog.at_level(logging.WARNING):
        Replay(TRACE, policy)
        Replay(TRACE, policy)
    expected = f"policy {policy.name} reads {absent}, which replays do not simulate: they have cpu, memory"
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_no_policy_of_the_catalogue_reads_an_absent_resource(caplog: pytest.LogCaptureFixture) -> None:
    """The policies of the catalogue read CPU and memory alone."""
    for policy in policies(TRACE).values():
        Replay(TRACE, policy)
    assert caplog.records == []
