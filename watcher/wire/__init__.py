"""Encoding and decoding of the JSON that watchers send to their clients.

A snapshot has three forms, which the decoder distinguishes:

- The documented dialect follows the Trimaran KEP (``schemas/``).
- The Go dialect, which load-watcher's Go code actually writes and reads, has one more level:
  ``{"data": {"NodeMetricsMap": {...}}}``.
- The columnar form, which our own client requests, has ``{"groups": [...]}`` in place of ``data``, with all values of a
  series in one array. It has the same content as the dialects and is decoded in a tenth of the time.
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
