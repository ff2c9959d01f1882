"""Simulator: replays of recorded or synthetic pod use under different placement policies.

The names in ``__all__`` are the public interface: :func:`compare` replays traces with your own profiles.
"""

from trimaran.simulator.policies.catalogue import policy_names
from trimaran.simulator.policy_comparison import PolicyComparison, compare
from trimaran.simulator.report.statistics import Interval
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

__all__ = ["Interval", "PolicyComparison", "Trace", "compare", "policy_names", "read_trace"]
