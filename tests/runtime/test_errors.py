"""Values in messages: quoted, and cut where they are long."""

import pytest

from runtime.errors import quoted
from runtime.kubernetes.k8s_fields import unix_seconds
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
    with pytest.raises(ValueError, match="has an invalid time") as raised:
        unix_seconds("x" * 250_000, "metadata")
    assert len(str(raised.value)) < 1100
