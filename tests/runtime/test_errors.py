"""Values in messages: quoted, and cut where they are long."""

from typing import Any

import pytest

from runtime.errors import quoted
from runtime.kubernetes.k8s_fields import unix_seconds
from runtime.kubernetes.objects import Pod
from scoring.profiles.configuration.profiles import read_configuration


def test_a_short_value_is_its_repr() -> None:
    """Texts have quotes, and other values are written as in Python."""
    assert [quoted(each) for each in ("a'b", 5, None, ["x"])] == ['"a\'b"', "5", "None", "['x']"]


def test_a_long_value_is_cut() -> None:
    """A value of megabytes leaves the message readable, with the remedy behind it."""
    assert quoted("x" * 1_000_000) == f"'{'x' * 999}... (1000002 characters)"


@pytest.mark.parametrize("key", ["kind", "apiVersion", "profiles"])
def test_a_configuration_of_megabytes_is_not_repeated(key: str) -> None:
    """Each message about a key of a file has one thousand characters of its value at most."""
    document = {"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1", "profiles": []}
    with pytest.raises(ValueError, match=key) as raised:
        read_configuration({**document, key: "x" * 1_000_000})
    assert len(str(raised.value)) < 3000


def test_a_time_of_an_object_is_not_repeated() -> None:
    """A text of 256 KiB in an annotation is cut in the message that names it."""
    with pytest.raises(ValueError, match="time") as raised:
        unix_seconds("x" * 250_000, "metadata")
    assert len(str(raised.value)) < 1100


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": LONG}]}]}}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": [LONG]}]}]}}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": LONG, "maxSkew": 1, "topologyKey": "a"}]},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "maxSkew": LONG, "topologyKey": "a"}]},
        {"containers": [{"name": "a", "ports": [{"hostPort": LONG}]}]},
        {"priority": LONG},
    ],
    ids=["operator", "values", "whenUnsatisfiable", "maxSkew", "hostPort", "priority"],
)  # fmt: skip
def test_an_error_about_a_long_value_is_short(spec: dict[str, Any]) -> None:
    """The message about a pod that cannot be read has at most some thousand characters, whatever the pod says."""
    with pytest.raises(ValueError, match="characters") as failure:
        Pod.from_k8s({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"containers": [], **spec}})
    assert len(str(failure.value)) < 3000
