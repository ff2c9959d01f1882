"""How many nodes a policy saves: on how few of them it is as good as the default scheduler is on all.

Nodes are taken away evenly over their sizes, and requests are divided by so much more as capacity shrank, for then the
same share of what is allocatable is requested. As good is: no more hot node-minutes at 80 percent in all, no more
node-minutes with memory above capacity, and no more pods that got no node.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from trimaran.simulator.measures import measures
from trimaran.simulator.policies.base import Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.trace import Trace

_MOST_PERCENT = 40
_AROUND = 3
_AS_GOOD = ("hot_minutes_80", "memory_overrun_minutes", "unplaced_pods")


def fewer_nodes(trace: Trace, removed: int) -> Trace:
    """Return the trace with so many nodes less, and requests that are divided by so much more."""
    order = np.lexsort((trace.memory_capacity_bytes, trace.cpu_capacity_milli))
    gone = order[((np.arange(removed) + 0.5) * len(order) / max(removed, 1)).astype(np.int64)]
    kept = np.setdiff1d(np.arange(len(order)), gone)
    names = {trace.nodes[place] for place in gone.tolist()}
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
        events=tuple(event for event in trace.events if event.node not in names),
    )


def nodes_saved(trace: Trace, policy: Policy, default: Mapping[str, float], options: ReplayOptions) -> int:
    """Return how many of the nodes a policy can do without.

    Hot minutes need not rise steadily with each node less, so it is not where halving happens to end: the three numbers
    to each side of that are replayed, too, and those counted on which the policy is as good. It is taken to be so on
    fewer than those, and not on more.

    Args:
        trace: the world.
        policy: the policy.
        default: the measures of the default scheduler on all nodes.
        options: of the replays; an overcommit and events in them take the place of the trace's.
    """
    # As the trace's own they follow the nodes that are left.
    if options.overcommit is not None:
        trace, options = replace(trace, overcommit=options.overcommit), replace(options, overcommit=None)
    if options.events is not None:
        trace, options = replace(trace, events=options.events), replace(options, events=None)

    def as_good(removed: int) -> bool:
        made = measures(Replay(fewer_nodes(trace, removed), policy, options).run())
        return all(made[name] <= default[name] for name in _AS_GOOD)

    return count_around_the_edge(as_good, len(trace.nodes) * _MOST_PERCENT // 100)


def count_around_the_edge(holds: Callable[[int], bool], most: int) -> int:
    """Return for how many of the numbers from 1 on something holds that holds for small ones, but for chance.

    Args:
        holds: says it of a number; asked once of each that is looked at.
        most: the last number.
    """
    known = cache(holds)
    edge = bisect_left(range(1, most + 1), True, key=lambda number: not known(number))
    around = range(max(1, edge - _AROUND + 1), min(most, edge + _AROUND) + 1)
    return around.start - 1 + sum(map(known, around))
