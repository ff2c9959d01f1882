"""Use of the nodes of a recorded cluster as its pods were placed then. Replays ignore it; reports show it.

In a trace's folder it is the optional file node_use.npz: cpu and memory, use as a share of capacity, shape
(nodes, minutes), NaN where no pod of the node was measured. Rows are in the order of nodes.csv.
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
_ARRAYS = ("cpu", "memory")


@dataclass(frozen=True, eq=False)
class NodeUse:
    """Use of nodes, minute by minute.

    Attributes:
        nodes: names of the nodes.
        cpu: CPU use of all pods of each node as a share of its capacity, shape (nodes, minutes); NaN where unknown.
        memory: memory use, in the form of ``cpu``.
    """

    nodes: tuple[str, ...]
    cpu: Float64s
    memory: Float64s


def write_node_use(use: NodeUse, folder: Path) -> None:
    """Write the use of the nodes into a trace's folder."""
    np.savez_compressed(folder / NODE_USE, cpu=use.cpu.astype(np.float16), memory=use.memory.astype(np.float16))


def read_node_use(folder: Path, trace: Trace) -> NodeUse | None:
    """Return the use of the nodes in a trace's folder; None if the folder has none.

    Raises:
        TraceError: the file cannot be read, or does not fit the trace.
    """
    path = folder / NODE_USE
    if not os.path.lexists(path):
        return None
    cpu, memory = read_arrays(path, _ARRAYS, TraceProblems())
    shape = len(trace.nodes), trace.minutes
    for name, values in zip(_ARRAYS, (cpu, memory), strict=True):
        if values.shape != shape or values.dtype.kind != "f" or (values < 0).any() or np.isinf(values).any():
            raise TraceError(f"{path}: {name} must be shares of capacity of the shape {shape}, or NaN where unknown")
    return NodeUse(trace.nodes, cpu.astype(np.float64), memory.astype(np.float64))
