"""Makes sure that ``client``, ``scoring``, ``watcher`` and the other parts are ours: the names are common ones."""

import importlib
from pathlib import Path
from types import ModuleType


def own(name: str) -> ModuleType:
    """Import a part.

    Raises:
        ImportError: another package of that name comes first; the message says where it is.
    """
    module = importlib.import_module(name)
    ours = Path(__file__).resolve().parent.parent / name
    found = Path(module.__file__ or ".").resolve().parent
    if found != ours:
        raise ImportError(f"{name!r} is {found}, not trimaran's {ours}: put trimaran first on the path, or rename it")
    return module
