"""Use of the nodes of a recorded cluster as its pods were placed then. Replays ignore it; reports show it.

In a trace's folder it is the optional file node_use.npz: begin, Unix time of minute 0; cpu and memory, use as a share
of capacity, shape (nodes, minutes), NaN where no pod of the node was measured. Rows are in the order of nodes.csv.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scoring.arrays import Float64s
from trimaran.traces.problems import TraceError, TraceProblems
from trimaran.traces.tables import read_arrays
from trimaran.traces.trace import Trace

NODE_USE = "node_use.npz"
MAX_BEGIN = 2**40
_ARRAYS = ("begin", "cpu", "memory")


@dataclass(frozen=True, eq=False)
class NodeUse:
    """Use of nodes, minute by minute.

    Attributes:
        nodes: names of the nodes.
        begin: Unix time of minute 0.
        cpu: CPU use of all pods of each node as a share of its capacity, shape (nodes, minutes); NaN where unknown.
        memory: memory use, in the form of ``cpu``.
    """

    nodes: tuple[str, ...]
    begin: int
    cpu: Float64s
    memory: Float64s


def write_node_use(use: NodeUse, folder: Path) -> None:
    """Write the use of the nodes into a trace's folder."""
    cpu, memory = use.cpu.astype(np.float16), use.memory.astype(np.float16)
    np.savez_compressed(folder / NODE_USE, begin=np.int64(use.begin), cpu=cpu, memory=memory)


def read_node_use(folder: Path, trace: Trace) -> NodeUse | None:
    """Return the use of the nodes in a trace's folder; None if the folder has none.

    Raises:
        TraceError: the file cannot be read, or does not fit the trace.
    """
    path = folder / NODE_USE
    if not os.path.lexists(path):
        return None
    begin, cpu, memory = read_arrays(path, _ARRAYS, TraceProblems())
    if begin.shape != () or begin.dtype.kind != "i" or not 0 <= begin <= MAX_BEGIN:
        raise TraceError(f"{path}: begin must be the Unix time of minute 0, a whole number")
    shape = len(trace.nodes), trace.minutes
    for name, values in zip(_ARRAYS[1:], (cpu, memory), strict=True):
        if values.shape != shape or values.dtype.kind != "f" or (values < 0).any() or np.isinf(values).any():
            raise TraceError(f"{path}: {name} must be shares of capacity of the shape {shape}, or NaN where unknown")
    return NodeUse(trace.nodes, int(begin), cpu.astype(np.float64), memory.astype(np.float64))
