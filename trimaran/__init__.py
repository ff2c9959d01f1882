"""Load-aware placement for Kubernetes.

The parts are packages of their own: :mod:`watcher`, :mod:`client` and :mod:`scoring`.
"""

__version__ = "0.1.0"
