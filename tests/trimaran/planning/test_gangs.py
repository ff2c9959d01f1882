"""One function reads every way to name a gang."""

from typing import Any

import pytest

from runtime.kubernetes.objects import Pod
from trimaran.planning.gangs import gang_of


@pytest.mark.parametrize(
    ("labels", "spec", "expected"),
    [
        ({}, {}, ""),
        ({"scheduling.x-k8s.io/pod-group": "a"}, {}, "ml/a"),
        ({"pod-group.scheduling.sigs.k8s.io/name": "b"}, {}, "ml/b"),
        ({"pod-group.scheduling.sigs.k8s.io": "c"}, {}, "ml/c"),
        ({}, {"schedulingGroup": {"podGroupName": "d"}}, "ml/d"),
    ],
)
def test_each_way_to_name_a_gang_is_read(labels: dict[str, str], spec: dict[str, Any], expected: str) -> None:
    """The PodGroup in the spec and each of the labels name the pod's gang; other pods have none."""
    manifest = {"metadata": {"name": "worker-0", "namespace": "ml", "labels": labels}, "spec": spec}
    assert gang_of(manifest, Pod.from_k8s(manifest)) == expected
