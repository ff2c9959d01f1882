"""Small traces to replay, with an obvious outcome."""

import numpy as np

from trimaran.traces.trace import NO_LIMIT, PodUse, Trace

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


def one_node_world(*pods: tuple[str, int, int, int, float, float], minutes: int = 20, warm_up: int = 5) -> Trace:
    """Return a world of one node with 1000m and 1000 bytes, and pods.

    Args:
        pods: kind, arrival, end, CPU request, CPU level and memory level of each pod.
        minutes: length of the world.
        warm_up: minutes of the warm-up.
    """
    lives = [end - arrival for _, arrival, end, *_ in pods]
    column = [np.array([pod[place] for pod in pods], np.int64) for place in range(1, 4)]
    cpu, memory = (np.repeat([pod[place] for pod in pods], lives).astype(np.float32) for place in (4, 5))
    none, offsets = np.full(len(pods), NO_LIMIT), np.concatenate([[0], np.cumsum(lives)])
    return Trace(
        name="hand", nodes=("node",), cpu_capacity_milli=np.array([1000]), memory_capacity_bytes=np.array([1000]),
        pods=tuple(f"pod-{number}" for number in range(len(pods))), owner_kinds=tuple(pod[0] for pod in pods),
        owners=tuple(f"owner-{number}" for number in range(len(pods))), arrival_minute=column[0], end_minute=column[1],
        cpu_request_milli=column[2], memory_request_bytes=np.full(len(pods), 400), cpu_limit_milli=none,
        memory_limit_bytes=none, use=PodUse(offsets, cpu, memory), overcommit=(1.0, 1.0),
        warm_up_minutes=warm_up, minutes=minutes,
    )  # fmt: skip
