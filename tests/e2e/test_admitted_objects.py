"""Objects of other kinds than pods that a real API server accepts can be read, sent as a dry run with odd leaves.

``TRIMARAN_ODD_OBJECTS=500`` sends more of each kind.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest
import requests
from control_plane.api import collection
from control_plane.cluster import ControlPlane
from control_plane.gang_scenarios import RESOURCES as GANGS
from control_plane.numa_scenarios import RESOURCES as TOPOLOGIES
from control_plane.plugin_oracle import define
from control_plane.quota_scenarios import RESOURCES as QUOTAS
from support.odd_objects import KINDS, OddKind, odd_object
from support.odd_pods import Object, are_quantities, odd_amounts

pytestmark = pytest.mark.e2e
EACH = int(os.environ.get("TRIMARAN_ODD_OBJECTS", "40"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows the custom resources."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        define(cluster.api, (*QUOTAS, *GANGS, *TOPOLOGIES))
        yield cluster


def _admitted(cluster: ControlPlane, made: Object) -> Object | None:
    """Return an object as the API server would store it; None if it, or the schema of a custom resource, refuses it."""
    if "k8s.io/v1alpha" in made["apiVersion"] and not are_quantities(odd_amounts(made)):
        return None
    try:
        answer: Object = cluster.api.request("POST", collection(made), json=made, params={"dryRun": "All"}).json()
    except requests.HTTPError as error:
        if error.response.status_code not in {400, 422}:
            raise
        return None
    return answer


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.document["kind"]))
def test_objects_that_the_api_server_accepts_can_be_read(cluster: ControlPlane, kind: OddKind, record_property) -> None:
    """The plain object and each accepted one with odd leaves is read without an exception."""
    dice, counts = random.Random(53), Counter[str]()
    plain = _admitted(cluster, kind.document)
    assert plain is not None
    kind.read(plain)
    for _ in range(EACH):
        admitted = _admitted(cluster, odd_object(dice, kind))
        counts["refused" if admitted is None else "read"] += 1
        if admitted is not None:
            kind.read(admitted)
    name = kind.document["kind"]
    record_property("figures", f"{name}: {counts['read']} of {EACH} odd ones accepted, all of them read")
    assert counts["read"]
