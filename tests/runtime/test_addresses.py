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
    ("addresses", "port", "named"),
    [
        (["host", "10.0.0.7@host", "fe80::1%eth0", "::1%]@host", "[::1]", "1", "", " 10.0.0.7"], 10250, r"IPv4|zone"),
        (["0.0.0.0", "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::a9fe:a9fe", "224.0.0.1", "ff02::1",
          "::ffff:0.0.0.0", "255.255.255.255"], 10250, "address"),
        *((["10.0.0.7"], port, "port") for port in (-1, 0, 65536, True, 10250.5, "10250", None)),
    ],
)  # fmt: skip
def test_anything_else_has_no_url(addresses: list[str], port: Any, named: str) -> None:
    """Names, URLs, zones, numbers, addresses that no node has, also mapped ones, and wrong ports are errors."""
    for address in addresses:
        with pytest.raises(ValueError, match=named):
            https_origin(address, port)
