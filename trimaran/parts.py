"""Check that the packages ``client``, ``scoring`` and ``watcher`` are those of trimaran: the names are common."""

import importlib
from pathlib import Path
from types import ModuleType


def import_own(name: str) -> ModuleType:
    """Import a package of trimaran.

    Raises:
        ImportError: another package of that name comes first; the message says where it is.
    """
    module = importlib.import_module(name)
    ours = Path(__file__).resolve().parent.parent / name
    found = Path(module.__file__ or ".").resolve().parent
    if found != ours:
        raise ImportError(
            f"the package {name!r} is {found}, not trimaran's {ours}: put trimaran first on sys.path, or rename the "
            "other package"
        )
    return module
