"""Extras of the distribution: optional packages, and the commands that install them."""

import shlex
from importlib.metadata import PackageNotFoundError, requires

_DISTRIBUTION = "trimaran"


def install_command(extra: str) -> str:
    """Return a command that installs the packages of an extra, such as ``pip install 'joblib>=1.4'``.

    The command names the packages, not ``trimaran[extra]``, because trimaran itself may not be on any package index. If
    trimaran is not installed as a package, the command works in the project's folder only.
    """
    try:
        listed = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        listed = []
    marked = (requirement.partition(";") for requirement in listed)
    packages = [name.strip() for name, _, marker in marked if f"extra == '{extra}'" in marker.replace('"', "'")]
    return shlex.join(["pip", "install", *(packages or [f".[{extra}]"])])
