"""Trimaran's command line with other constants, for tests that cannot wait for the real ones.

    python varied.py MODULE:NAME=JSON ... -- rebalance --mode act ...

A constant, or one of a class, is set before the modules that import it. A JSON object changes the fields of a frozen
dataclass, by their paths: ``trimaran.rebalancer.rules:RULES={"nodes.bad_looks": 1}``.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any


def changed(value: Any, changes: dict[str, Any]) -> Any:
    """Return a frozen dataclass with other fields, by their paths."""
    for path, field in changes.items():
        name, _, rest = path.partition(".")
        value = replace(value, **{name: changed(getattr(value, name), {rest: field}) if rest else field})
    return value


def vary(assignment: str) -> None:
    """Set a constant of a module to another value."""
    place, _, text = assignment.partition("=")
    name, _, path = place.partition(":")
    *classes, constant = path.split(".")
    owner, value = importlib.import_module(name), json.loads(text)
    for each in classes:
        owner = getattr(owner, each)
    setattr(owner, constant, changed(getattr(owner, constant), value) if isinstance(value, dict) else value)


def varied(place: str, constants: Mapping[str, object]) -> list[str]:
    """Return the command that stands for ``trimaran`` with other constants of a class, ``MODULE:CLASS``."""
    return [sys.executable, __file__, *(f"{place}.{name}={json.dumps(each)}" for name, each in constants.items()), "--"]


def main() -> None:
    """Set the constants, and run the rest of the command line."""
    end = sys.argv.index("--")
    for assignment in sys.argv[1:end]:
        vary(assignment)
    sys.argv[1 : end + 1] = []
    importlib.import_module("trimaran.cli.main").main()


if __name__ == "__main__":
    main()
