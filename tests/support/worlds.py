"""Small traces to replay, with an obvious outcome."""

import numpy as np

from trimaran.traces.trace import PodUse, Trace

GIB = 2**30


def small_world(nodes: int, pods: list[tuple[str, float]], minutes: int = 240) -> Trace:
    """Return a trace of 10-core nodes and pods that request 2 cores and use a fixed share of them from the start."""
    count = len(pods)
    whole = np.full(count, minutes, np.int64)
    return Trace(
        name="small",
        nodes=tuple(f"n{i}" for i in range(nodes)),
        cpu_capacity_milli=np.full(nodes, 10_000),
        memory_capacity_bytes=np.full(nodes, 64 * GIB),
        pods=tuple(f"p{i}" for i in range(count)),
        owner_kinds=tuple(kind for kind, _ in pods),
        owners=tuple(f"owner-{i}" for i in range(count)),
        arrival_minute=np.zeros(count, np.int64),
        end_minute=whole,
        cpu_request_milli=np.full(count, 2000),
        memory_request_bytes=np.full(count, GIB),
        cpu_limit_milli=np.full(count, -1),
        memory_limit_bytes=np.full(count, -1),
        use=PodUse(
            np.arange(count + 1) * minutes,
            np.repeat([level for _, level in pods], minutes).astype(np.float16),
            np.full(count * minutes, 0.5, np.float16),
        ),
        overcommit=(1.0, 1.0),
        warm_up_minutes=60,
        minutes=minutes,
    )
