"""From a series' label to a Kubernetes node name."""

import re

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]+)):[0-9]+")


def node_name(label: str) -> str:
    """Return the label without the port that scraped targets carry: ``node-1`` for ``node-1:9100``."""
    match = _HOST_AND_PORT.fullmatch(label)
    return (match["host"] or match["ipv6"]) if match else label
