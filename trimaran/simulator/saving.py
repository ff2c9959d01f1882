"""Number of nodes that a policy saves, while it is as good as the default scheduler on all nodes.

Nodes are removed evenly over their sizes. Overcommit rises as capacity shrinks, so that pods request the same share of
it. A policy is as good if it has no more hot node-minutes at 80 percent in total, no more node-minutes with memory use
above capacity, and no more pods without a node.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from trimaran.simulator.measures import measures
from trimaran.simulator.policy import Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.trace import Trace

_MAX_PERCENT = 40
_NEAR = 3
_COMPARED_MEASURES = ("hot_minutes_80", "memory_overrun_minutes", "unplaced_pods")


def fewer_nodes(trace: Trace, removed: int) -> Trace:
    """Return the trace without a number of its nodes and with overcommit raised in proportion."""
    by_size = np.lexsort((trace.memory_capacity_bytes, trace.cpu_capacity_milli))
    gone = by_size[((np.arange(removed) + 0.5) * len(by_size) / max(removed, 1)).astype(np.int64)]
    kept = np.setdiff1d(np.arange(len(by_size)), gone)
    gone_names = {trace.nodes[place] for place in gone.tolist()}
    amounts = (trace.cpu_capacity_milli, trace.memory_capacity_bytes)
    cpu, memory = (
        factor * float(amount.sum() / amount[kept].sum())
        for factor, amount in zip(trace.overcommit, amounts, strict=True)
    )
    return replace(
        trace,
        nodes=tuple(trace.nodes[place] for place in kept.tolist()),
        cpu_capacity_milli=trace.cpu_capacity_milli[kept],
        memory_capacity_bytes=trace.memory_capacity_bytes[kept],
        overcommit=(cpu, memory),
        events=tuple(event for event in trace.events if event.node not in gone_names),
    )


def nodes_saved(trace: Trace, policy: Policy, default: Mapping[str, float], options: ReplayOptions) -> int:
    """Return the number of nodes that a policy can do without.

    The largest number of removed nodes with which the policy is as good as the default scheduler is found by bisection.
    Hot minutes need not rise with each removed node. So three more and three fewer removed nodes are replayed, too, and
    each of these numbers with which the policy is as good counts as a saved node. With even fewer removed nodes the
    policy is assumed to be as good, with even more to be worse.

    Args:
        trace: the trace.
        policy: the policy.
        default: measures of the default scheduler on all nodes.
        options: options of the replays; their overcommit and events replace the trace's.
    """
    # fewer_nodes adapts the trace's overcommit and events to the remaining nodes, so the options' go into the trace.
    if options.overcommit is not None:
        trace, options = replace(trace, overcommit=options.overcommit), replace(options, overcommit=None)
    if options.events is not None:
        trace, options = replace(trace, events=options.events), replace(options, events=None)

    def is_as_good(removed: int) -> bool:
        measured = measures(Replay(fewer_nodes(trace, removed), policy, options).run())
        return all(measured[name] <= default[name] for name in _COMPARED_MEASURES)

    return count_near_edge(is_as_good, len(trace.nodes) * _MAX_PERCENT // 100)


def count_near_edge(predicate: Callable[[int], bool], maximum: int) -> int:
    """Return for how many integers from 1 to a maximum a predicate is True, by bisection.

    Args:
        predicate: True for small numbers and False for large ones, except for noise near the edge; called at most once
            per number.
        maximum: largest number.
    """
    holds = cache(predicate)
    edge = bisect_left(range(1, maximum + 1), True, key=lambda number: not holds(number))
    near = range(max(1, edge - _NEAR + 1), min(maximum, edge + _NEAR) + 1)
    return near.start - 1 + sum(map(holds, near))
