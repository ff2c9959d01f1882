"""Load-aware placement for Kubernetes.

The parts are packages of their own: :mod:`watcher`, :mod:`client`, :mod:`scoring`, :mod:`cluster`,
:mod:`extender` and :mod:`simulator`.
"""

__version__ = "0.1.0"
