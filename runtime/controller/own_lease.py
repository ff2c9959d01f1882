"""Lease of a controller, from its settings."""

import socket
from uuid import uuid4

from runtime.kubernetes.api import Sender
from runtime.kubernetes.leader_election import Lease


def open_lease(api: Sender, namespace: str, name: str, seconds: float) -> Lease:
    """Return the Lease that elects the one replica of a controller that acts; no request is sent.

    Args:
        api: client of the API server.
        namespace: namespace of the Lease, the setting ``cluster.lease_namespace``.
        name: name of the Lease.
        seconds: duration of the Lease after each renewal.
    """
    identity = f"{socket.gethostname()}_{uuid4().hex[:8]}"
    return Lease(api, namespace, name, identity, seconds, setting="cluster.lease_namespace")
