"""Load-aware placement for Kubernetes: commands, scheduler, extender, rebalancer, dashboard and simulator.

The other packages are :mod:`watcher`, :mod:`client`, :mod:`scoring` and :mod:`runtime`.
"""

__version__ = "0.2.0"
