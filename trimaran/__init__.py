"""Load-aware placement for Kubernetes: everything that acts on the scores, shows them or proves them.

The other packages are :mod:`watcher`, :mod:`client`, :mod:`scoring` and :mod:`runtime`.
"""

__version__ = "0.1.0"
