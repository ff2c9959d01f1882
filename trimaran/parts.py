"""Checks of an installation: trimaran's own packages, whose names are common, and the extra ``watcher``."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

#: Modules of the extra ``watcher`` of pyproject.toml: services and commands need them, clients and scores do not.
OF_THE_WATCHER = frozenset({
    "click", "flask", "gunicorn", "prometheus_api_client", "prometheus_client", "psutil", "pydantic", "sqlite_utils",
    "xxhash",
})  # fmt: skip
_ROOT = Path(__file__).resolve().parent.parent


def check_own(*names: str) -> None:
    """Check that packages are those of trimaran, and not a user's ``client.py`` next to a script.

    Raises:
        ImportError: another module of the same name comes first; the message has its path.
    """
    for name in names:
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found != _ROOT / name / "__init__.py":
            raise ImportError(
                f"the module {name!r} is {found or 'not there'}, not trimaran's {_ROOT / name}: rename it, or put "
                "trimaran first on sys.path",
                name=name,
            )


def import_own(name: str) -> ModuleType:
    """Import a package of trimaran.

    Raises:
        ImportError: another module of the same name comes first; the message has its path.
    """
    check_own(name)
    return importlib.import_module(name)


@contextmanager
def needing_watcher(what: str) -> Iterator[None]:
    """Raise an error with the install command if the block misses a module of the extra ``watcher``.

    Args:
        what: part of trimaran that needs the extra; begins the message.

    Raises:
        ModuleNotFoundError: a module of the extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in OF_THE_WATCHER:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {error.name}, of the extra watcher: pip install '.[watcher]' in trimaran's folder",
            name=error.name,
        ) from None
