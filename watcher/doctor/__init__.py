"""Step-by-step diagnosis of a provider: connection, credentials, nodes and values.

``examination`` runs all steps; ``address`` checks the network connection, ``metrics`` the fetched metrics and their
nodes, ``store_check`` the location of the store; ``background`` runs all steps inside the service. ``remote_watcher``
checks a running watcher over HTTP instead; ``node_names`` lists the cluster's nodes.
"""

from watcher.doctor.background import Doctor
from watcher.doctor.examination import examine

__all__ = ["Doctor", "examine"]
