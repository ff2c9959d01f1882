"""The step-by-step checks: is the provider there, does it let us in, does it know the nodes, are its values right?

``examination`` goes through all steps; ``address`` tries the way to a provider, ``metrics`` what it answers and which
nodes that is about, ``place`` where the store is kept; ``background`` does it all inside the running service.
``running`` asks a watcher that runs elsewhere instead; ``nodes`` knows which nodes the cluster has.
"""

from watcher.doctor.background import Doctor
from watcher.doctor.examination import examine

__all__ = ["Doctor", "examine"]
