"""URLs from checked addresses of Kubernetes objects: the API server accepts any text as the address of a node."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_MAX_PORT: Final = 65535
_BROADCAST: Final = IPv4Address("255.255.255.255")


def https_origin(address: str, port: int) -> str:
    """Return ``https://ADDRESS:PORT`` for an IP address in an object.

    Refuses addresses that no node has, such as that of a cloud's metadata service, like the API server's proxy. Accepts
    loopback addresses, unlike that proxy, for a process on the only node. Only the canonical form of the parsed address
    gets into the URL. A name, or text such as ``10.0.0.7@host/path?``, would send the request and its token to a host
    that the object's author chose.

    Raises:
        ValueError: the text is not an IP address of a node, without a zone, or the port is not between 1 and 65,535.
    """
    parsed = ip_address(str(address))  # ip_address(1) would be 0.0.0.1
    if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:  # Python accepts any text as the zone
        raise ValueError(f"{str(address)!r} has a zone, which the address of a node cannot have")
    own = (isinstance(parsed, IPv6Address) and parsed.ipv4_mapped) or parsed
    if own.is_link_local or own.is_multicast or own.is_unspecified or own == _BROADCAST:
        raise ValueError(f"{address} is not an address of a node, but link-local, multicast, broadcast or unspecified")
    if type(port) is not int or not 0 < port <= _MAX_PORT:
        raise ValueError(f"{port} is not a port from 1 to {_MAX_PORT}")
    return f"https://[{parsed}]:{port}" if parsed.version == 6 else f"https://{parsed}:{port}"
