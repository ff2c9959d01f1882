"""The JSON that watchers and their clients exchange, in and out.

The documented dialect is the one of the Trimaran KEP (``schemas/``); the Go dialect, which load-watcher's Go code
really writes and reads, has one more level: ``{"data": {"NodeMetricsMap": {...}}}``. Beside them there is the columnar
form, which our own client asks for: ``{"groups": [...]}`` in place of ``data``, with all values of a series in one
array. It says the same, and is read in a tenth of the time. Reading tells the three apart.
"""

from watcher.wire.errors import MetricsCode, WireError
from watcher.wire.reading import decode
from watcher.wire.writing import COLUMNS_TYPE, Dialect, assemble, encode, encode_columns, encode_node, frame

__all__ = [
    "COLUMNS_TYPE",
    "Dialect",
    "MetricsCode",
    "WireError",
    "assemble",
    "decode",
    "encode",
    "encode_columns",
    "encode_node",
    "frame",
]
