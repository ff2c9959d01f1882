"""Arrays as bytes for the store: a compressed ``.npz`` archive without pickled objects."""

import io
import zipfile
import zlib
from typing import Any

import numpy as np

_COMPRESSION = 1

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OSError, EOFError, zlib.error, zipfile.BadZipFile)
"""Errors that :func:`unpack`, or code that uses the unpacked arrays, raises for damaged bytes."""


def pack(**arrays: np.ndarray[Any, Any]) -> bytes:
    """Return named arrays as bytes."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return zlib.compress(file.getbuffer(), _COMPRESSION)


def unpack(body: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays that :func:`pack` packed, by name; raises one of :data:`UNREADABLE` for other bytes."""
    with np.load(io.BytesIO(zlib.decompress(body)), allow_pickle=False) as arrays:
        return dict(arrays)
