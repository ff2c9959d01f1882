"""Scripts of research/ and benchmarks/ as modules."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "research"


@contextmanager
def imported(name: str, folder: Path = FOLDER) -> Iterator[ModuleType]:
    """Import a script, and forget it and the scripts that it imports at the end: their names are common words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        before = set(sys.modules)
        try:
            yield importlib.import_module(name)
        finally:
            for new in set(sys.modules) - before:
                file = getattr(sys.modules[new], "__file__", None)
                if file is not None and Path(file).parent == folder:
                    del sys.modules[new]
