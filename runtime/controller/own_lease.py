"""Lease of a controller, from its settings."""

import socket
from typing import Protocol
from uuid import uuid4

from runtime.kubernetes.api import Sender
from runtime.kubernetes.leader_election import Lease


class LeaseSection(Protocol):
    """Settings of a controller of which one replica acts."""

    @property
    def lease_namespace(self) -> str:
        """Namespace of the Lease."""

    @property
    def lease_name(self) -> str:
        """Name of the Lease."""


def open_lease(api: Sender, section: LeaseSection, name: str, seconds: float) -> Lease:
    """Return the Lease by which the replicas of a controller agree on one that acts; nothing is sent.

    Args:
        api: client of the API server.
        section: settings of the controller.
        name: name of the section, such as ``rebalance``, for messages.
        seconds: duration of the Lease after each renewal.
    """
    identity = f"{socket.gethostname()}_{uuid4().hex[:8]}"
    setting = f"{name}.lease_namespace"
    return Lease(api, section.lease_namespace, section.lease_name, identity, seconds, setting=setting)
