"""Cut of a trace: some hours of a world, as a trace of its own.

Pods that run when the cut begins arrive in random order in the first half of its warm-up, within an hour, because no
scheduler places a whole cluster in a minute. They are new to the services, and use what they use at that time of the
world.
"""

from dataclasses import replace

import numpy as np

from trimaran.traces.trace import PodUse, Trace

_MOST_RAMP_MINUTES = 60


def cut(trace: Trace, start: int, minutes: int, warm_up_minutes: int) -> Trace:
    """Return some minutes of a trace as a trace of its own.

    Args:
        trace: the world.
        start: minute of the world in which the cut begins.
        minutes: length of the cut.
        warm_up_minutes: first part of the cut, which is not measured.
    """
    ramp = max(min(warm_up_minutes // 2, _MOST_RAMP_MINUTES), 1)
    late = np.random.default_rng(0).integers(ramp, size=len(trace.pods))
    arrival = np.where(trace.arrival_minute < start, start + late, trace.arrival_minute)
    end = np.minimum(trace.end_minute, start + minutes)
    kept = np.flatnonzero(arrival < end)
    kept = kept[np.argsort(arrival[kept], kind="stable")]
    offsets, cpu, memory = [0], [], []
    for number in kept.tolist():
        first = int(trace.use.offsets[number] + arrival[number] - trace.arrival_minute[number])
        last = min(int(first + end[number] - arrival[number]), int(trace.use.offsets[number + 1]))
        cpu.append(trace.use.cpu[first:last])
        memory.append(trace.use.memory[first:last])
        offsets.append(offsets[-1] + len(cpu[-1]))
    numbers = kept.tolist()
    return replace(
        trace,
        pods=tuple(trace.pods[n] for n in numbers),
        owner_kinds=tuple(trace.owner_kinds[n] for n in numbers),
        owners=tuple(trace.owners[n] for n in numbers),
        arrival_minute=arrival[kept] - start,
        end_minute=end[kept] - start,
        cpu_request_milli=trace.cpu_request_milli[kept],
        memory_request_bytes=trace.memory_request_bytes[kept],
        cpu_limit_milli=trace.cpu_limit_milli[kept],
        memory_limit_bytes=trace.memory_limit_bytes[kept],
        use=PodUse(np.array(offsets, np.int64), np.concatenate(cpu), np.concatenate(memory)),
        warm_up_minutes=warm_up_minutes,
        minutes=minutes,
        events=(),
    )
