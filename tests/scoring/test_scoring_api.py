"""Public interface of the package: its docstrings, and the cost of importing it."""

import subprocess
import sys

import scoring


def test_every_public_name_is_documented():
    """Public classes and functions have docstrings."""
    for name in scoring.__all__:
        thing = getattr(scoring, name)
        if callable(thing):
            assert thing.__doc__, name


def test_importing_is_light():
    """Importing the package loads no server, no parser and not scipy."""
    heavy = "{'scipy', 'flask', 'pydantic', 'yaml', 'requests', 'pandas', 'kubernetes', 'click', 'sqlite_utils'}"
    program = f"import sys, scoring; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
