"""Tests of the URLs of addresses in Kubernetes objects."""

from typing import Any

import pytest

from runtime.kubernetes.addresses import https_origin


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.7", "https://10.0.0.7:10250"),
        ("2001:DB8:0::1", "https://[2001:db8::1]:10250"),
        ("fd00::a", "https://[fd00::a]:10250"),
    ],
)
def test_an_ip_address_is_written_in_its_canonical_form(address: str, origin: str) -> None:
    """Both families have a URL, with the brackets of IPv6."""
    assert https_origin(address, 10250) == origin


@pytest.mark.parametrize(
    "address", ["host", "10.0.0.7@host", "fe80::1%eth0", "::1%]@host", "[::1]", "1", "", " 10.0.0.7"]
)
def test_anything_else_has_no_url(address: str) -> None:
    """Names, URLs, zones and numbers raise an error instead of reaching a URL."""
    with pytest.raises(ValueError, match=r"IPv4|zone"):
        https_origin(address, 10250)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::a9fe:a9fe", "224.0.0.1", "ff02::1",
        "::ffff:0.0.0.0", "255.255.255.255",
    ],
)  # fmt: skip
def test_an_address_that_no_node_has_has_no_url(address: str) -> None:
    """Unspecified, link-local, multicast and broadcast addresses are refused, also as mapped ones."""
    with pytest.raises(ValueError, match="is not an address of a node"):
        https_origin(address, 10250)


@pytest.mark.parametrize("port", [-1, 0, 65536, True, 10250.5, "10250", None])
def test_a_port_is_between_1_and_65535(port: Any) -> None:
    """A port that no host has raises an error."""
    with pytest.raises(ValueError, match="is not a port"):
        https_origin("10.0.0.7", port)
